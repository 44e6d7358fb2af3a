import { DomainError } from '../../base/errors.ts'
import type { Log } from '../../base/log.ts'
import type { Clock } from '../../base/runtime.ts'
import type { CatalogueKind, CatalogueSources } from '../../cache/lists/catalogue-sources.ts'
import { followKey } from '../../cache/follow-key.ts'
import type { RecordCache } from '../../cache/record-cache.ts'
import { catalogueKindNames, catalogueKinds, type OpenSource } from '../catalogue-kinds.ts'
import { CatalogueError } from '../../store/sqlite/catalogue-file.ts'
import type { CatalogueFiles } from './catalogue-files.ts'
import { cataloguesKey, storedCatalogues, type PublishedCatalogue } from './catalogue-record.ts'

/** The dependencies of ServedCatalogues. */
export interface ServedCataloguesOptions {
  readonly cache: RecordCache
  readonly files: CatalogueFiles
  readonly clock: Clock
  readonly log: Log
}

/** A catalogue that this process serves. The record may name a newer one: this one stays until that one is open. */
interface ServedCatalogue<Kind extends CatalogueKind> {
  readonly catalogue: PublishedCatalogue
  readonly source: OpenSource<Kind>
}

/** The served catalogues by kind. */
type Served = { readonly [Kind in CatalogueKind]?: ServedCatalogue<Kind> }

/** The catalogues that this process serves: those that the record names, once they are here (docs/adr/0033). */
export class ServedCatalogues {
  readonly #options: ServedCataloguesOptions
  #served: Served = {}

  constructor(options: ServedCataloguesOptions) {
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
   * this and closes the files: call it when no request is served any more. `onTried` is called after each attempt to load them.
   */
  serve(onTried?: () => void): () => Promise<void> {
    const stopping = new AbortController()
    const follower = {
      key: cataloguesKey,
      catchUp: (signal: AbortSignal) => this.#catchUp(signal),
      failure: 'the catalogue cannot be loaded and is tried again',
      onTried,
    }
    const following = followKey(this.#options, follower, stopping.signal)
    return async () => {
      stopping.abort(new Error('the catalogues are closed'))
      await following
      const served = this.#served
      this.#served = {}
      await closeAll(served)
    }
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
        const path = await this.#options.files.fetched(kind, catalogue, signal)
        if (path === undefined) throw new CatalogueError(`the upstream does not have the catalogue ${catalogue.manifest}: import again, or use an earlier one`)
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
    if (Object.keys(opened).length > 0) await this.#options.files.removeOld(storedCatalogues(this.#options.cache.tables).record)
  }

  async #open<Kind extends CatalogueKind>(
    kind: Kind,
    { catalogue, path }: { readonly catalogue: PublishedCatalogue; readonly path: string },
  ): Promise<ServedCatalogue<Kind>> {
    return { catalogue, source: await catalogueKinds[kind].open(path, this.#served[kind]?.source) }
  }
}

async function closeAll(served: Served | Readonly<Record<string, ServedCatalogue<CatalogueKind>>>): Promise<void> {
  for (const { source } of Object.values(served)) await source.close()
}
