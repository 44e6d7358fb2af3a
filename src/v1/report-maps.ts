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
import { Vulnerability_SeverityLevel as Level } from '../gen/taproot/registry/v2/contents_pb.ts'
import { EolTag_TagStatus as Status, EolTagSchema, ListEolTagsResponseSchema, type EolTag } from '../gen/taproot/registry/v2/eol_tags_pb.ts'
import {
  GetVulnReportRequestSchema,
  VulnFixSchema,
  VulnMatchSchema,
  VulnReportSchema,
  VulnScannerSchema,
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

function vulnerabilityRecord({ vulnerability, description, relatedUrls, cvss }: VulnMatch): Message {
  const { id = '', aliases = [], severityLevel = Level.UNKNOWN } = vulnerability ?? {}
  return create(VulnerabilityRecordSchema, {
    ...{ id, displayId: id, source: sourceOf(id), description, relatedUrls },
    // This report has no level for the score 0.
    severity: severityLevel === Level.NEGLIGIBLE ? Level.UNKNOWN : severityLevel,
    cvss: cvss.map(({ score, version }) => ({ score: score.toFixed(1), version })),
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
