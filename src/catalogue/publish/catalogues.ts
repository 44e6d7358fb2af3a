import { copyFile, mkdir, readdir, rm, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { hexOf } from '../../base/digest.ts'
import { errorText } from '../../base/error-text.ts'
import { DomainError } from '../../base/errors.ts'
import type { Log } from '../../base/log.ts'
import { randomHex, type Clock, type Random } from '../../base/runtime.ts'
import { Alarm, backoffMs, type Backoff } from '../../base/timing.ts'
import type { RecordCache } from '../../cache/record-cache.ts'
import type { CatalogueControl, CatalogueKind, CatalogueSources, KeptCatalogue } from '../../cache/lists/catalogue-sources.ts'
import { errorDomainSuffix } from '../../base/schema/schema.ts'
import { notFound } from '../../engine/errors.ts'
import type { Upstream } from '../../registry/index.ts'
import type { Store } from '../../store/store.ts'
import { catalogueKindNames, catalogueKinds, type OpenSource } from '../catalogue-kinds.ts'
import { CatalogueError, formatOf } from '../files/catalogue-file.ts'
import { importInto, type ImportCounts, type ImportOptions, type ImportRunner, type OpenTarget } from '../import/run-import.ts'
import { deleteCatalogue, fetchCatalogue, pushCatalogue } from './artifact.ts'
import {
  beginOf,
  cataloguesKey,
  encodeCatalogues,
  keptIn,
  kindsIn,
  storedCatalogues,
  withCurrent,
  withoutEarlier,
  withPublished,
  type CatalogueRecord,
  type NextCatalogues,
  type PublishedCatalogue,
  type StoredCatalogues,
} from './catalogue-record.ts'

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

/** An import that is published. */
export interface CatalogueImport extends Omit<ImportOptions, 'nowMs'> {
  /** True to publish nothing. */
  readonly dryRun: boolean
  /** Runs the import; in this process if absent. */
  readonly runner?: ImportRunner
  /** True to begin a new catalogue if the upstream lost the current one: only an operator can know that it will not come back. Else the import fails. */
  readonly mayBegin: boolean
}

/** Why an import began a catalogue without the rows of the current one. */
export type BeginReason = 'lost' | 'otherRelease'

/** A catalogue whose rows are not in the new one, and why. */
export interface LeftCatalogue {
  readonly manifest: string
  readonly reason: BeginReason
}

/** What an import did, and what it made. */
export interface PublishedImport extends ImportCounts {
  /** The current catalogues that it could not add to, by kind. */
  readonly begun: ReadonlyMap<CatalogueKind, LeftCatalogue>
  /** The new current catalogues: empty if nothing changed, or for a dry run. */
  readonly published: ReadonlyMap<CatalogueKind, PublishedCatalogue>
}

const backoff: Backoff = { firstMs: 500, maxMs: 30_000 }
/** Number of times that a change of the record starts again because there was another one meanwhile. */
const maxRebases = 5
/** Age at which a file that a killed process left is removed, in milliseconds. */
const abandonedMs = 24 * 3_600_000
const temporarySuffix = '.part'
/** Free space that an import needs, as a multiple of the current catalogue: the copy, what it grows by, and the file to serve. */
const neededCopies = 3

/** A catalogue that this process serves. The record may name a newer one: this one stays until that one is open. */
interface ServedCatalogue<Kind extends CatalogueKind> {
  readonly catalogue: PublishedCatalogue
  readonly source: OpenSource<Kind>
}

/** The served catalogues by kind. */
type Served = { readonly [Kind in CatalogueKind]?: ServedCatalogue<Kind> }

/** The catalogues of this installation: serves the current one, and publishes new ones (docs/adr/0033). */
export class Catalogues implements CatalogueControl {
  readonly #options: CataloguesOptions
  #served: Served = {}

  constructor(options: CataloguesOptions) {
    this.#options = options
  }

  /** Returns what is read of a kind as of now: undefined before its first import. Throws code 14 until its first catalogue is here. */
  source<Kind extends CatalogueKind>(kind: Kind): CatalogueSources[Kind] | undefined {
    const served = this.#served[kind]
    if (served !== undefined) return served.source
    if (this.#named(kind) === undefined) return undefined
    throw new DomainError(14, `the ${kind} are being loaded; try again`, { reason: 'CATALOGUE_LOADING', details: { retryAfterMs: 1_000 } })
  }

  /**
   * Serves the catalogues that the record names, and each later one. A failure is logged and tried again; the old catalogues stay. Returns a function that ends
   * this and closes the files: call it when no request is served any more.
   */
  serve(): () => Promise<void> {
    const stopping = new AbortController()
    const following = this.#follow(stopping.signal)
    return async () => {
      stopping.abort(new Error('the catalogues are closed'))
      await following
      const served = this.#served
      this.#served = {}
      await closeAll(served)
    }
  }

  /**
   * Imports files into copies of the current catalogues, and publishes those that changed. If other ones of the same kinds were published meanwhile, starts again from
   * them. Rejects with StoreError, UpstreamError, CatalogueError, an error of the file system, or the signal's reason: then the old catalogues are served on.
   */
  async import({ runner = importInto, mayBegin, ...options }: CatalogueImport, signal: AbortSignal): Promise<PublishedImport> {
    for (let attempt = 1; attempt <= maxRebases; attempt++) {
      const before = await this.#stored(signal)
      const paths = new Map<CatalogueKind, string>()
      const begins = new Map<CatalogueKind, number>()
      const begun = new Map<CatalogueKind, LeftCatalogue>()
      const nowMs = this.#options.clock.now()
      const open: OpenTarget = async (kind) => {
        const path = await this.temporary()
        paths.set(kind, path)
        const current = before.record[kind]?.[0]
        const reason = current === undefined ? undefined : await this.#copyCurrent(current, { kind, path, mayBegin }, signal)
        if (current !== undefined && reason !== undefined) begun.set(kind, { manifest: current.manifest, reason })
        const isNew = current === undefined || reason !== undefined
        begins.set(kind, isNew ? nowMs : beginOf(before.record, kind))
        return { path, isNew }
      }
      try {
        const counts = await runner(open, { ...options, nowMs }, signal)
        const changed = [...counts.rows].filter(([, { added, changed, removed }]) => added + changed + removed > 0).map(([kind]) => kind)
        if (options.dryRun || changed.length === 0) return { ...counts, begun, published: new Map() }
        const pushed = await this.#pushAll(new Map([...paths].filter(([kind]) => changed.includes(kind))), nowMs, signal)
        const published = new Map([...pushed].map(([kind, catalogue]) => [kind, { ...catalogue, begunMs: begins.get(kind) }]))
        if (await this.#publish(before, { published, kinds: [...paths.keys()] }, signal)) return { ...counts, begun, published }
        // The import that came first may have made the same bytes.
        const kept = new Set(keptIn((await this.#stored(signal)).record).map(({ manifest }) => manifest))
        await this.#deleteAll(
          [...published.values()].filter(({ manifest }) => !kept.has(manifest)),
          signal,
        )
      } finally {
        for (const path of paths.values()) await rm(path, { force: true })
      }
    }
    throw changedMeanwhile()
  }

  async kept(signal: AbortSignal): Promise<readonly KeptCatalogue[]> {
    return keptIn((await this.#stored(signal)).record)
  }

  /** Returns for each kind when its current catalogue began without rows. What was imported before that is not in it. */
  async begins(kinds: readonly CatalogueKind[], signal: AbortSignal): Promise<Readonly<Record<string, number>>> {
    const { record } = await this.#stored(signal)
    return Object.fromEntries(kinds.map((kind) => [kind, beginOf(record, kind)]))
  }

  async use(manifest: string, signal: AbortSignal): Promise<KeptCatalogue> {
    const next = await this.#change((record) => {
      const changed = withCurrent(record, manifest)
      if (changed === undefined) throw notFound('Catalogue', manifest, { resourceType: `catalogue.${errorDomainSuffix}/Catalogue` })
      return changed
    }, signal)
    const used = keptIn(next.record).find((one) => one.manifest === manifest)
    if (used === undefined) throw new TypeError('the record does not name what it was changed to')
    return used
  }

  async prune(signal: AbortSignal): Promise<readonly KeptCatalogue[]> {
    let pruned: readonly KeptCatalogue[] = []
    await this.#change((record) => {
      pruned = keptIn(record).filter(({ isCurrent }) => !isCurrent)
      return withoutEarlier(record)
    }, signal)
    return pruned
  }

  /** Records new catalogues. Returns false if one of the kinds that the import read has another current catalogue than before. */
  async #publish(
    before: StoredCatalogues,
    { published, kinds }: { readonly published: ReadonlyMap<CatalogueKind, PublishedCatalogue>; readonly kinds: readonly CatalogueKind[] },
    signal: AbortSignal,
  ): Promise<boolean> {
    const isSame = ({ record }: StoredCatalogues): boolean => kinds.every((kind) => record[kind]?.[0]?.manifest === before.record[kind]?.[0]?.manifest)
    for (let stored = before; isSame(stored); stored = await this.#stored(signal))
      if (await this.#record(stored, withPublished(stored.record, published), signal)) return true
    return false
  }

  /** Changes the record. If another process changes it meanwhile, starts again. */
  async #change(nextOf: (record: CatalogueRecord) => NextCatalogues, signal: AbortSignal): Promise<NextCatalogues> {
    for (let attempt = 1; attempt <= maxRebases; attempt++) {
      const before = await this.#stored(signal)
      const next = nextOf(before.record)
      if (await this.#record(before, next, signal)) return next
    }
    throw changedMeanwhile()
  }

  async #stored(signal: AbortSignal): Promise<StoredCatalogues> {
    const { cache } = this.#options
    await cache.barrier(signal)
    return storedCatalogues(cache.tables)
  }

  /** Stores the files in the upstream. If one cannot be stored, those before it are deleted. */
  async #pushAll(paths: ReadonlyMap<CatalogueKind, string>, nowMs: number, signal: AbortSignal): Promise<ReadonlyMap<CatalogueKind, PublishedCatalogue>> {
    const { upstream } = this.#options
    const published = new Map<CatalogueKind, PublishedCatalogue>()
    try {
      for (const [kind, path] of paths) published.set(kind, await pushCatalogue(upstream, { path, mediaType: catalogueKinds[kind].mediaType, nowMs }, signal))
      return published
    } catch (error) {
      await this.#deleteAll([...published.values()], signal)
      throw error
    }
  }

  /** Stores the record if it did not change since `before`, and deletes what it no longer names. Returns false if it did. */
  async #record({ revision }: StoredCatalogues, { record, dropped }: NextCatalogues, signal: AbortSignal): Promise<boolean> {
    const { store, cache } = this.#options
    const outcome = await store.transact(
      {
        guards: [revision === undefined ? { kind: 'absent', key: cataloguesKey } : { kind: 'unchanged', key: cataloguesKey, revision }],
        writes: [{ kind: 'put', key: cataloguesKey, value: encodeCatalogues(record) }],
      },
      signal,
    )
    if (!outcome.committed) return false
    await cache.reached(outcome.revision, signal)
    await this.#deleteAll(dropped, signal)
    return true
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

  #named(kind: CatalogueKind): PublishedCatalogue | undefined {
    return storedCatalogues(this.#options.cache.tables).record[kind]?.[0]
  }

  /** Opens the current catalogues that are not open. The switch happens between two requests and for all kinds at once: queries of old ones run to their end. */
  async #catchUp(signal: AbortSignal): Promise<void> {
    const opened: Record<string, ServedCatalogue<CatalogueKind>> = {}
    try {
      for (const kind of catalogueKindNames) {
        const catalogue = this.#named(kind)
        if (catalogue === undefined || catalogue.manifest === this.#served[kind]?.catalogue.manifest) continue
        const path = this.#fileOf(kind, catalogue)
        if (!(await fetchCatalogue(this.#options.upstream, { catalogue, path, temporary: await this.temporary() }, signal)))
          throw new CatalogueError(`the upstream does not have the catalogue ${catalogue.manifest}: import again, or use an earlier one`)
        opened[kind] = await this.#open(kind, { catalogue, path })
      }
    } catch (error) {
      await closeAll(opened)
      throw error
    }
    const old = Object.fromEntries(Object.entries(this.#served).filter(([kind]) => kind in opened))
    this.#served = { ...this.#served, ...opened }
    await closeAll(old)
    for (const [kind, { catalogue }] of Object.entries(opened))
      this.#options.log.info('the catalogue is served', { kind, digest: catalogue.manifest, bytes: catalogue.size })
    if (Object.keys(opened).length > 0) await this.#removeOldFiles()
  }

  async #open<Kind extends CatalogueKind>(
    kind: Kind,
    { catalogue, path }: { readonly catalogue: PublishedCatalogue; readonly path: string },
  ): Promise<ServedCatalogue<Kind>> {
    return { catalogue, source: await catalogueKinds[kind].open(path, this.#served[kind]?.source) }
  }

  /** Copies a catalogue to `path`. Returns a reason if it cannot be copied, and throws CatalogueError if the import may not begin without it. */
  async #copyCurrent(
    current: PublishedCatalogue,
    target: { readonly kind: CatalogueKind; readonly path: string; readonly mayBegin: boolean },
    signal: AbortSignal,
  ): Promise<BeginReason | undefined> {
    const { directory, upstream, log } = this.#options
    const { bavail, bsize } = await statfs(directory)
    const needed = current.size * neededCopies
    if (bavail * bsize < needed) throw new Error(`an import needs ${needed} bytes of free space in ${directory}`)
    const source = this.#fileOf(target.kind, current)
    if (!(await fetchCatalogue(upstream, { catalogue: current, path: source, temporary: await this.temporary() }, signal))) {
      // The answer of an upstream that is restored, or that is the wrong one, looks the same.
      if (!target.mayBegin) throw new CatalogueError(lostCatalogue(target.kind, current))
      log.warn('the upstream lost the current catalogue: the import starts without its rows', { kind: target.kind, digest: current.manifest })
      return 'lost'
    }
    const [found, wanted] = [formatOf(source), String(catalogueKinds[target.kind].tables.version)]
    if (found !== wanted) {
      const about = { kind: target.kind, digest: current.manifest, format: found ?? 'unknown', wanted }
      log.warn('the current catalogue was made by another release: the import starts without its rows', about)
      return 'otherRelease'
    }
    await copyFile(source, target.path)
    return undefined
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
    const { record } = storedCatalogues(cache.tables)
    const kept = new Set(kindsIn(record).flatMap((kind) => (record[kind] ?? []).map((catalogue) => this.#fileOf(kind, catalogue))))
    for (const name of await readdir(directory)) {
      const path = join(directory, name)
      if (kept.has(path)) continue
      const modifiedMs = (await stat(path).catch(() => undefined))?.mtimeMs ?? 0
      if (!name.endsWith(temporarySuffix) || clock.now() - modifiedMs > abandonedMs) await rm(path, { force: true, recursive: true })
    }
  }

  #fileOf(kind: CatalogueKind, { blob }: PublishedCatalogue): string {
    return join(this.#options.directory, `${kind}-${hexOf(blob)}.sqlite`)
  }

  /** Resolves with a path for a file that no other process uses. Such files are removed a day after a process was killed. */
  async temporary(): Promise<string> {
    const { directory, random } = this.#options
    await mkdir(directory, { recursive: true, mode: 0o700 })
    return join(directory, `${randomHex(random, 16)}${temporarySuffix}`)
  }
}

async function closeAll(served: Served | Readonly<Record<string, ServedCatalogue<CatalogueKind>>>): Promise<void> {
  for (const { source } of Object.values(served)) await source.close()
}

function lostCatalogue(kind: CatalogueKind, { manifest }: PublishedCatalogue): string {
  return `the upstream does not have the current catalogue of ${kind} (${manifest}): restore it, or start a new one with "taproot import"`
}

function changedMeanwhile(): DomainError {
  return new DomainError(10, 'the catalogues changed meanwhile: start again', { reason: 'CATALOGUE_CHANGED' })
}
