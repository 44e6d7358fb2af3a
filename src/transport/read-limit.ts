import { DomainError } from '../base/errors.ts'
import type { Clock } from '../base/runtime.ts'
import { TokenBuckets } from './rate-limit.ts'

/** The limits for all reads of one key together. */
export interface ReadLimit {
  /** Maximum number of concurrent reads. */
  readonly concurrent: number
  /** Average limit of answer bytes per second. */
  readonly bytesPerSecond: number
  /** Limit of answer bytes at once. */
  readonly burstBytes: number
}

/** Reports the end of a read, with the number of bytes that were sent. */
export type EndRead = (sentBytes: number) => void

/**
 * Limits the number of concurrent reads and the bytes of reads for each key. Bytes are counted when a read ends. They may then exceed the limit, and the next
 * read waits.
 */
export class ReadLimiter {
  readonly #concurrent: number
  readonly #bytes: TokenBuckets
  readonly #underWay = new Map<string, number>()

  constructor({ concurrent, bytesPerSecond, burstBytes }: ReadLimit, clock: Clock) {
    this.#concurrent = concurrent
    this.#bytes = new TokenBuckets({ perSecond: bytesPerSecond, burst: burstBytes }, clock)
  }

  /** Starts a read of `key`. Call the result once. Throws code 8 `RATE_LIMITED` with RetryInfo. */
  begin(key: string): EndRead {
    const count = this.#underWay.get(key) ?? 0
    if (count >= this.#concurrent) throw new DomainError(8, 'too many requests at once; try again', { reason: 'RATE_LIMITED', details: { retryAfterMs: 1000 } })
    this.#bytes.assertHas(key, 1, 'too many bytes: wait as long as Retry-After says')
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
