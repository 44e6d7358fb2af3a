import { errorText } from '../base/error-text.ts'
import { setTimeout as delay } from 'node:timers/promises'
import type { Log } from '../base/log.ts'
import { StoreError, type RangeQuery, type RangeResult, type Revision, type Store } from '../store/store.ts'
import { Slices } from './slices.ts'
import { keptPrefixes, type Snapshot } from './snapshot.ts'

/** What a snapshot is loaded from. */
export interface LoadOptions {
  readonly store: Store
  /** In this order: what names another record comes after it. */
  readonly kinds: readonly string[]
  readonly log: Log
  readonly signal: AbortSignal
  /** Told how many entries were read. */
  readonly progress: (records: number) => void
}

/** How many ranges are read at a time: the store works while this process does. */
const readers = 3
/** About how much a page of a range has. */
const pageBytes = 512 * 1024
const firstPageEntries = 500
const maxPageEntries = 4_000
/** Uids start with any of these. */
const digits = [...'0123456789abcdef']
const progressMs = 2_000
/** So often a page is asked for, with pauses that grow by this many milliseconds, before the load as a whole is begun anew. */
const pageAttempts = 5
const retryMs = 200

/** How many entries make a page: by the size of those read so far. */
class PageSize {
  #entries = 0
  #bytes = 0
  limit = firstPageEntries

  observe({ entries }: RangeResult): void {
    this.#entries += entries.length
    for (const { key, value } of entries) this.#bytes += key.length + value.length
    const fitting = Math.floor((pageBytes * this.#entries) / Math.max(this.#bytes, 1))
    this.limit = Math.max(1, Math.min(fitting, 2 * this.limit, maxPageEntries))
  }
}

/**
 * Reads into an empty snapshot what it keeps, all as of one commit, several ranges at a time; other work runs in between. The log tells how it goes. Rejects
 * with the store's error, or the signal's reason; the snapshot is of no use then.
 */
export async function loadSnapshot(snapshot: Snapshot, options: LoadOptions): Promise<{ revision: Revision; records: number }> {
  const loading = new Loading(snapshot, options)
  try {
    return await loading.run()
  } catch (error) {
    loading.stop.abort(error)
    throw error
  }
}

class Loading {
  readonly #snapshot: Snapshot
  readonly #options: LoadOptions
  readonly #signal: AbortSignal
  readonly #slices = new Slices()
  readonly #pageSize = new PageSize()
  readonly #startedMs = performance.now()
  #toldMs = this.#startedMs
  #revision: Revision | undefined
  #records = 0
  readonly stop = new AbortController()

  constructor(snapshot: Snapshot, options: LoadOptions) {
    this.#snapshot = snapshot
    this.#options = options
    this.#signal = AbortSignal.any([options.signal, this.stop.signal])
  }

  async run(): Promise<{ revision: Revision; records: number }> {
    const { log, kinds } = this.#options
    for (const prefix of keptPrefixes) await this.#read({ prefix })
    for (const kind of kinds) await this.#readKind(`r/${kind}/`)
    await this.#snapshot.settle(this.#slices)
    const revision = this.#revision
    if (revision === undefined) throw new TypeError('a snapshot keeps something')
    log.info('loaded', { ...this.#figures(), revision })
    return { revision, records: this.#records }
  }

  /** One page tells whether it pays to share out the rest. */
  async #readKind(prefix: string): Promise<void> {
    const page = await this.#page({ prefix })
    await this.#take(page)
    const last = page.entries.at(-1)?.key
    if (!page.more || last === undefined) return
    const left = [
      { prefix, after: last, before: prefix + (digits.find((digit) => prefix + digit > last) ?? 'g') },
      ...digits.map((digit) => ({ prefix: prefix + digit })),
    ]
    const parts = left.filter((part) => 'after' in part || part.prefix > last).values()
    await Promise.all(
      Array.from({ length: readers }, async () => {
        // The readers share one iterator: each takes the next part that is left.
        for (const part of parts) await this.#read(part)
      }),
    )
  }

  /** All of a range, page by page; the next one is on its way while one is taken in. */
  async #read(part: Pick<RangeQuery, 'prefix' | 'after' | 'before'>): Promise<void> {
    let coming: Promise<RangeResult> | undefined = this.#page(part)
    while (coming !== undefined) {
      const page: RangeResult = await coming
      const after = page.entries.at(-1)?.key
      coming = page.more && after !== undefined ? this.#page({ ...part, after }) : undefined
      // It is awaited in the next round; where this one fails nobody does.
      coming?.catch(() => undefined)
      await this.#take(page)
    }
  }

  async #page(query: Omit<RangeQuery, 'limit' | 'revision'>): Promise<RangeResult> {
    const page = await this.#patiently(() => {
      const revision = this.#revision
      return this.#options.store.range({ ...query, limit: this.#pageSize.limit, ...(revision === undefined ? {} : { revision }) }, this.#signal)
    })
    this.#revision ??= page.revision
    this.#pageSize.observe(page)
    return page
  }

  /** A store that does not answer for a while must not cost what was read so far. */
  async #patiently<T>(read: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await read()
      } catch (error) {
        const isPassing = error instanceof StoreError && error.kind === 'unavailable'
        if (!isPassing || this.#signal.aborted || attempt === pageAttempts) throw error
        this.#options.log.warn('a page could not be read and is asked for again', { ...this.#figures(), error: errorText(error) })
        await delay(attempt * retryMs, undefined, { signal: this.#signal })
      }
    }
  }

  async #take({ entries }: RangeResult): Promise<void> {
    await this.#snapshot.stage(entries, this.#slices)
    this.#records += entries.length
    this.#options.progress(this.#records)
    if (performance.now() - this.#toldMs < progressMs) return
    this.#toldMs = performance.now()
    this.#options.log.info('loading', this.#figures())
  }

  #figures(): { records: number; seconds: number; perSecond: number } {
    const seconds = (performance.now() - this.#startedMs) / 1000
    return { records: this.#records, seconds: Number(seconds.toFixed(1)), perSecond: Math.round(this.#records / Math.max(seconds, 0.001)) }
  }
}
