import { setTimeout } from 'node:timers/promises'
import { DomainError } from '../../base/errors.ts'
import type { OsvPage } from '../../cache/lists/advisory-source.ts'
import { turnOf, type Context, type Services } from '../../engine/services.ts'
import { documentedAdvisories, type VisibleAdvisories } from '../advisories/visible-advisories.ts'
import { zipEnd } from './zip-records.ts'

/** How many zips a process makes at the same time, for callers with and without a token. Each keeps the records of its documents in memory: about 100 bytes for one. */
const maxDownloads = { known: 8, anonymous: 4 }
/** Parts of anonymous zips are made one after the other, with this multiple of their time between them. So they use a quarter of a core. */
const anonymousPause = 3

/** Lets work of anonymous callers run one after the other, with pauses. */
class Pace {
  #last: Promise<unknown> = Promise.resolve()

  /** Resolves with the result of the work, once it was its turn. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(async () => {
      const startMs = performance.now()
      const made = await work()
      return { made, afterMs: (performance.now() - startMs) * anonymousPause }
    })
    this.#last = turn.then(
      ({ afterMs }) => setTimeout(afterMs, undefined, { ref: false }),
      () => undefined,
    )
    return (await turn).made
  }
}

/**
 * A zip with one OSV document for each id of advisories, made while it is sent. A thread makes each part. Before each part the caller's rights are looked up
 * again. States: running, and ended, which frees the place in `ZipDownloads`.
 */
class ZipDownload implements AsyncIterableIterator<Uint8Array> {
  readonly #pace: Pace
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

  /** What the first part was made of. */
  #content: VisibleAdvisories | undefined

  constructor({ services, pace }: { readonly services: Services; readonly pace: Pace }, context: Context, end: () => void) {
    this.#services = services
    this.#pace = pace
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
      const content = await documentedAdvisories(this.#services, context)
      this.#content ??= content
      // A zip that ends well has all documents of one moment. The client sees that this one is cut.
      if (!isSame(this.#content, content)) throw new DomainError(10, 'advisories or rights changed: repeat the download', { reason: 'CATALOGUE_CHANGED' })
      const { sources, groups } = content
      const [source] = sources
      if (source === undefined || groups.length === 0) return undefined
      const query = { groups, after: this.#after, offset: this.#offset }
      const make = (): Promise<OsvPage> => source.osvPage(query, turnOf(context))
      const { bytes, records, count, next } = await (context.caller === undefined ? this.#pace.run(make) : make())
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

function isSame(one: VisibleAdvisories, other: VisibleAdvisories): boolean {
  return one.sources[0] === other.sources[0] && one.groups.join() === other.groups.join()
}

/** The zips that are being sent: one for each caller or address. Anonymous callers leave places to the others. */
export class ZipDownloads {
  readonly #services: Services
  readonly #running = { known: new Set<string>(), anonymous: new Set<string>() }
  readonly #pace = new Pace()

  constructor(services: Services) {
    this.#services = services
  }

  /** Resolves with the pieces of a zip. Rejects with code 8 while the caller has another one, or too many are sent, and with code 14 while advisories are being loaded. */
  begin(context: Context, key: string): Promise<AsyncIterableIterator<Uint8Array>> {
    const who = context.caller === undefined ? 'anonymous' : 'known'
    const running = this.#running[who]
    if (running.has(key) || running.size >= maxDownloads[who])
      throw new DomainError(8, 'another download of this zip is running: repeat the request when it has ended', {
        reason: 'RATE_LIMITED',
        details: { retryAfterMs: 5_000 },
      })
    running.add(key)
    return new ZipDownload({ services: this.#services, pace: this.#pace }, context, () => void running.delete(key)).begin()
  }
}
