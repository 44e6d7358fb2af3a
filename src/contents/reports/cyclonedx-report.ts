import { timestampDate } from '@bufbuild/protobuf/wkt'
import { ImageContents_State, Vulnerability_State, type Package, type Vulnerability } from '../../gen/taproot/registry/v2/contents_pb.ts'
import { VulnFix_State, type VulnMatch, type VulnReport } from '../../gen/taproot/registry/v2/vuln_reports_pb.ts'

/** The media type of the document. */
export const cycloneDxType = 'application/vnd.cyclonedx+json; version=1.6'

const methods: Readonly<Record<string, string>> = { '2.0': 'CVSSv2', '3.0': 'CVSSv3', '3.1': 'CVSSv31', '4.0': 'CVSSv4' }

/** The words of CycloneDX for Vulnerability.SeverityLevel, by its number. */
const severities = ['unknown', 'low', 'medium', 'high', 'critical', 'none'] as const

/** Returns the database that an id is of. */
function sourceOf(id: string): { readonly name: string } {
  return { name: id.startsWith('CVE-') ? 'NVD' : id.startsWith('GHSA-') ? 'GitHub' : 'OSV' }
}

function analysisOf({ state, note }: Vulnerability, { fix }: VulnMatch): object {
  return {
    state: state === Vulnerability_State.AFFECTED ? 'exploitable' : 'in_triage',
    ...(fix?.state === VulnFix_State.WONT_FIX ? { response: ['will_not_fix'] } : {}),
    ...(note === '' ? {} : { detail: note }),
  }
}

/** The longest version that the form has, in characters. */
const maxVersion = 1_024

/** True if the form can have a version. */
function isVersion(version: string): boolean {
  return version !== '' && version.length <= maxVersion
}

function affectedOf({ purl, version }: Package): object {
  return { ref: purl, ...(isVersion(version) ? { versions: [{ version, status: 'affected' }] } : {}) }
}

/** Returns a web address as RFC 3986 writes it; nothing for another text. References of advisories may be any text, and browsers accept more than the form does. */
function addressOf(text: string): string[] {
  const url = URL.parse(text)
  if (url === null || !['http:', 'https:'].includes(url.protocol)) return []
  const { origin, pathname, search, hash } = url
  const rest = `${pathname}${search}${hash.slice(0, 1)}${hash.slice(1).replaceAll('#', '%23')}`
  return [origin + rest.replaceAll(/["<>\\^`{|}[\]]|%(?![\dA-Fa-f]{2})/g, encodeURIComponent)]
}

function vulnerabilityOf(match: VulnMatch, vulnerability: Vulnerability): object {
  const { id, aliases, severityLevel, package: found } = vulnerability
  const severity = severities[severityLevel] ?? 'unknown'
  const ratings = match.cvss.map(({ version, score, vector }) => ({ score, method: methods[version] ?? 'other', vector }))
  const [first = {}, ...others] = ratings
  const versions = match.fix?.versions ?? []
  const advisories = match.relatedUrls.flatMap(addressOf).map((url) => ({ url }))
  return {
    'bom-ref': `${id} ${found?.purl ?? ''}`,
    id,
    source: sourceOf(id),
    ...(aliases.length === 0 ? {} : { references: aliases.map((alias) => ({ id: alias, source: sourceOf(alias) })) }),
    // The level follows the first vector.
    ratings: [{ ...first, severity }, ...others],
    ...(match.description === '' ? {} : { description: match.description }),
    ...(versions.length === 0 ? {} : { recommendation: `Update ${found?.name ?? ''} to ${versions.join(', ')}` }),
    ...(advisories.length === 0 ? {} : { advisories }),
    analysis: analysisOf(vulnerability, match),
    affects: found === undefined ? [] : [affectedOf(found)],
  }
}

/** True if each image was read, all of it. */
function isComplete({ images, hasAdvisories }: VulnReport): boolean {
  return hasAdvisories && images.length > 0 && images.every(({ state }) => state === ImageContents_State.READ)
}

/** Returns a report as JSON of CycloneDX 1.6: the packages that have vulnerabilities, and these. The same package in several images comes once. */
export function cycloneDxReport(report: VulnReport, name: string): Uint8Array {
  const { digest, createTime, scanner, matches } = report
  const pairs = matches.flatMap((match) => (match.vulnerability === undefined ? [] : [{ match, vulnerability: match.vulnerability }]))
  const byPair = new Map(pairs.map((pair) => [`${pair.vulnerability.id} ${pair.vulnerability.package?.purl ?? ''}`, pair]))
  const components = new Map(pairs.flatMap(({ vulnerability: { package: found } }) => (found === undefined ? [] : [[found.purl, found] as const])))
  const { name: tool = '', version = '' } = scanner ?? {}
  const document = {
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      ...(createTime === undefined ? {} : { timestamp: timestampDate(createTime).toISOString() }),
      tools: { components: [{ type: 'application', name: tool, ...(version === '' ? {} : { version }) }] },
      component: { type: 'container', 'bom-ref': digest, name, version: digest },
    },
    components: [...components.values()].map((found) => ({
      ...{ type: 'library', 'bom-ref': found.purl, name: found.name, purl: found.purl },
      ...(isVersion(found.version) ? { version: found.version } : {}),
    })),
    compositions: [{ aggregate: isComplete(report) ? 'complete' : 'incomplete', vulnerabilities: [...byPair.keys()] }],
    vulnerabilities: [...byPair.values()].map(({ match, vulnerability }) => vulnerabilityOf(match, vulnerability)),
  }
  return Buffer.from(JSON.stringify(document))
}
