import { create, type Message } from '@bufbuild/protobuf'
import {
  AffectedPackageSchema,
  EolTag_TagStatus as StatusV1,
  EolTagListSchema,
  EolTagSchema as EolTagV1,
  GetVulnReportRequestSchema as GetVulnReportV1,
  ImageVulnReportSchema,
  PackageVersionSchema,
  ReportScannerSchema,
  VulnerabilityFixSchema,
  VulnerabilityMatchSchema,
  VulnerabilityRecordSchema,
} from '../gen/taproot/registry/v1/registry_pb.ts'
import {
  RawVulnReportSchema as RawReportV1,
  ScannerSchema,
  VulnCountReportListSchema,
  VulnCountReportSchema as CountReportV1,
  VulnCountSchema as CountV1,
  VulnerabilitySchema,
  VulnReportListSchema,
  VulnReportSchema as ReportV1,
} from '../gen/taproot/registry/v1/vulnerabilities_pb.ts'
import { Vulnerability_SeverityLevel as Level } from '../gen/taproot/registry/v2/contents_pb.ts'
import { EolTag_TagStatus as Status, EolTagSchema, ListEolTagsResponseSchema, type EolTag } from '../gen/taproot/registry/v2/eol_tags_pb.ts'
import {
  GetVulnReportRequestSchema,
  ListVulnCountReportsResponseSchema,
  ListVulnReportsResponseSchema,
  RawVulnReportSchema,
  VulnCountReportSchema,
  VulnCountSchema,
  VulnFix_State as FixState,
  VulnFixSchema,
  VulnMatchSchema,
  VulnReportSchema,
  VulnScannerSchema,
  type RawVulnReport,
  type VulnCountReport,
  type VulnMatch,
  type VulnReport,
} from '../gen/taproot/registry/v2/vuln_reports_pb.ts'
import { defineMap, unmapped, type FieldConverter, type FieldRow } from './field-map.ts'

/** The statuses of tags, whose numbers differ. Version 1 has none for what is not known. */
const statuses: readonly (readonly [v1: StatusV1, v2: Status])[] = [
  [StatusV1.TAG_ACTIVE, Status.TAG_ACTIVE],
  [StatusV1.TAG_IN_GRACE, Status.TAG_IN_GRACE],
  [StatusV1.TAG_INACTIVE, Status.TAG_INACTIVE],
]

const tagStatus: FieldConverter = {
  toV1: (value) => statuses.find(([, v2]) => v2 === value)?.[0] ?? StatusV1.TAG_ACTIVE,
  toV2: (value) => statuses.find(([v1]) => v1 === value)?.[1],
}

/** Returns the version of a product. It does not exist if the status of the tag is not known. */
function packageVersion({ tagStatus: status, mainPackageVersion }: EolTag): Message {
  const { eolDate = '', releaseDate = '', cycle = '', latestVersion = '', lts = false } = mainPackageVersion ?? {}
  return create(PackageVersionSchema, { exists: status !== Status.TAG_UNKNOWN, eolDate, releaseDate, version: cycle, latestVersion, lts })
}

const eolTag = defineMap(EolTagV1, EolTagSchema, {
  id: 'uid',
  name: 'name',
  main_package_name: 'main_package_name',
  grace_status: 'grace_status',
  grace_period_expiry_date: 'grace_period_expiry_time',
  main_package_version: { read: (tag) => packageVersion(tag as EolTag) }, // the record of the map
  tag_status: { to: 'tag_status', by: tagStatus },
})

/** A page of tags with their life cycles. */
export const eolTagsMap = defineMap(EolTagListSchema, ListEolTagsResponseSchema, {
  items: { to: 'eol_tags', by: eolTag },
  next_page_token: 'next_page_token',
})

/** Returns a row that reads a field of a vulnerability in a package. */
function ofMatch(read: (match: VulnMatch) => unknown): FieldRow {
  return { read: (record) => read(record as VulnMatch) } // the record of the map
}

/** Returns the database that an id is of, in the words of version 1. */
function sourceOf(id: string): string {
  return id.startsWith('CVE-') ? 'nvd' : id.startsWith('GHSA-') ? 'github' : 'osv'
}

/** Returns scores as version 1 has them: as texts. */
function scoresOf({ cvss }: VulnMatch): { readonly score: string; readonly version: string }[] {
  return cvss.map(({ score, version }) => ({ score: score.toFixed(1), version }))
}

function vulnerabilityRecord(match: VulnMatch): Message {
  const { vulnerability, description, relatedUrls } = match
  const { id = '', aliases = [], severityLevel = Level.UNKNOWN } = vulnerability ?? {}
  return create(VulnerabilityRecordSchema, {
    ...{ id, displayId: id, source: sourceOf(id), description, relatedUrls },
    // This report has no level for the score 0.
    severity: severityLevel === Level.NEGLIGIBLE ? Level.UNKNOWN : severityLevel,
    cvss: scoresOf(match),
    relatedVulnerabilities: aliases.map((alias) => ({ id: alias, source: sourceOf(alias) })),
  })
}

function affectedPackage({ vulnerability }: VulnMatch): Message | undefined {
  const { package: found } = vulnerability ?? {}
  if (found === undefined) return undefined
  const { digest, purl, name, version, licenses } = found
  return create(AffectedPackageSchema, { id: `${digest} ${purl}`, name, version, license: licenses.join(', '), purl })
}

const fix = defineMap(VulnerabilityFixSchema, VulnFixSchema, { versions: 'versions', state: 'state' })

const vulnerabilityMatch = defineMap(VulnerabilityMatchSchema, VulnMatchSchema, {
  vulnerability: ofMatch(vulnerabilityRecord),
  pkg: ofMatch(affectedPackage),
  fix: { to: 'fix', by: fix },
})

/** The report about an image. */
export const vulnReportMaps = {
  request: defineMap(GetVulnReportV1, GetVulnReportRequestSchema, { repo_id: 'repo_uid', digest: 'digest' }),
  answer: defineMap(ImageVulnReportSchema, VulnReportSchema, {
    id: 'digest',
    vulnerability_db_last_build_time: { read: (report) => (report as VulnReport).scanner?.dbBuildTime }, // the record of the map
    vulnerability_matches: { to: 'matches', by: vulnerabilityMatch },
    scanner: { to: 'scanner', by: defineMap(ReportScannerSchema, VulnScannerSchema, { name: 'name', version: 'version' }) },
    report_generation: 'create_time',
    raw_vuln_report: unmapped,
    last_seen: { read: (report) => (report as VulnReport).createTime }, // see above
  }),
}

/** Returns the values, each once, in their order. */
function eachOnce(values: readonly string[]): string[] {
  return [...new Set(values)]
}

/** The levels, the worst first. */
const levels = [Level.CRITICAL, Level.HIGH, Level.MEDIUM, Level.LOW, Level.NEGLIGIBLE, Level.UNKNOWN] as const

/** Returns a vulnerability with all packages that have it. `matches` are those of its id. */
function vulnerabilityIn(id: string, matches: readonly VulnMatch[]): Message {
  const found = matches.flatMap(({ vulnerability }) => vulnerability ?? [])
  const packages = found.flatMap((one) => one.package ?? [])
  const [first] = matches
  const states = new Set(matches.map((match) => match.fix?.state ?? FixState.UNKNOWN))
  const [state = FixState.UNKNOWN] = states.size === 1 ? states : []
  return create(VulnerabilitySchema, {
    id,
    aliases: eachOnce(found.flatMap(({ aliases }) => aliases)),
    purls: eachOnce(packages.map(({ purl }) => purl)),
    description: first?.description ?? '',
    severity: levels.find((level) => found.some(({ severityLevel }) => severityLevel === level)) ?? Level.UNKNOWN,
    cvss: first === undefined ? [] : scoresOf(first),
    fix: { state, versions: eachOnce(matches.flatMap((match) => match.fix?.versions ?? [])) },
    relatedUrls: eachOnce(matches.flatMap(({ relatedUrls }) => relatedUrls)),
    locations: eachOnce(packages.flatMap(({ locations }) => locations)),
  })
}

function vulnerabilitiesOf({ matches }: VulnReport): Message[] {
  return [...Map.groupBy(matches, ({ vulnerability }) => vulnerability?.id ?? '')].map(([id, alike]) => vulnerabilityIn(id, alike))
}

/** A scanner. Version 1 knows the names of others alone. */
const scanner = defineMap(ScannerSchema, VulnScannerSchema, { name: unmapped, version: 'version', db_build_time: 'db_build_time' })

const report = defineMap(ReportV1, VulnReportSchema, {
  digest: 'digest',
  scanner: { to: 'scanner', by: scanner },
  created_at: 'create_time',
  vulnerabilities: { read: (one) => vulnerabilitiesOf(one as VulnReport) }, // the record of the map
})

/** The reports about the images of a digest or tag. */
export const vulnReportsMap = defineMap(VulnReportListSchema, ListVulnReportsResponseSchema, { items: { to: 'vuln_reports', by: report } })

/** A report as a document. */
export const rawVulnReportMap = defineMap(RawReportV1, RawVulnReportSchema, {
  digest: 'digest',
  scanner: { to: 'scanner', by: scanner },
  created_at: 'create_time',
  raw_report: { read: (raw) => Buffer.from((raw as RawVulnReport).rawReport).toString() }, // the record of the map
  raw_report_url: unmapped,
})

/** Returns a row that reads the ids of a report on a day: those of one level, or all. */
function idsOf(level?: Level): FieldRow {
  return {
    read(record) {
      const counts = (record as VulnCountReport).vulnCounts.filter(({ severityLevel }) => level === undefined || severityLevel === level) // the record of the map
      return counts.flatMap(({ ids }) => ids).sort()
    },
  }
}

const countReport = defineMap(CountReportV1, VulnCountReportSchema, {
  repo: 'repo',
  tag: 'tag',
  date: 'date',
  vuln_counts: { to: 'vuln_counts', by: defineMap(CountV1, VulnCountSchema, { severity: 'severity_level', count: 'count' }) },
  size_bytes: 'size_bytes',
  cve_ids: idsOf(),
  low_cve_ids: idsOf(Level.LOW),
  med_cve_ids: idsOf(Level.MEDIUM),
  high_cve_ids: idsOf(Level.HIGH),
  crit_cve_ids: idsOf(Level.CRITICAL),
  negligible_cve_ids: idsOf(Level.NEGLIGIBLE),
  unknown_cve_ids: idsOf(Level.UNKNOWN),
})

/** The vulnerabilities of tags by day. */
export const countReportsMap = defineMap(VulnCountReportListSchema, ListVulnCountReportsResponseSchema, {
  items: { to: 'vuln_count_reports', by: countReport },
})

/** Returns the name in version 1 of a field in a request for the vulnerabilities of tags by day. */
export function countField(path: string): string {
  const names: Readonly<Record<string, string>> = { start_time: 'from', end_time: 'to' }
  return names[path] ?? path.replace(/^image_refs/, 'references')
}
