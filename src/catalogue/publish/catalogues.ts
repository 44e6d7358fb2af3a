import { copyFile, rm, statfs } from 'node:fs/promises'
import { errorText } from '../../base/error-text.ts'
import { DomainError } from '../../base/errors.ts'
import type { Log } from '../../base/log.ts'
import { inSpan, type Tracing } from '../../base/tracing.ts'
import type { RecordCache } from '../../cache/record-cache.ts'
import type { CatalogueControl, CatalogueKind, CatalogueSources, KeptCatalogue } from '../../cache/lists/catalogue-sources.ts'
import { errorDomainSuffix } from '../../base/schema/schema.ts'
import { notFound } from '../../engine/errors.ts'
import type { Store } from '../../store/store.ts'
import { catalogueKinds } from '../catalogue-kinds.ts'
import { CatalogueError, formatOf } from '../../store/sqlite/catalogue-file.ts'
import { importInto, type ImportCounts, type ImportOptions, type ImportRunner, type OpenTarget } from '../import/run-import.ts'
import { deleteCatalogue, pushCatalogue } from './artifact.ts'
import { CatalogueFiles, type CatalogueFilesOptions } from './catalogue-files.ts'
import {
  beginOf,
  cataloguesKey,
  encodeCatalogues,
  keptIn,
  storedCatalogues,
  withCurrent,
  withoutEarlier,
  withPublished,
  type CatalogueRecord,
  type NextCatalogues,
  type PublishedCatalogue,
  type StoredCatalogues,
} from './catalogue-record.ts'
import { ServedCatalogues } from './served-catalogues.ts'

/** The dependencies of Catalogues. */
export interface CataloguesOptions extends CatalogueFilesOptions {
  readonly store: Store
  readonly cache: RecordCache
  readonly log: Log
  readonly tracing?: Tracing | undefined
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

/** Number of times that a change of the record starts again because there was another one meanwhile. */
const maxRebases = 5
/** Free space that an import needs, as a multiple of the current catalogue: the copy, what it grows by, and the file to serve. */
const neededCopies = 3

/** The catalogues of this installation: publishes new ones, and serves the current ones (docs/adr/0033). */
export class Catalogues implements CatalogueControl {
  readonly #options: CataloguesOptions
  readonly #files: CatalogueFiles
  readonly #served: ServedCatalogues

  constructor(options: CataloguesOptions) {
    this.#options = options
    this.#files = new CatalogueFiles(options)
    this.#served = new ServedCatalogues({ ...options, files: this.#files })
  }

  /** Returns what is read of a kind as of now, see ServedCatalogues. */
  source<Kind extends CatalogueKind>(kind: Kind): CatalogueSources[Kind] | undefined {
    return this.#served.source(kind)
  }

  /** Serves the catalogues that the record names, see ServedCatalogues. Returns a function that ends this. */
  serve(onTried?: () => void): () => Promise<void> {
    return this.#served.serve(onTried)
  }

  /**
   * Imports files into copies of the current catalogues, and publishes those that changed. If other ones of the same kinds were published meanwhile, starts again from
   * them. Rejects with StoreError, UpstreamError, CatalogueError, an error of the file system, or the signal's reason: then the old catalogues are served on.
   */
  import(options: CatalogueImport, signal: AbortSignal): Promise<PublishedImport> {
    return inSpan(this.#options.tracing, { kind: 'job', name: 'catalogue import' }, async (span) => {
      const published = await this.#import(options, signal)
      const { documents, refused } = published
      span.set({ 'taproot.import.documents': documents, 'taproot.import.refused': refused, 'taproot.import.kinds': [...published.published.keys()].join(' ') })
      return published
    })
  }

  async #import({ runner = importInto, mayBegin, ...options }: CatalogueImport, signal: AbortSignal): Promise<PublishedImport> {
    for (let attempt = 1; attempt <= maxRebases; attempt++) {
      const before = await this.#stored(signal)
      const paths = new Map<CatalogueKind, string>()
      const begins = new Map<CatalogueKind, number>()
      const begun = new Map<CatalogueKind, LeftCatalogue>()
      const nowMs = this.#options.clock.now()
      const open: OpenTarget = async (kind) => {
        const path = await this.#files.temporary()
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

  /** Resolves with a path for a file that no other process uses. Such files are removed a day after a process was killed. */
  temporary(): Promise<string> {
    return this.#files.temporary()
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

  /** Copies a catalogue to `path`. Returns a reason if it cannot be copied, and throws CatalogueError if the import may not begin without it. */
  async #copyCurrent(
    current: PublishedCatalogue,
    target: { readonly kind: CatalogueKind; readonly path: string; readonly mayBegin: boolean },
    signal: AbortSignal,
  ): Promise<BeginReason | undefined> {
    const { log } = this.#options
    const { directory } = this.#files
    const { bavail, bsize } = await statfs(directory)
    const needed = current.size * neededCopies
    if (bavail * bsize < needed) throw new Error(`an import needs ${needed} bytes of free space in ${directory}`)
    const source = await this.#files.fetched(target.kind, current, signal)
    if (source === undefined) {
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
}

function lostCatalogue(kind: CatalogueKind, { manifest }: PublishedCatalogue): string {
  return `the upstream does not have the current catalogue of ${kind} (${manifest}): restore it, or start a new one with "taproot import"`
}

function changedMeanwhile(): DomainError {
  return new DomainError(10, 'the catalogues changed meanwhile: start again', { reason: 'CATALOGUE_CHANGED' })
}
