import type { Digest } from '../base/digest.ts'
import type { DescribedProduct, ImageName } from '../cache/lists/contents-source.ts'
import type { SkippedFile } from './layers/packages-of-layers.ts'
import type { ContentProblem, Distribution, ImagePackage } from './package.ts'

/** Where the packages of an image were read, best first. */
export const packageSources = ['attestation', 'referrer', 'tag', 'layers'] as const
/** One of `packageSources`: an attestation in the index, a referrer, a tag of cosign, or the layers. */
export type PackageSource = (typeof packageSources)[number]

/** An index, and the images in it. */
export interface ImageIndex extends ImageName {
  /** The digests of the images. */
  readonly images: readonly Digest[]
}

/** What was found in an image, or why nothing was. */
export interface ImageContents extends ImageName {
  /** For example `linux/amd64` or `linux/arm/v7`; empty if it is unknown. */
  readonly platform: string
  readonly source: PackageSource
  /** The digest of the manifest that holds the SBOM; empty for layers. */
  readonly sourceDigest: Digest | ''
  /** Why there are no packages; undefined if the source was read. */
  readonly problem: ContentProblem | undefined
  /** What to tell people about the problem; empty without one. */
  readonly message: string
  readonly distribution: Distribution | undefined
  readonly described: DescribedProduct | undefined
  /** Each package URL once, sorted by it. */
  readonly packages: readonly ImagePackage[]
  /** Files that were not read: packages may be missing. At most 100. */
  readonly skipped: readonly SkippedFile[]
}
