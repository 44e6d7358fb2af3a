import { DomainError } from '../base/errors.ts'
import { RecentMap } from '../base/recent-map.ts'
import type { Clock } from '../base/runtime.ts'
import { TokenBucket, type Rate } from '../base/token-bucket.ts'
import type { LoopMeter } from './loop-meter.ts'

/** The limits for the requests of one caller or address. */
export interface RateLimit {
  readonly requestsPerSecond: number
  readonly burst: number
  /** Average limit of the time for which the requests may keep the event loop busy, in milliseconds per second. Unlimited by default. */
  readonly workMillisecondsPerSecond?: number
  /** Limit of that time at once, in milliseconds. */
  readonly workBurstMilliseconds?: number
}

/** The rate limit of a caller after a request. */
export interface LimitState {
  /** The number of requests at once, and the seconds until so many are allowed again. */
  readonly burst: number
  readonly windowSeconds: number
  /** The number of requests that are left now, and the seconds until all are. */
  readonly remaining: number
  readonly resetSeconds: number
}

/** Maximum number of buckets in memory. Above it, the least recently used one is dropped. */
const maxBuckets = 100_000

/** Token buckets, one per key. */
export class TokenBuckets {
  readonly #rate: Rate
  readonly #clock: Clock
  readonly #buckets = new RecentMap<string, TokenBucket>(maxBuckets)

  constructor(rate: Rate, clock: Clock) {
    this.#rate = rate
    this.#clock = clock
  }

  /** Throws code 8 with RetryInfo if the bucket of the key has fewer tokens. */
  assertHas(key: string, tokens: number, message: string): void {
    const retryAfterMs = this.#bucket(key).waitMs(tokens)
    if (retryAfterMs > 0) throw new DomainError(8, message, { reason: 'RATE_LIMITED', details: { retryAfterMs } })
  }

  /** Returns the number of tokens in the bucket of the key. */
  tokens(key: string): number {
    return this.#bucket(key).tokens
  }

  /** Takes tokens. The bucket may then have a negative number. */
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
 * Limits the number of requests of each key, and the time for which they keep the event loop busy. `take` and `resume` throw code 8 `RATE_LIMITED` with
 * RetryInfo (docs/spec/limits.md#rate-limits). After either of them, the loop's time counts for the key until the next wait. A request that runs without a
 * wait may exceed the limit; the next request then waits.
 */
export class RateLimiter {
  readonly #limit: RateLimit
  readonly #requests: TokenBuckets
  readonly #work: { readonly buckets: TokenBuckets; readonly meter: LoopMeter } | undefined

  /** Without `meter`, or a limit for the processing time, only requests are counted. */
  constructor(limit: RateLimit, clock: Clock, meter?: LoopMeter) {
    this.#limit = limit
    this.#requests = new TokenBuckets({ perSecond: limit.requestsPerSecond, burst: limit.burst }, clock)
    const { workMillisecondsPerSecond: perSecond, workBurstMilliseconds: burst } = limit
    if (meter !== undefined && perSecond !== undefined && burst !== undefined) this.#work = { buckets: new TokenBuckets({ perSecond, burst }, clock), meter }
  }

  /** Counts a request of `key`, and starts to measure its processing time. */
  take(key: string): void {
    this.#requests.assertHas(key, 1, 'too many requests')
    this.#work?.buckets.assertHas(key, 1, 'too much processing time: wait as long as Retry-After or RetryInfo says')
    this.#requests.spend(key, 1)
    this.resume(key)
  }

  /** Returns the limit of requests of `key`. */
  stateOf(key: string): LimitState {
    const { burst, requestsPerSecond } = this.#limit
    const tokens = this.#requests.tokens(key)
    return {
      burst,
      windowSeconds: Math.ceil(burst / requestsPerSecond),
      remaining: Math.max(0, Math.floor(tokens)),
      resetSeconds: Math.ceil((burst - tokens) / requestsPerSecond),
    }
  }

  /** Continues to measure the processing time of `key` after a wait. */
  resume(key: string): void {
    if (this.#work === undefined) return
    const { buckets, meter } = this.#work
    meter.enter((ms) => buckets.spend(key, ms))
  }
}

/** Returns the key of a client address. For an IPv6 address it is its /64 network, all of which usually belongs to one client. */
export function addressKey(address: string): string {
  const text = address.replace(/^::ffff:(?=\d+\.)/, '')
  if (!text.includes(':')) return `address ${text}`
  const [head = '', tail] = text.split('::')
  const groups = head === '' ? [] : head.split(':')
  const after = tail === undefined || tail === '' ? [] : tail.split(':')
  const all = tail === undefined ? groups : [...groups, ...Array<string>(Math.max(0, 8 - groups.length - after.length)).fill('0'), ...after]
  return `address ${all.slice(0, 4).join(':')}::/64`
}
