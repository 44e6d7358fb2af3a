import { Vulnerability_SeverityLevel } from '../../gen/taproot/registry/v2/contents_pb.ts'
import type { ReportedVulnerability, ReportFormat } from '../../cache/lists/scanner-reports-source.ts'
import { ContentError } from '../package.ts'
import { isPlainText, packageOfUrl } from '../package-url.ts'
import { textIn, type SbomObject } from '../sbom/json.ts'

/** Limits of one report, whatever its author wrote. */
export const reportLimits = {
  /** The most bytes of a document. */
  documentBytes: 32 * 1024 * 1024,
  /** The most vulnerabilities. */
  vulnerabilities: 10_000,
  /** The most characters of all vulnerabilities. */
  characters: 4 * 1024 * 1024,
  /** The most locations of one vulnerability, and the most characters of each. */
  locations: 10,
  locationLength: 1_024,
} as const

/** A vulnerability as a reader finds it. Values are of any type: what is no usable text is left out. */
export interface ReportEntry {
  readonly id: unknown
  /** Severities, best first: words, or scores from 0 to 10. The first one that is known counts. */
  readonly severities: readonly unknown[]
  readonly purl?: unknown
  readonly name?: unknown
  readonly version?: unknown
  readonly fixedVersion?: unknown
  readonly locations?: readonly unknown[]
}

const { UNKNOWN, NEGLIGIBLE, LOW, MEDIUM, HIGH, CRITICAL } = Vulnerability_SeverityLevel
/** The words of scanners and distributions for severities. */
const levels: ReadonlyMap<string, Vulnerability_SeverityLevel> = new Map([
  ['critical', CRITICAL],
  ['high', HIGH],
  ['important', HIGH],
  ['medium', MEDIUM],
  ['moderate', MEDIUM],
  ['low', LOW],
  ['minor', LOW],
  ['negligible', NEGLIGIBLE],
  ['none', NEGLIGIBLE],
  ['unknown', UNKNOWN],
])
/** The least score of each level, of CVSS 3 and 4. */
const bands = [
  [9, CRITICAL],
  [7, HIGH],
  [4, MEDIUM],
  [0.1, LOW],
  [0, NEGLIGIBLE],
] as const

/** Returns the level of a word or a score; undefined for all else. */
function levelOf(severity: unknown): Vulnerability_SeverityLevel | undefined {
  const text = typeof severity === 'number' ? String(severity) : textIn(severity).trim().toLowerCase()
  const score = /^\d{1,2}(?:\.\d{1,3})?$/.test(text) ? Number(text) : -1
  if (score < 0 || score > 10) return levels.get(text)
  return bands.find(([least]) => score >= least)?.[1]
}

/** Returns the vulnerability; undefined if it has no id. */
function vulnerabilityOf(found: ReportEntry): ReportedVulnerability | undefined {
  const id = textIn(found.id)
  if (id === '' || id.length > 255) return undefined
  const named = packageOfUrl(found.purl)
  const paths = (found.locations ?? []).flatMap((path) => (path !== '' && isPlainText(path, reportLimits.locationLength) ? [path] : []))
  return {
    id,
    level: found.severities.map(levelOf).find((level) => level !== undefined) ?? UNKNOWN,
    type: named?.type ?? '',
    name: named?.name ?? textIn(found.name),
    version: textIn(found.version) || (named?.version ?? ''),
    purl: named?.purl ?? '',
    fixedVersion: textIn(found.fixedVersion),
    locations: [...new Set(paths)].slice(0, reportLimits.locations),
  }
}

/** The vulnerabilities of one report, in its order. It keeps the limits of `reportLimits`, whatever is added. */
export class ReportList {
  readonly #found: ReportedVulnerability[] = []
  #seen = 0
  #characters = 0

  /** Those that were added. What has no id is left out. */
  get vulnerabilities(): readonly ReportedVulnerability[] {
    return this.#found
  }

  /** Adds a vulnerability. Throws ContentError TOO_LARGE. */
  add(found: ReportEntry): void {
    this.#seen += 1
    if (this.#seen > reportLimits.vulnerabilities)
      throw new ContentError('TOO_LARGE', `the report has more than ${reportLimits.vulnerabilities} vulnerabilities`)
    const made = vulnerabilityOf(found)
    if (made === undefined) return
    const { id, type, name, version, purl, fixedVersion, locations } = made
    for (const text of [id, type, name, version, purl, fixedVersion, ...locations]) this.#characters += text.length
    if (this.#characters > reportLimits.characters)
      throw new ContentError('TOO_LARGE', `the texts of the report have more than ${reportLimits.characters} characters`)
    this.#found.push(made)
  }
}

/** What a document says of its scan. Values are of any type. */
type ScanFacts = Readonly<Record<'scanner' | 'scannerVersion' | 'created', unknown>>

/** A form of reports. */
export interface ReportForm {
  readonly format: ReportFormat
  /** True for documents of this form, in any version. */
  recognises(document: SbomObject): boolean
  /** Adds the vulnerabilities of a document to the list. Throws ContentError. */
  read(document: SbomObject, list: ReportList): ScanFacts
}
