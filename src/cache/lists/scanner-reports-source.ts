import type { Digest } from '../../base/digest.ts'
import type { Vulnerability_SeverityLevel } from '../../gen/taproot/registry/v2/contents_pb.ts'
import type { ImageName } from './contents-source.ts'

/** The forms of reports that are read. */
export type ReportFormat = 'SARIF' | 'GRYPE' | 'TRIVY' | 'VULNERABILITY_PREDICATE' | 'HARBOR_REPORT'

/** A vulnerability as a report has it. Texts are empty if the report does not say them. */
export interface ReportedVulnerability {
  readonly id: string
  readonly level: Vulnerability_SeverityLevel
  /** The type in the package URL, for example `apk`. */
  readonly type: string
  readonly name: string
  readonly version: string
  /** The canonical package URL. */
  readonly purl: string
  readonly fixedVersion: string
  /** Paths in the image, at most 10. */
  readonly locations: readonly string[]
}

/** What a report says besides its vulnerabilities. */
export interface ReportFacts {
  readonly format: ReportFormat
  /** The scanner; empty if the report names none. */
  readonly scanner: string
  readonly scannerVersion: string
  /** The end of the scan, in milliseconds since 1970; undefined if the report does not say it. */
  readonly createdMs: number | undefined
  /** The number of its vulnerabilities by severity. Severities without any are left out. */
  readonly severityCounts: readonly (readonly [level: Vulnerability_SeverityLevel, count: number])[]
}

/** A report that was read. */
export interface ReadReport extends ReportFacts {
  /** Sorted by id and name. */
  readonly vulnerabilities: readonly ReportedVulnerability[]
}

/** A report that is not read yet, was read, or cannot be read. */
export type ReportOutcome =
  { readonly state: 'pending' } | { readonly state: 'read'; readonly report: ReadReport } | { readonly state: 'failed' | 'tooLarge'; readonly message: string }

/** A report of a scanner in a repo. */
export interface ScannerReport {
  /** The digest of the manifest that it is in. */
  readonly digest: Digest
  /** The digest of the document; empty until the manifest was read. */
  readonly document: Digest | ''
  /** The digest of the image or index that it is about. */
  readonly subject: Digest
  /** The time of its push, in milliseconds since 1970. */
  readonly pushedMs: number
  readonly outcome: ReportOutcome
}

/** The reports of scanners that were pushed to repos. */
export interface ScannerReportsSource {
  /**
   * Resolves with the newest reports about an image, or about an index and its images, newest first. Waits some seconds for those that are not read yet. Rejects
   * with code 5 if the repo does not hold the digest, with StoreError, or the signal's reason.
   */
  of(image: ImageName, signal: AbortSignal): Promise<readonly ScannerReport[]>
  /** Ends what is being read. */
  close(): Promise<void>
}
