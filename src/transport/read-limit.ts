import { DomainError } from '../base/errors.ts'
import type { Clock } from '../base/runtime.ts'
import { TokenBuckets } from './rate-limit.ts'

/** The limits of one key's reads together. */
export interface ReadLimit {
  /** Maximum number of reads under way. */
  readonly concurrent: number
  /** Long-term limit of answer bytes per second. */
  readonly bytesPerSecond: number
  /** Burst limit of answer bytes. */
  readonly burstBytes: number
}

/** Ends a read, with the number of bytes sent for it. */
export type EndRead = (sentBytes: number) => void

/** Limits the reads of each key by their number and their bytes. A read is charged when it ends: it may overdraw the bytes, and the next one then waits. */
export class ReadLimiter {
  readonly #concurrent: number
  readonly #bytes: TokenBuckets
  readonly #underWay = new Map<string, number>()

  constructor({ concurrent, bytesPerSecond, burstBytes }: ReadLimit, clock: Clock) {
    this.#concurrent = concurrent
    this.#bytes = new TokenBuckets({ perSecond: bytesPerSecond, burst: burstBytes }, clock)
  }

  /** Starts a read of `key`; call the result once. Throws code 8 `RATE_LIMITED` with RetryInfo. */
  begin(key: string): EndRead {
    const count = this.#underWay.get(key) ?? 0
    if (count >= this.#concurrent) throw new DomainError(8, 'too many requests at once; try again', { reason: 'RATE_LIMITED', details: { retryAfterMs: 1000 } })
    this.#bytes.assertHas(key, 1, 'too many bytes: wait for Retry-After')
    this.#underWay.set(key, count + 1)
    return (sentBytes) => this.#end(key, sentBytes)
  }

  #end(key: string, sentBytes: number): void {
    const left = (this.#underWay.get(key) ?? 1) - 1
    if (left > 0) this.#underWay.set(key, left)
    else this.#underWay.delete(key)
    this.#bytes.spend(key, sentBytes)
  }
}
