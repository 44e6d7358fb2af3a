import { DomainError } from '../base/errors.ts'
import { RecentMap } from '../base/recent-map.ts'
import type { Clock } from '../base/runtime.ts'
import { TokenBucket, type Rate } from '../base/token-bucket.ts'
import type { LoopMeter } from './loop-meter.ts'

/** The limits of one principal's requests. */
export interface RateLimit {
  readonly requestsPerSecond: number
  readonly burst: number
  /** Long-term limit of the time for which its requests keep the event loop busy, in milliseconds per second. Unlimited by default. */
  readonly workMillisecondsPerSecond?: number
  /** Burst limit of that time, in milliseconds. */
  readonly workBurstMilliseconds?: number
}

/** Maximum number of remembered keys: the least recently used one is forgotten first. */
const maxBuckets = 100_000

/** A token bucket per key. */
export class TokenBuckets {
  readonly #rate: Rate
  readonly #clock: Clock
  readonly #buckets = new RecentMap<string, TokenBucket>(maxBuckets)

  constructor(rate: Rate, clock: Clock) {
    this.#rate = rate
    this.#clock = clock
  }

  /** Throws code 8 with RetryInfo if the key's bucket has fewer tokens. */
  assertHas(key: string, tokens: number, message: string): void {
    const retryAfterMs = this.#bucket(key).waitMs(tokens)
    if (retryAfterMs > 0) throw new DomainError(8, message, { reason: 'RATE_LIMITED', details: { retryAfterMs } })
  }

  /** Takes tokens, even more than the bucket has. */
  spend(key: string, tokens: number): void {
    this.#bucket(key).spend(tokens)
  }

  #bucket(key: string): TokenBucket {
    const known = this.#buckets.get(key)
    if (known !== undefined) return known
    const full = new TokenBucket(this.#rate, () => this.#clock.now())
    this.#buckets.set(key, full)
    return full
  }
}

/**
 * Limits the requests of each key, and the time for which they keep the event loop busy. Both methods throw code 8 `RATE_LIMITED` with RetryInfo
 * (docs/spec/limits.md#rate-limits). From `take` or `resume` until the next wait, the loop's time counts as the key's. Work without a wait may overdraw the
 * bucket; the next request then waits.
 */
export class RateLimiter {
  readonly #requests: TokenBuckets
  readonly #work: { readonly buckets: TokenBuckets; readonly meter: LoopMeter } | undefined

  /** Without a meter, or a budget for work, only requests are counted. */
  constructor(limit: RateLimit, clock: Clock, meter?: LoopMeter) {
    this.#requests = new TokenBuckets({ perSecond: limit.requestsPerSecond, burst: limit.burst }, clock)
    const { workMillisecondsPerSecond: perSecond, workBurstMilliseconds: burst } = limit
    if (meter !== undefined && perSecond !== undefined && burst !== undefined) this.#work = { buckets: new TokenBuckets({ perSecond, burst }, clock), meter }
  }

  /** Counts a request of `key` and starts to measure its work. */
  take(key: string): void {
    this.#requests.assertHas(key, 1, 'too many requests')
    this.#work?.buckets.assertHas(key, 1, 'too much processing time; wait for Retry-After')
    this.#requests.spend(key, 1)
    this.resume(key)
  }

  /** Measures the work of `key` again after a wait. */
  resume(key: string): void {
    if (this.#work === undefined) return
    const { buckets, meter } = this.#work
    meter.enter((ms) => buckets.spend(key, ms))
  }
}

/** Returns the key of a network address. For an IPv6 address it is the /64: its holder has all of it. */
export function addressKey(address: string): string {
  const text = address.replace(/^::ffff:(?=\d+\.)/, '')
  if (!text.includes(':')) return `address ${text}`
  const [head = '', tail] = text.split('::')
  const groups = head === '' ? [] : head.split(':')
  const after = tail === undefined || tail === '' ? [] : tail.split(':')
  const all = tail === undefined ? groups : [...groups, ...Array<string>(Math.max(0, 8 - groups.length - after.length)).fill('0'), ...after]
  return `address ${all.slice(0, 4).join(':')}::/64`
}
