/** An event in a range of versions: where it begins or ends. It has one member. */
export type OsvEvent = Readonly<Partial<Record<'introduced' | 'fixed' | 'last_affected' | 'limit', string>>>

/** How versions of a range are compared. */
type RangeType = 'SEMVER' | 'ECOSYSTEM' | 'GIT'

/** A range of versions, in the form of OSV. */
export interface OsvRange {
  readonly type: RangeType
  /** The repository of a range of commits. */
  readonly repo?: string
  readonly events: readonly OsvEvent[]
}

/** Versions that are affected: those of the ranges, and single ones. Without both, all of them. */
export interface OsvVersions {
  readonly ranges: readonly OsvRange[]
  readonly versions: readonly string[]
}

/** An image that a document names by its digest, or an index of images. */
export interface ArtifactImage {
  /** For example `sha256:…`. */
  readonly digest: string
  /** The host and path of its repository, in lower case. Absent if the document names none. */
  readonly repository?: string
}

/** What exports and comparisons with packages need of an advisory that the API does not show. Catalogues have it as JSON. */
export interface OsvFacts {
  /** The ecosystem of a package whose identifier does not name one. */
  readonly ecosystem?: string
  /** What an OSV document said about the package. */
  readonly affected?: readonly OsvVersions[]
  /** The artifact, if it is an image that is named by its digest. */
  readonly image?: ArtifactImage
  /** The package URL of the artifact, if the advisory is about a part of it and it has one. */
  readonly artifact?: string
}
