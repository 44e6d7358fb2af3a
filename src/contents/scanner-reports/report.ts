import type { Digest } from '../../base/digest.ts'
import { compareTexts } from '../../base/versions/version-order.ts'
import type { ReadReport, ReportedVulnerability } from '../../cache/lists/scanner-reports-source.ts'
import { ContentError } from '../package.ts'
import { isObject, objectOfBytes, objectsAt, objectsIn, textIn, valuesIn, type SbomObject } from '../sbom/json.ts'
import { unwrap } from '../sbom/statements.ts'
import { ReportList, type ReportForm } from './report-list.ts'
import { sarif } from './sarif.ts'

/** The predicates of statements that are reports. */
export const reportPredicates = /^(?:https:\/\/in-toto\.io\/attestation\/vulns(?:\/v0\.[12])?|(?:https:\/\/)?cosign\.sigstore\.dev\/attestation\/vuln\/v1)$/

function membersAt(object: SbomObject, key: string): SbomObject {
  const value = object[key]
  return isObject(value) ? value : {}
}

/** The JSON of grype (https://github.com/anchore/grype). What its user ignores is in another list. */
const grype: ReportForm = {
  format: 'GRYPE',
  recognises: ({ matches, descriptor }) => matches !== undefined && isObject(descriptor),
  read(document, list) {
    for (const match of objectsAt(document, 'matches')) {
      const [vulnerability, artifact] = [membersAt(match, 'vulnerability'), membersAt(match, 'artifact')]
      list.add({
        id: vulnerability['id'],
        severities: [vulnerability['severity']],
        purl: artifact['purl'],
        name: artifact['name'],
        version: artifact['version'],
        fixedVersion: valuesIn(membersAt(vulnerability, 'fix')['versions'])[0],
        locations: objectsIn(artifact['locations']).map(({ path }) => path),
      })
    }
    const { name, version, timestamp } = membersAt(document, 'descriptor')
    return { scanner: name, scannerVersion: version, created: timestamp }
  },
}

/** The JSON of Trivy (https://github.com/aquasecurity/trivy), version 2. */
const trivy: ReportForm = {
  format: 'TRIVY',
  recognises: ({ SchemaVersion }) => SchemaVersion !== undefined,
  read(document, list) {
    if (document['SchemaVersion'] !== 2) throw new ContentError('UNSUPPORTED_FORM', 'this version of the JSON of Trivy is not read: 2 is')
    for (const result of objectsIn(document['Results'])) {
      for (const one of objectsIn(result['Vulnerabilities'])) {
        list.add({
          id: one['VulnerabilityID'],
          severities: [one['Severity']],
          purl: membersAt(one, 'PkgIdentifier')['PURL'],
          name: one['PkgName'],
          version: one['InstalledVersion'],
          fixedVersion: one['FixedVersion'],
          // A package without a path of its own is from the file that the result is about. For a distribution, that is the name of the image.
          locations: [one['PkgPath'] ?? (result['Class'] === 'lang-pkgs' ? result['Target'] : undefined)],
        })
      }
    }
    return { scanner: 'trivy', scannerVersion: membersAt(document, 'Trivy')['Version'], created: document['CreatedAt'] }
  },
}

/** The report of scanners for Harbor, 1.0 and 1.1 (https://github.com/goharbor/pluggable-scanner-spec). */
const harbor: ReportForm = {
  format: 'HARBOR_REPORT',
  // A report without vulnerabilities may have no list of them. One with an SBOM is of another kind.
  recognises: ({ scanner, vulnerabilities, artifact, sbom }) =>
    isObject(scanner) && (vulnerabilities !== undefined || (isObject(artifact) && sbom === undefined)),
  read(document, list) {
    for (const one of objectsIn(document['vulnerabilities'])) {
      const { id, severity, package: name, version, fix_version: fixedVersion } = one
      list.add({ id, severities: [severity], name, version, fixedVersion })
    }
    const { name, version } = membersAt(document, 'scanner')
    return { scanner: name, scannerVersion: version, created: document['generated_at'] }
  },
}

/** Forms that a predicate may have in it. */
const plainForms: readonly ReportForm[] = [sarif, grype, trivy, harbor]

/** Returns the scores of a vulnerability of a predicate, words first. One method that does not know it says nothing about the others. */
function scoresOf(severity: unknown): unknown[] {
  const scores = objectsIn(severity).flatMap(({ score }) => (typeof score === 'string' && score.toLowerCase() === 'unknown' ? [] : [score]))
  return [...scores.filter((score) => typeof score === 'string' && !/^\d/.test(score)), ...scores]
}

/**
 * The vulnerability predicates of in-toto and of cosign (https://github.com/in-toto/attestation/blob/main/spec/predicates/vuln.md). The result is a list, or the
 * scanner's own report.
 */
const predicate: ReportForm = {
  format: 'VULNERABILITY_PREDICATE',
  recognises: ({ scanner }) => isObject(scanner) && scanner['result'] !== undefined,
  read(document, list) {
    const { uri, version, result } = membersAt(document, 'scanner')
    const created = membersAt(document, 'metadata')['scanFinishedOn']
    const inner = isObject(result) ? plainForms.find(({ recognises }) => recognises(result)) : undefined
    if (isObject(result) && inner === undefined) throw new ContentError('UNSUPPORTED_FORM', 'the result in the predicate is neither a list nor a known report')
    const facts = isObject(result) ? inner?.read(result, list) : undefined
    for (const one of facts === undefined ? objectsIn(result) : []) {
      const found = isObject(one['vulnerability']) ? one['vulnerability'] : one
      list.add({ id: found['id'], severities: scoresOf(found['severity']) })
    }
    return { scanner: textIn(uri) || facts?.scanner, scannerVersion: textIn(version) || facts?.scannerVersion, created: created ?? facts?.created }
  },
}

function countsOf(vulnerabilities: readonly ReportedVulnerability[]): ReadReport['severityCounts'] {
  const counts = new Map<ReportedVulnerability['level'], number>()
  for (const { level } of vulnerabilities) counts.set(level, (counts.get(level) ?? 0) + 1)
  return [...counts]
}

const forms: readonly ReportForm[] = [predicate, ...plainForms]

/** Returns a time in milliseconds since 1970; undefined for a text without one in the years that messages can have. */
function timeIn(value: unknown): number | undefined {
  const ms = Date.parse(textIn(value))
  return ms >= 0 && ms < Date.UTC(9999, 11, 31) ? ms : undefined
}

/**
 * Reads a report. Its content tells the form: SARIF 2.1.0, the JSON of grype or Trivy, a vulnerability predicate, or a report for Harbor. A
 * predicate may be in a DSSE envelope or a bundle of sigstore. Its statement must have one of `digests` as a subject. Signatures are not verified. With
 * `artifact`, only a report for Harbor about this image is read.
 *
 * Throws ContentError: UNREADABLE, TOO_LARGE, UNSUPPORTED_FORM, or WRONG_DIGEST. `isRecognised` is true after a predicate that is a report.
 */
export function readReport(bytes: Uint8Array, { digests, artifact }: { readonly digests: readonly Digest[]; readonly artifact?: Digest }): ReadReport {
  let isRecognised = false
  try {
    if (artifact !== undefined) return scanOf(objectOfBytes(bytes), artifact)
    const recognised = (): void => void (isRecognised = true)
    return reportIn(unwrap(objectOfBytes(bytes), { digests, predicates: reportPredicates, recognised }))
  } catch (error) {
    if (!(error instanceof ContentError)) throw error
    throw new ContentError(error.problem, error.message, { cause: error, retry: error.retry, isRecognised })
  }
}

/** Reads the answer of a scanner that was asked for one image. */
function scanOf(document: SbomObject, artifact: Digest): ReadReport {
  if (!harbor.recognises(document)) throw new ContentError('UNSUPPORTED_FORM', 'the JSON is no report of the form of Harbor')
  if (membersAt(document, 'artifact')['digest'] !== artifact) throw new ContentError('WRONG_DIGEST', 'the report is about another image')
  return reportIn(document, harbor)
}

function reportIn(document: SbomObject, form = forms.find(({ recognises }) => recognises(document))): ReadReport {
  if (form === undefined) throw new ContentError('UNSUPPORTED_FORM', 'the JSON is no report of a known form')
  const list = new ReportList()
  const { scanner, scannerVersion, created } = form.read(document, list)
  return {
    format: form.format,
    scanner: textIn(scanner),
    scannerVersion: textIn(scannerVersion),
    createdMs: timeIn(created),
    severityCounts: countsOf(list.vulnerabilities),
    vulnerabilities: list.vulnerabilities.toSorted((one, other) => compareTexts(one.id, other.id) || compareTexts(one.name, other.name)),
  }
}
