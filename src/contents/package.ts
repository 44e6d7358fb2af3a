/** A package that an image contains, as an SBOM or a layer names it. */
export interface ImagePackage {
  /** The canonical package URL, for example `pkg:apk/wolfi/openssl@3.3.1-r0?arch=x86_64`. */
  readonly purl: string
  /** The type in the package URL, for example `apk`, `deb`, `npm`. */
  readonly type: string
  /** The name with its namespace, as its ecosystem writes it, for example `@scope/name` or `org.apache:commons`. */
  readonly name: string
  /** As its ecosystem writes it, for example with the epoch of an RPM; empty if it is unknown. */
  readonly version: string
  /** The package that it was built from, of distributions; empty if it is the same or unknown. */
  readonly origin: string
  /** The licence expressions or names, as the source has them. */
  readonly licenses: readonly string[]
  /** Paths in the image, at most 10; empty if the source names none. */
  readonly locations: readonly string[]
}

/** What is known about the distribution of an image (os-release). */
export interface Distribution {
  /** `ID`, for example `wolfi`, `debian`. */
  readonly id: string
  /** `VERSION_ID`; empty if there is none. */
  readonly version: string
}

/** Limits of one image, whatever its author put into it. */
export const contentLimits = {
  /** The most packages. */
  packages: 100_000,
  /** The most bytes of an SBOM. */
  documentBytes: 64 * 1024 * 1024,
  /** The most bytes of all layers, uncompressed. */
  layerBytes: 16 * 1024 * 1024 * 1024,
  /** The most files and folders in all layers. */
  files: 2_000_000,
  /** The most bytes of one file that is parsed, for example a package database. */
  parsedFileBytes: 64 * 1024 * 1024,
} as const

/** Why the contents of an image are not known, or not whole. */
export const contentProblems = ['UNREADABLE', 'TOO_LARGE', 'UNSUPPORTED_DATABASE', 'UNSUPPORTED_FORM', 'WRONG_DIGEST'] as const
/** One of `contentProblems`. */
export type ContentProblem = (typeof contentProblems)[number]

/**
 * When an image is read again whose contents could not be read, the strongest last:
 * - `never`: its bytes decide. Only a push changes them.
 * - `few`: something else may have decided, for example a slow upstream. A hostile image can cause it too, so there are few tries.
 * - `daily`: the upstream did not have the bytes. It may have them later.
 */
export const contentRetries = ['never', 'few', 'daily'] as const
/** One of `contentRetries`. */
export type ContentRetry = (typeof contentRetries)[number]

/** Returns the strongest of some retries; `never` without any. */
export function strongestRetry(retries: readonly ContentRetry[]): ContentRetry {
  return contentRetries.findLast((retry) => retries.includes(retry)) ?? 'never'
}

/** True for an error of the system, for example of a full disk. It says nothing about an image. */
export function isSystemError(error: unknown): error is Error {
  return error instanceof Error && 'syscall' in error
}

interface ContentErrorOptions extends ErrorOptions {
  readonly retry?: ContentRetry
  readonly isRecognised?: boolean
}

/** An image whose contents cannot be read. The message is for people. */
export class ContentError extends Error {
  readonly problem: ContentProblem
  readonly retry: ContentRetry
  /** True if the document says that it is what is looked for, although it cannot be read. */
  readonly isRecognised: boolean
  constructor(problem: ContentProblem, message: string, { retry = 'never', isRecognised = false, ...options }: ContentErrorOptions = {}) {
    super(message, options)
    this.isRecognised = isRecognised
    this.problem = problem
    this.retry = retry
  }
}
