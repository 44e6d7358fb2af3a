import { DomainError } from '../core/errors.ts'
import type { Clock } from '../core/runtime.ts'

/** How much a principal may ask. */
export interface RateLimit {
  readonly requestsPerSecond: number
  readonly burst: number
}

interface Bucket {
  tokens: number
  filledAtMs: number
}

/** Keys remembered at most: the one seen longest ago is forgotten first. */
const maxBuckets = 100_000

/** A token bucket per key. `take` throws code 8 with RetryInfo where the key's bucket is empty (decisions "Rate limits"). */
export class RateLimiter {
  readonly #limit: RateLimit
  readonly #clock: Clock
  // In the order of their last use.
  readonly #buckets = new Map<string, Bucket>()

  constructor(limit: RateLimit, clock: Clock) {
    this.#limit = limit
    this.#clock = clock
  }

  /** Takes one token of `key`. */
  take(key: string): void {
    const bucket = this.#filled(key)
    this.#buckets.delete(key)
    this.#buckets.set(key, bucket)
    if (this.#buckets.size > maxBuckets) this.#forgetOldest()
    this.#assertNotEmpty(bucket)
    bucket.tokens -= 1
  }

  #assertNotEmpty(bucket: Bucket): void {
    if (bucket.tokens >= 1) return
    const retryAfterMs = Math.ceil(((1 - bucket.tokens) * 1000) / this.#limit.requestsPerSecond)
    throw new DomainError(8, 'too many requests', { reason: 'RATE_LIMITED', details: { retryAfterMs } })
  }

  /** The key's bucket with what has come in since it was looked at last. */
  #filled(key: string): Bucket {
    const { requestsPerSecond, burst } = this.#limit
    const now = this.#clock.now()
    const bucket = this.#buckets.get(key) ?? { tokens: burst, filledAtMs: now }
    // A clock that was set back must not empty a bucket.
    const elapsedMs = Math.max(0, now - bucket.filledAtMs)
    bucket.tokens = Math.min(burst, bucket.tokens + (elapsedMs * requestsPerSecond) / 1000)
    bucket.filledAtMs = now
    return bucket
  }

  #forgetOldest(): void {
    const [oldest] = this.#buckets.keys()
    if (oldest !== undefined) this.#buckets.delete(oldest)
  }
}

/** The key of a network address: of an IPv6 address its /64, since whoever has one has all of it. */
export function addressKey(address: string): string {
  const text = address.replace(/^::ffff:(?=\d+\.)/, '')
  if (!text.includes(':')) return `address ${text}`
  const [head = '', tail] = text.split('::')
  const groups = head === '' ? [] : head.split(':')
  const after = tail === undefined || tail === '' ? [] : tail.split(':')
  const all = tail === undefined ? groups : [...groups, ...Array<string>(Math.max(0, 8 - groups.length - after.length)).fill('0'), ...after]
  return `address ${all.slice(0, 4).join(':')}::/64`
}
