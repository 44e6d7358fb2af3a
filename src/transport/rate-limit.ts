import { DomainError } from '../base/errors.ts'
import type { Clock } from '../base/runtime.ts'
import type { LoopMeter } from './loop-meter.ts'

/** How much a principal may ask. */
export interface RateLimit {
  readonly requestsPerSecond: number
  readonly burst: number
  /** For how long its requests may hold the event loop, milliseconds in a second in the long run. Unlimited where absent. */
  readonly workMillisecondsPerSecond?: number
  /** The same, milliseconds at once. */
  readonly workBurstMilliseconds?: number
}

interface Bucket {
  tokens: number
  filledAtMs: number
}

/** Keys remembered at most: the one seen longest ago is forgotten first. */
const maxBuckets = 100_000

/** A token bucket per key. */
export class TokenBuckets {
  readonly #perSecond: number
  readonly #burst: number
  readonly #clock: Clock
  // In the order of their last use.
  readonly #buckets = new Map<string, Bucket>()

  constructor({ perSecond, burst }: { readonly perSecond: number; readonly burst: number }, clock: Clock) {
    this.#perSecond = perSecond
    this.#burst = burst
    this.#clock = clock
  }

  /** Throws code 8 with RetryInfo where the key's bucket has fewer tokens. */
  assertHas(key: string, tokens: number, message: string): void {
    const lacking = tokens - this.#used(key).tokens
    if (lacking <= 0) return
    const retryAfterMs = Math.ceil((lacking * 1000) / this.#perSecond)
    throw new DomainError(8, message, { reason: 'RATE_LIMITED', details: { retryAfterMs } })
  }

  /** Takes tokens, also those that are not there yet. */
  spend(key: string, tokens: number): void {
    this.#used(key).tokens -= tokens
  }

  /** The key's bucket with what has come in since it was looked at last. */
  #used(key: string): Bucket {
    const now = this.#clock.now()
    const bucket = this.#buckets.get(key) ?? { tokens: this.#burst, filledAtMs: now }
    // A clock that was set back must not empty a bucket.
    const elapsedMs = Math.max(0, now - bucket.filledAtMs)
    bucket.tokens = Math.min(this.#burst, bucket.tokens + (elapsedMs * this.#perSecond) / 1000)
    bucket.filledAtMs = now
    this.#buckets.delete(key)
    this.#buckets.set(key, bucket)
    if (this.#buckets.size > maxBuckets) this.#forgetOldest()
    return bucket
  }

  #forgetOldest(): void {
    const [oldest] = this.#buckets.keys()
    if (oldest !== undefined) this.#buckets.delete(oldest)
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

  /** Counts a request of `key`, whose work begins. */
  take(key: string): void {
    this.#requests.assertHas(key, 1, 'too many requests')
    this.#work?.buckets.assertHas(key, 1, 'too much processing time; wait for Retry-After')
    this.#requests.spend(key, 1)
    this.resume(key)
  }

  /** A request of `key` goes on after something was waited for. */
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
