import { copyFile, mkdir, readdir, rm, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { hexOf } from '../../base/digest.ts'
import { errorText } from '../../base/error-text.ts'
import { DomainError } from '../../base/errors.ts'
import type { Log } from '../../base/log.ts'
import { randomHex, type Clock, type Random } from '../../base/runtime.ts'
import { Alarm, backoffMs, type Backoff } from '../../base/timing.ts'
import type { RecordCache } from '../../cache/record-cache.ts'
import type { AdvisorySource } from '../../cache/lists/advisory-source.ts'
import type { Upstream } from '../../registry/index.ts'
import type { Store } from '../../store/store.ts'
import { ReaderThread } from '../advisories/reader-thread.ts'
import { importInto, type ImportCounts, type ImportOptions } from '../import/run-import.ts'
import { deleteCatalogue, fetchCatalogue, pushCatalogue } from './artifact.ts'
import { cataloguesKey, encodeCatalogues, storedCatalogues, withPublished, type PublishedCatalogue, type StoredCatalogues } from './catalogue-record.ts'

/** The dependencies of Catalogues. */
export interface CataloguesOptions {
  readonly store: Store
  readonly cache: RecordCache
  readonly upstream: Upstream
  /** The folder for files. Several processes may share it. */
  readonly directory: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
}

/** What an import did, and what it made. */
export interface PublishedImport extends ImportCounts {
  /** The new current catalogue; undefined if nothing changed, or for a dry run. */
  readonly published: PublishedCatalogue | undefined
}

const backoff: Backoff = { firstMs: 500, maxMs: 30_000 }
/** Number of times that an import starts again because another one was published meanwhile. */
const maxRebases = 5
/** Age at which a file that a killed process left is removed, in milliseconds. */
const abandonedMs = 24 * 3_600_000
const temporarySuffix = '.part'
/** Free space that an import needs, as a multiple of the current catalogue: the copy, what it grows by, and the file to serve. */
const neededCopies = 3

/** The catalogue that this process serves. The record may name a newer one: this one stays until that one is open. */
interface ServedCatalogue {
  readonly catalogue: PublishedCatalogue
  readonly reader: ReaderThread
}

/** The catalogues of this installation: serves the current one, and publishes new ones (docs/adr/0033). */
export class Catalogues {
  readonly #options: CataloguesOptions
  #served: ServedCatalogue | undefined

  constructor(options: CataloguesOptions) {
    this.#options = options
  }

  /** Returns the sources of advisories as of now: none before the first import. Throws code 14 until the first catalogue is here. */
  advisories(): readonly AdvisorySource[] {
    if (this.#served !== undefined) return [this.#served.reader]
    if (this.#named() === undefined) return []
    throw new DomainError(14, 'the advisories are being loaded; try again', { reason: 'CATALOGUE_LOADING', details: { retryAfterMs: 1_000 } })
  }

  /**
   * Serves the catalogue that the record names, and each later one. A failure is logged and tried again; the old catalogue stays. Returns a function that ends
   * this and closes the file: call it when no request is served any more.
   */
  serve(): () => Promise<void> {
    const stopping = new AbortController()
    const following = this.#follow(stopping.signal)
    return async () => {
      stopping.abort(new Error('the catalogues are closed'))
      await following
      await this.#served?.reader.close()
      this.#served = undefined
    }
  }

  /**
   * Imports files into a copy of the current catalogue, and publishes it if that changed anything. If another import was published meanwhile, starts again from
   * that one. Rejects with StoreError, UpstreamError, an error of the file system, or the signal's reason: then the old catalogue is served on.
   */
  async import(options: Omit<ImportOptions, 'nowMs'> & { readonly dryRun: boolean }, signal: AbortSignal): Promise<PublishedImport> {
    for (let attempt = 1; attempt <= maxRebases; attempt++) {
      await this.#options.cache.barrier(signal)
      const before = storedCatalogues(this.#options.cache.tables)
      const path = await this.#temporary()
      try {
        const isNew = await this.#copyCurrent(before, path, signal)
        const nowMs = this.#options.clock.now()
        const counts = await importInto({ path, isNew }, { ...options, nowMs }, signal)
        if (options.dryRun || counts.added + counts.changed + counts.removed === 0) return { ...counts, published: undefined }
        const published = await pushCatalogue(this.#options.upstream, { path, nowMs }, signal)
        if (await this.#publish(before, published, signal)) return { ...counts, published }
      } finally {
        await rm(path, { force: true })
      }
    }
    throw new DomainError(10, 'other imports were published meanwhile: start again', { reason: 'CATALOGUE_CHANGED' })
  }

  /** Makes a catalogue the current one if the record did not change. Returns false if it did, and removes the catalogue. */
  async #publish({ record, revision }: StoredCatalogues, published: PublishedCatalogue, signal: AbortSignal): Promise<boolean> {
    const next = withPublished(record, published)
    const outcome = await this.#options.store.transact(
      {
        guards: [revision === undefined ? { kind: 'absent', key: cataloguesKey } : { kind: 'unchanged', key: cataloguesKey, revision }],
        writes: [{ kind: 'put', key: cataloguesKey, value: encodeCatalogues(next.record) }],
      },
      signal,
    )
    if (outcome.committed) await this.#options.cache.reached(outcome.revision, signal)
    await this.#deleteAll(outcome.committed ? next.dropped : [published], signal)
    return outcome.committed
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { cache, clock, log } = this.#options
    const changed = new Alarm()
    const forget = [cache.onKey((key) => (key === cataloguesKey ? changed.ring() : undefined)), cache.onReset(changed.ring)]
    for (let failures = 0; !signal.aborted;) {
      changed.arm()
      try {
        await this.#catchUp(signal)
        failures = 0
        await changed.until(Infinity, { clock, signal })
      } catch (error) {
        if (signal.aborted) break
        failures += 1
        const afterMs = backoffMs(backoff, failures)
        log.error('the catalogue cannot be loaded and is tried again', { afterMs, error: errorText(error) })
        await changed.within(afterMs, signal)
      }
    }
    for (const end of forget) end()
  }

  #named(): PublishedCatalogue | undefined {
    return storedCatalogues(this.#options.cache.tables).record.advisories[0]
  }

  /** Opens the current catalogue if another one is open. The switch happens between two requests: queries of the old one run to their end. */
  async #catchUp(signal: AbortSignal): Promise<void> {
    const named = this.#named()
    if (named === undefined || named.manifest === this.#served?.catalogue.manifest) return
    const path = this.#fileOf(named)
    await fetchCatalogue(this.#options.upstream, { catalogue: named, path, temporary: await this.#temporary() }, signal)
    const reader = await ReaderThread.open(path)
    const old = this.#served
    this.#served = { catalogue: named, reader }
    await old?.reader.close()
    this.#options.log.info('the catalogue is served', { digest: named.manifest, bytes: named.size })
    await this.#removeOldFiles()
  }

  /** Copies the current catalogue to `path`. Returns true if there is none. */
  async #copyCurrent({ record }: StoredCatalogues, path: string, signal: AbortSignal): Promise<boolean> {
    const { directory, upstream } = this.#options
    const [current] = record.advisories
    if (current === undefined) return true
    const { bavail, bsize } = await statfs(directory)
    const needed = current.size * neededCopies
    if (bavail * bsize < needed) throw new Error(`an import needs ${needed} bytes of free space in ${directory}`)
    const source = this.#fileOf(current)
    await fetchCatalogue(upstream, { catalogue: current, path: source, temporary: await this.#temporary() }, signal)
    await copyFile(source, path)
    return false
  }

  /** Deletes catalogues that no record names. What cannot be deleted stays: it does no harm. */
  async #deleteAll(catalogues: readonly PublishedCatalogue[], signal: AbortSignal): Promise<void> {
    for (const catalogue of catalogues) {
      await deleteCatalogue(this.#options.upstream, catalogue, signal).catch((error: unknown) =>
        this.#options.log.warn('an old catalogue stays in the upstream', { digest: catalogue.manifest, error: errorText(error) }),
      )
    }
  }

  async #removeOldFiles(): Promise<void> {
    const { cache, directory, clock } = this.#options
    const kept = new Set(storedCatalogues(cache.tables).record.advisories.map((catalogue) => this.#fileOf(catalogue)))
    for (const name of await readdir(directory)) {
      const path = join(directory, name)
      if (kept.has(path)) continue
      const modifiedMs = (await stat(path).catch(() => undefined))?.mtimeMs ?? 0
      if (!name.endsWith(temporarySuffix) || clock.now() - modifiedMs > abandonedMs) await rm(path, { force: true })
    }
  }

  #fileOf({ blob }: PublishedCatalogue): string {
    return join(this.#options.directory, `advisories-${hexOf(blob)}.sqlite`)
  }

  async #temporary(): Promise<string> {
    const { directory, random } = this.#options
    await mkdir(directory, { recursive: true, mode: 0o700 })
    return join(directory, `${randomHex(random, 16)}${temporarySuffix}`)
  }
}
