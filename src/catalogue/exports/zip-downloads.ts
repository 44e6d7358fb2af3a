import { DomainError } from '../../base/errors.ts'
import { turnOf, type Context, type Services } from '../../engine/services.ts'
import { documentedAdvisories } from '../advisories/visible-advisories.ts'
import { zipEnd } from './zip-records.ts'

/** How many zips a process makes at the same time. Each keeps the records of its documents in memory: about 100 bytes for one. */
const maxDownloads = 8

/**
 * A zip with one OSV document for each id of advisories, made while it is sent. A thread makes each part. Before each part the caller's rights are looked up
 * again. States: running, and ended, which frees the place in `ZipDownloads`.
 */
class ZipDownload implements AsyncIterableIterator<Uint8Array> {
  readonly #services: Services
  readonly #context: Context
  readonly #end: () => void
  readonly #records: Uint8Array[] = []
  #made: Uint8Array | undefined
  /** The last id of the parts so far. Undefined once all documents are made. */
  #after: string | undefined = ''
  #offset = 0
  #count = 0
  #isEnded = false

  constructor(services: Services, context: Context, end: () => void) {
    this.#services = services
    this.#context = context
    this.#end = end
    context.signal.addEventListener('abort', () => this.#finish(), { once: true })
  }

  /** Makes the first part, so that its errors are answers. */
  async begin(): Promise<this> {
    try {
      this.#made = await this.#nextPart()
      return this
    } catch (error) {
      this.#finish()
      throw error
    }
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (this.#isEnded) return { done: true, value: undefined }
    try {
      const made = this.#made ?? (await this.#nextPart())
      this.#made = undefined
      if (made !== undefined) return { done: false, value: made }
      const records = Buffer.concat(this.#records)
      const end = zipEnd({ count: this.#count, length: records.length, offset: this.#offset })
      this.#finish()
      return { done: false, value: Buffer.concat([records, end]) }
    } catch (error) {
      this.#finish()
      throw error
    }
  }

  return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.#finish()
    return Promise.resolve({ done: true, value: undefined })
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  /** Resolves with the next part that has documents. Undefined after the last one. */
  async #nextPart(): Promise<Uint8Array | undefined> {
    const context = this.#context
    while (this.#after !== undefined) {
      await context.reauthenticate()
      const { sources, groups } = await documentedAdvisories(this.#services, context)
      const [source] = sources
      if (source === undefined || groups.length === 0) return undefined
      const { bytes, records, count, next } = await source.osvPage({ groups, after: this.#after, offset: this.#offset }, turnOf(context))
      this.#after = next
      this.#offset += bytes.length
      this.#count += count
      if (count === 0) continue
      this.#records.push(records)
      return bytes
    }
    return undefined
  }

  #finish(): void {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#end()
  }
}

/** The zips that are being sent: one for each caller or address. */
export class ZipDownloads {
  readonly #services: Services
  readonly #running = new Set<string>()

  constructor(services: Services) {
    this.#services = services
  }

  /** Resolves with the pieces of a zip. Rejects with code 8 while the caller has another one, or too many are sent, and with code 14 while advisories are being loaded. */
  begin(context: Context, key: string): Promise<AsyncIterableIterator<Uint8Array>> {
    if (this.#running.has(key) || this.#running.size >= maxDownloads)
      throw new DomainError(8, 'another download of this zip is running: repeat the request when it has ended', {
        reason: 'RATE_LIMITED',
        details: { retryAfterMs: 5_000 },
      })
    this.#running.add(key)
    return new ZipDownload(this.#services, context, () => void this.#running.delete(key)).begin()
  }
}
