import type { TaskTurn } from '../../base/task-thread.ts'
import type { Ecosystem } from '../../gen/taproot/libraries/v2/artifacts_pb.ts'
import type { Order, OrderTerm, SortKey } from './order.ts'

/** The artifacts that a list is about. All parts are ANDed. */
export interface ArtifactFilter {
  /** Each ecosystem once. */
  readonly ecosystems: readonly Ecosystem[]
  /** Text in the name, without regard to case. Empty for all. */
  readonly text: string
  /** Of Python artifacts, only those with a version for this CUDA version, e.g. `12.1`. Undefined for all. */
  readonly cuda: string | undefined
  /** True for only those with a remediated version. */
  readonly remediated: boolean
}

/** One page of a list of artifacts. */
export interface ArtifactQuery {
  readonly filter: ArtifactFilter
  readonly order: Order
  /** Only artifacts after this place. It need not be the place of an artifact. */
  readonly after: SortKey | undefined
  readonly skip: number
  readonly limit: number
}

/** An artifact with its place in any order. */
export interface FoundArtifact extends SortKey {
  /** The Artifact as protobuf bytes. */
  readonly body: Uint8Array
}

/** A page, and the number of artifacts on all pages. */
export interface ArtifactPage {
  readonly artifacts: readonly FoundArtifact[]
  readonly total: number
}

/** One field of an order of versions. All versions of an artifact have the same name. */
export interface VersionTerm {
  readonly field: OrderTerm['field'] | 'version'
  readonly descending: boolean
}

/** The values of a version by which lists are sorted. */
export interface VersionKey {
  readonly uid: string
  readonly version: string
  readonly createMs: number
  readonly updateMs: number
}

/** One page of the versions of an artifact. */
export interface VersionQuery {
  /** The uid of the artifact. */
  readonly artifact: string
  /** The order. It ends with `uid`. */
  readonly terms: readonly VersionTerm[]
  /** Only versions after this place. It need not be the place of a version. */
  readonly after: VersionKey | undefined
  readonly skip: number
  readonly limit: number
}

/** A version of an artifact. Times are in milliseconds since 1970; 0 if the source does not say them. */
export interface FoundVersion extends VersionKey {
  readonly description: string
  readonly sizeBytes: number
}

/** A page, and the number of versions on all pages. */
export interface VersionPage {
  /** The name of the artifact. */
  readonly name: string
  readonly versions: readonly FoundVersion[]
  readonly total: number
}

/** The artifacts of libraries. They do not lie in the store (docs/adr/0033). All answers come from one state. */
export interface LibrarySource {
  /** The number of artifacts in an ecosystem. */
  count(ecosystem: Ecosystem): number
  /** Queries of several organisations, the keys of `turn`, take turns. */
  artifacts(query: ArtifactQuery, turn: TaskTurn): Promise<ArtifactPage>
  /** Resolves with undefined if there is no such artifact. */
  versions(query: VersionQuery, turn: TaskTurn): Promise<VersionPage | undefined>
}
