import type { AdvisorySource } from './advisory-source.ts'
import type { VulnerabilitySource } from './vulnerability-source.ts'
import type { LibrarySource } from './library-source.ts'
import type { LifecycleSource } from './lifecycle-source.ts'

/** What is read of each kind of catalogue. */
export interface CatalogueSources {
  readonly advisories: AdvisorySource
  readonly vulnerabilities: VulnerabilitySource
  readonly libraries: LibrarySource
  readonly lifecycle: LifecycleSource
}

/** A kind of catalogue. */
export type CatalogueKind = keyof CatalogueSources

/** A catalogue that is kept. */
export interface KeptCatalogue {
  readonly kind: CatalogueKind
  /** The digest of its manifest: its name. */
  readonly manifest: string
  /** The size of the file in bytes. */
  readonly size: number
  /** The time of the import, in milliseconds since 1970. */
  readonly publishedMs: number
  /** True for the one that is served. */
  readonly isCurrent: boolean
}

/** The catalogues that are kept. All methods reject with StoreError. */
export interface CatalogueControl {
  /** Resolves with those of each kind: the current one first, then the earlier ones, newest first. */
  kept(signal: AbortSignal): Promise<readonly KeptCatalogue[]>
  /** Makes a kept one the current one of its kind. Rejects with code 5 if it is not kept, and code 10 if the catalogues changed meanwhile. */
  use(manifest: string, signal: AbortSignal): Promise<KeptCatalogue>
  /** Deletes all but the current ones, and resolves with what was deleted. Rejects with code 10 if the catalogues changed meanwhile. */
  prune(signal: AbortSignal): Promise<readonly KeptCatalogue[]>
}

/** A feed and how it does. Times are in milliseconds since 1970. */
export interface FeedStatus {
  readonly name: string
  /** URL or folder, without secrets. */
  readonly source: string
  readonly state: 'waiting' | 'running' | 'done' | 'failed' | 'partial'
  /** The start of the last run. */
  readonly startedMs?: number
  /** The end of the last run that succeeded. */
  readonly succeededMs?: number
  readonly nextMs: number | undefined
  /** Why the last run failed, or the first thing that it refused. */
  readonly error?: string
  /** Number of consecutive failures. */
  readonly failures: number
  readonly documents: number
  readonly refused: number
}

/** The feeds that are configured. All methods reject with StoreError. */
export interface FeedControl {
  list(signal: AbortSignal): Promise<readonly FeedStatus[]>
  /** Asks the leader to run a feed. Rejects with code 5 if it is not configured. */
  request(name: string, signal: AbortSignal): Promise<FeedStatus>
}
