import { DomainError } from '../base/errors.ts'
import type { Clock } from '../base/runtime.ts'
import { TokenBuckets } from './rate-limit.ts'

/** What the reads of one key may take together. */
export interface ReadLimit {
  /** Reads under way at once. */
  readonly concurrent: number
  /** Bytes of answers in the long run. */
  readonly bytesPerSecond: number
  /** Bytes of answers at once. */
  readonly burstBytes: number
}

/** Says that a read is over, with the bytes that were sent for it. */
export type EndRead = (sentBytes: number) => void

/** Limits the reads of each key by how many are under way and by their bytes. A read is charged when it ends: it may overdraw the bytes, and then the next one waits. */
export class ReadLimiter {
  readonly #concurrent: number
  readonly #bytes: TokenBuckets
  readonly #underWay = new Map<string, number>()

  constructor({ concurrent, bytesPerSecond, burstBytes }: ReadLimit, clock: Clock) {
    this.#concurrent = concurrent
    this.#bytes = new TokenBuckets({ perSecond: bytesPerSecond, burst: burstBytes }, clock)
  }

  /** Begins a read of `key`; the result must be called once. Throws code 8 `RATE_LIMITED` with RetryInfo. */
  begin(key: string): EndRead {
    const count = this.#underWay.get(key) ?? 0
    if (count >= this.#concurrent) throw new DomainError(8, 'too many requests at once', { reason: 'RATE_LIMITED', details: { retryAfterMs: 1000 } })
    this.#bytes.assertHas(key, 1, 'too many bytes: the answers were too large together')
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
