import { errorText } from '../base/error-text.ts'
import type { Log } from '../base/log.ts'
import { backoffMs, retry, type Backoff } from '../base/timing.ts'
import { StoreError, type RangeQuery, type RangeResult, type Revision, type Store } from '../store/store.ts'
import { CooperativeTask } from './cooperative-task.ts'
import { keptPrefixes, type RecordTables } from './record-tables.ts'

/** The source and the options of loading a snapshot. */
export interface LoadOptions {
  readonly store: Store
  /** The kinds in loading order: a kind comes before the kinds whose records refer to it. */
  readonly kinds: readonly string[]
  readonly log: Log
  readonly signal: AbortSignal
  /** Called with the number of entries read so far. */
  readonly progress: (records: number) => void
}

/** Number of ranges that are read at the same time, so that the store and this process work in parallel. */
const readers = 3
/** Approximate size in bytes of a page of entries that is read from the store at once. */
const pageBytes = 512 * 1024
const firstPageEntries = 500
const maxPageEntries = 4_000
/** The first characters that a uid can have. */
const digits = [...'0123456789abcdef']
const progressMs = 2_000
/** Maximum number of attempts per page, before the whole load is started again. */
const pageAttempts = 5
const pageBackoff: Backoff = { firstMs: 200, maxMs: 800 }

/** Computes how many entries the next page should have, from the size of the entries read so far. */
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
 * Loads all records and the needed index keys, as of one commit, into an empty snapshot. Reads several ranges at a time, and lets other work run in between.
 * Rejects with the store's error or the signal's reason; discard the snapshot then.
 */
export async function loadTables(tables: RecordTables, options: LoadOptions): Promise<{ revision: Revision; records: number }> {
  const loading = new Loading(tables, options)
  try {
    return await loading.run()
  } catch (error) {
    loading.stop.abort(error)
    throw error
  }
}

class Loading {
  readonly #tables: RecordTables
  readonly #options: LoadOptions
  readonly #signal: AbortSignal
  readonly #task = new CooperativeTask()
  readonly #pageSize = new PageSize()
  readonly #startedMs = performance.now()
  #reportedMs = this.#startedMs
  #revision: Revision | undefined
  #records = 0
  readonly stop = new AbortController()

  constructor(tables: RecordTables, options: LoadOptions) {
    this.#tables = tables
    this.#options = options
    this.#signal = AbortSignal.any([options.signal, this.stop.signal])
  }

  async run(): Promise<{ revision: Revision; records: number }> {
    const { log, kinds } = this.#options
    for (const prefix of keptPrefixes) await this.#read({ prefix })
    for (const kind of kinds) await this.#readKind(`r/${kind}/`)
    await this.#tables.settle(this.#task)
    const revision = this.#revision
    if (revision === undefined) throw new TypeError('no revision is known: the snapshot has no kinds or keys to load')
    log.info('loaded', { ...this.#figures(), revision })
    return { revision, records: this.#records }
  }

  /** Reads one page first. It shows whether the kind has enough records to read the rest in parallel parts. */
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
        // The readers share one iterator, so each takes the next part that remains.
        for (const part of parts) await this.#read(part)
      }),
    )
  }

  /** Reads a range page by page. It requests the next page while it loads the current one. */
  async #read(part: Pick<RangeQuery, 'prefix' | 'after' | 'before'>): Promise<void> {
    let coming: Promise<RangeResult> | undefined = this.#page(part)
    while (coming !== undefined) {
      const page: RangeResult = await coming
      const after = page.entries.at(-1)?.key
      coming = page.more && after !== undefined ? this.#page({ ...part, after }) : undefined
      // The next round awaits this page. If this round fails first, a rejection of the page must not count as unhandled.
      coming?.catch(() => undefined)
      await this.#take(page)
    }
  }

  async #page(query: Omit<RangeQuery, 'limit' | 'revision'>): Promise<RangeResult> {
    const page = await this.#repeated(() => {
      const revision = this.#revision
      return this.#options.store.range({ ...query, limit: this.#pageSize.limit, ...(revision === undefined ? {} : { revision }) }, this.#signal)
    })
    this.#revision ??= page.revision
    this.#pageSize.observe(page)
    return page
  }

  /** Repeats a failed read, so that a short outage of the store does not discard what was loaded so far. */
  #repeated<T>(read: () => Promise<T>): Promise<T> {
    const waitMs = (error: unknown, failures: number): number | undefined => {
      if (!(error instanceof StoreError) || error.kind !== 'unavailable' || failures === pageAttempts) return undefined
      this.#options.log.warn('a page of records could not be read; trying again', { ...this.#figures(), error: errorText(error) })
      return backoffMs(pageBackoff, failures)
    }
    return retry(read, { waitMs, signal: this.#signal })
  }

  async #take({ entries }: RangeResult): Promise<void> {
    await this.#tables.stage(entries, this.#task)
    this.#records += entries.length
    this.#options.progress(this.#records)
    if (performance.now() - this.#reportedMs < progressMs) return
    this.#reportedMs = performance.now()
    this.#options.log.info('loading', this.#figures())
  }

  #figures(): { records: number; seconds: number; perSecond: number } {
    const seconds = (performance.now() - this.#startedMs) / 1000
    return { records: this.#records, seconds: Number(seconds.toFixed(1)), perSecond: Math.round(this.#records / Math.max(seconds, 0.001)) }
  }
}
