import type { Digest } from '../../base/digest.ts'
import type { Vulnerability_SeverityLevel } from '../../gen/taproot/registry/v2/contents_pb.ts'
import type { Severity } from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import type { TaskTurn } from '../../base/task-thread.ts'
import type { Uid } from '../../base/uid.ts'
import type { PackageAdvisory } from './advisory-source.ts'
import type { UidFilter, Visibility } from './places.ts'

/** An image of one platform in a repo. */
export interface ImageName {
  readonly repo: Uid
  /** The SHA-256 digest of its manifest. */
  readonly digest: Digest
}

/** The product that an SBOM says it is about: the image, or what it was made of. All texts are empty if it says nothing. */
export interface DescribedProduct {
  readonly name: string
  /** Empty if there is none. For an image, this is often its digest. */
  readonly version: string
  /** The canonical package URL; empty if there is none. */
  readonly purl: string
}

/** How the contents of an image became known, or why they did not. */
export interface ContentsFacts {
  /** For example `linux/amd64`; empty if it is unknown. */
  readonly platform: string
  readonly source: 'attestation' | 'referrer' | 'tag' | 'layers'
  /** The digest of the manifest that holds the SBOM; empty for layers. */
  readonly sourceDigest: string
  /** Why there are no packages; empty if the source was read. */
  readonly problem: '' | 'UNREADABLE' | 'TOO_LARGE' | 'UNSUPPORTED_DATABASE' | 'UNSUPPORTED_FORM' | 'WRONG_DIGEST'
  /** What to tell people about the problem; empty without one. */
  readonly message: string
  /** The distribution: `ID` and `VERSION_ID` of os-release; empty if it is unknown. */
  readonly distribution: { readonly id: string; readonly version: string }
  /** What the SBOM is about. Absent without an SBOM, and for images that readers before version 2 have read. */
  readonly described?: DescribedProduct
  /** Files that were not read: packages may be missing. */
  readonly skipped: readonly { readonly path: string; readonly message: string }[]
  /** The time of reading, in milliseconds since 1970. */
  readonly readMs: number
  /** The version of what read it. */
  readonly readers: number
}

/** An image whose contents were read. */
export interface ReadImage extends ImageName, ContentsFacts {
  /** The number of its packages. */
  readonly packages: number
  /** The SHA-256 digests of the indexes that it is in, at most 1,000, as far as they were read. */
  readonly indexes: readonly Digest[]
}

/** An image, as statements about its packages name it (docs/adr/0045). */
export interface StatedImage {
  /** Its own, and those of the indexes that it is in. */
  readonly digests: readonly string[]
  /** The host and path of its repository, in lower case. */
  readonly address: string
  /** For example `amd64`; empty if it is unknown. */
  readonly architecture: string
}

/** A vulnerability in an image, by its id and its other names. */
export interface ImageVulnerability {
  readonly id: string
  readonly aliases: readonly string[]
}

/** A tag of a repo on some days. */
export interface TagDays {
  readonly repo: Uid
  readonly name: string
  /** The first day, whole days since 1970. */
  readonly date: number
  readonly days: number
}

/** Returns the vulnerabilities that were recorded for an image at the end of a day, whole days since 1970. Undefined if the record is of another image, or has no ids. */
export type RecordedImages = (digest: Digest, date: number) => readonly ImageVulnerability[] | undefined

/** A vulnerability in an image, as far as a decision about a pull needs it. */
export interface DecisiveVulnerability {
  /** Its id, and then its other names. */
  readonly names: readonly string[]
  /** The severity in the package where it is worst; `UNKNOWN` if there is no score for one of them. */
  readonly level: Vulnerability_SeverityLevel
  /** False while it is only under investigation. */
  readonly isCertain: boolean
}

/** What is known of an image for a decision about a pull. */
export interface ImageFacts {
  readonly digest: Digest
  /** Undefined while the image was not read. */
  readonly hasSbom: boolean | undefined
  readonly vulnerabilities: readonly DecisiveVulnerability[]
  /** Why there may be more vulnerabilities, for people; empty if all are known. */
  readonly gap: string
}

/** A package in an image. */
export interface ListedPackage {
  /** The digest of the image. */
  readonly digest: Digest
  readonly purl: string
  readonly type: string
  readonly name: string
  readonly version: string
  readonly origin: string
  readonly licenses: readonly string[]
  readonly locations: readonly string[]
}

/** Which packages of which images. The order is that of name, package URL and digest of the image. */
export interface PackageQuery {
  readonly images: readonly ImageName[]
  /** Exact values; empty for all. */
  readonly names: readonly string[]
  readonly types: readonly string[]
  /** A part of the name or the package URL, without regard to case; empty for all. */
  readonly text: string
  /** The package after which the page begins. */
  readonly after: Pick<ListedPackage, 'name' | 'purl' | 'digest'> | undefined
  readonly skip: number
  readonly limit: number
}

/** A page of packages, and how many the query has. */
export interface PackagePage {
  readonly packages: readonly ListedPackage[]
  readonly total: number
}

/** Which images contain a package. The order is that of repo, digest and package URL. */
export interface PackageImageQuery {
  /** A valid package URL. */
  readonly purl: string
  /** The repos whose images are asked for. */
  readonly uidp: UidFilter
  readonly visibility: Visibility
  /** The image after which the page begins. */
  readonly after: Pick<PackageImage, 'repo' | 'digest' | 'purl'> | undefined
  readonly skip: number
  readonly limit: number
}

/** An image that contains a package. */
export interface PackageImage extends ImageName {
  readonly platform: string
  readonly purl: string
  readonly version: string
  /** The digests of the indexes that it is in. */
  readonly indexes: readonly Digest[]
}

/** A page of images, and how many the query has. Some of them may be gone from their repos. */
export interface PackageImagePage {
  readonly images: readonly PackageImage[]
  readonly total: number
}

/** The states of a vulnerability in a package, the worst first. */
export const vulnerabilityStates = ['affected', 'under_investigation', 'fixed', 'not_affected'] as const
/** One of `vulnerabilityStates`. */
export type VulnerabilityState = (typeof vulnerabilityStates)[number]

/** Packages to compare with advisories. */
export interface MatchQuestion {
  readonly packages: readonly ListedPackage[]
  readonly distribution: ContentsFacts['distribution']
  /** Those of packages with `namesOf` the packages. Others are ignored. */
  readonly advisories: readonly PackageAdvisory[]
  /** Only vulnerabilities in these states. */
  readonly states: readonly VulnerabilityState[]
  /** The image that has the packages: statements about it count too. Undefined for what holds in all images. */
  readonly image?: StatedImage | undefined
}

/** What advisories say about packages. */
export interface MatchAnswer {
  /** In the order of the packages, and then of ids. */
  readonly vulnerabilities: readonly PackageVulnerability[]
  /** For each package the digests of images that statements about it name, each once. */
  readonly images: readonly (readonly string[])[]
}

/** A vulnerability in a package of an image. */
export interface PackageVulnerability extends ImageVulnerability {
  readonly found: ListedPackage
  readonly state: VulnerabilityState
  /** Each once, those of the deciding advisory first. */
  readonly severities: readonly Pick<Severity, 'type' | 'score'>[]
  /** The version that has the fix; empty if none is known. */
  readonly fixedVersion: string
  /** The rule that decides, for people. */
  readonly rule: string
  /** The uid of the advisory that decides. */
  readonly advisory: string
  readonly author: string
  /** What the advisory says for people; empty if nothing. */
  readonly note: string
}

/** What is known about the contents of images. They do not lie in the store (docs/adr/0034). Queries of several organisations, the keys of `turn`, take turns. */
export interface ContentsSource {
  /** Another value after each change of what is known. */
  readonly edition: unknown
  /** Returns a text that changes when other images of a repo are known, or when one was read again. */
  editionOf(repo: Uid): string
  /** Resolves with each image that was read. Rejects with code 14 while the process still loads them. */
  imagesAmong(images: readonly ImageName[], turn: TaskTurn): Promise<readonly ReadImage[]>
  /** Resolves with a page of the packages of images. Those that were not read have none. Rejects with code 14 like `imagesAmong`. */
  packages(query: PackageQuery, turn: TaskTurn): Promise<PackagePage>
  /** Resolves with a page of the images that contain a package. Rejects with code 14 like `imagesAmong`. */
  packageImages(query: PackageImageQuery, turn: TaskTurn): Promise<PackageImagePage>
  /** Resolves with the repos that have an image or index with a digest, among what was read. Rejects with code 14 like `imagesAmong`. */
  reposWith(digest: Digest, turn: TaskTurn): Promise<readonly Uid[]>
  /** Resolves with the names by which advisories of packages are found. */
  namesOf(question: Pick<MatchQuestion, 'packages' | 'distribution'>, turn: TaskTurn): Promise<readonly string[]>
  /** Resolves with the vulnerabilities in packages. */
  match(question: MatchQuestion, turn: TaskTurn): Promise<MatchAnswer>
}
