import type { WireMethod } from './wire-advisories.ts'

/** The messages of version 1 about life cycles and vulnerabilities of images. They are part of `wireMessages`. */
export const reportMessages: Readonly<Record<string, string>> = {
  RegistryListEolTagsRequest: '1 uidp UIDPFilter, 2 name s, 3 page_token s, 4 page_size l, 5 exclude_dates b, 6 exclude_epochs b',
  EolTagList: '1 items []EolTag, 2 next_page_token s',
  EolTag:
    '1 id s, 2 name s, 7 main_package_name s, 14 tag_status TagStatus, 13 main_package_version PackageVersion, 9 grace_status GraceStatus, 12 grace_period_expiry_date ts',
  PackageVersion:
    '1 eolDate s, 2 exists b, 3 fips b, 4 legacy_lts s, 9 lts b, 5 releaseDate s, 6 version s, 7 eolBroken b, 8 latestVersion s, 10 versionSource PackageVersionVersionSource',
  RegistryGetPackageVersionMetadataRequest: '1 package s',
  PackageVersionMetadata: '1 eolVersions []PackageVersion, 2 lastUpdatedTimestamp s, 3 latestVersion s, 4 versions []PackageVersion, 5 gracePeriodMonths i',
  PackageVersionVersionSource: '1 ref s, 2 sha s',
  RegistryGetVulnReportRequest: '1 repo_id s, 2 digest s',
  ImageVulnReport:
    '1 id s, 2 vulnerability_db_last_build_time ts, 3 vulnerability_matches []VulnerabilityMatch, 4 scanner ReportScanner, 5 report_generation ts, 6 raw_vuln_report bytes, 7 last_seen ts',
  VulnerabilityMatch: '1 vulnerability VulnerabilityRecord, 2 pkg AffectedPackage, 3 fix Fix',
  VulnerabilityRecord:
    '1 id s, 2 description s, 3 severity RecordSeverity, 4 source s, 5 cvss []Cvss, 6 cpe_uri []s, 7 related_urls []s, 8 advisories {s:s}, 9 related_vulnerabilities []RelatedVulnerability, 10 display_id s',
  Cvss: '1 score s, 2 version s',
  RelatedVulnerability: '1 id s, 2 source s',
  AffectedPackage: '1 id s, 2 name s, 3 version s, 4 license s, 5 description s, 6 purl s',
  Fix: '1 versions []s, 2 state FixState',
  ReportScanner: '1 name s, 2 version s',
  VulnerabilitiesListVulnReportsRequest: '1 repo_id s, 2 digest s, 3 tag s, 4 scanner Scanner, 5 created_since ts',
  VulnReportList: '1 items []VulnReport',
  VulnReport: '1 digest s, 2 scanner Scanner, 3 created_at ts, 4 vulnerabilities []Vulnerability',
  Scanner: '1 name ScannerName, 2 version s, 3 db_build_time ts',
  Vulnerability:
    '1 id s, 2 aliases []s, 3 purls []s, 4 description s, 5 details s, 6 severity CountSeverity, 7 cvss []Cvss, 8 fix Fix, 9 related_urls []s, 10 locations []s',
  VulnerabilitiesGetRawVulnReportRequest: '1 digest s, 2 scanner ScannerName, 3 created_at ts',
  RawVulnReport: '1 digest s, 2 scanner Scanner, 3 created_at ts, 4 raw_report s, 5 raw_report_url s',
  VulnerabilitiesListVulnCountReportsRequest: '1 repo s, 2 tag s, 3 from ts, 4 to ts, 5 references []RepoTagReference',
  RepoTagReference: '1 repo s, 2 tag s',
  VulnCountReportList: '1 items []VulnCountReport',
  VulnCountReport:
    '1 repo s, 2 tag s, 3 date ts, 4 vuln_counts []VulnCount, 5 size_bytes l, 6 cve_ids []s, 7 low_cve_ids []s, 8 med_cve_ids []s, 9 high_cve_ids []s, 10 crit_cve_ids []s, 11 negligible_cve_ids []s, 12 unknown_cve_ids []s',
  VulnCount: '1 severity CountSeverity, 2 count i',
}

/** The methods of version 1 with these messages. */
export const reportMethods: Readonly<Record<string, WireMethod>> = {
  'Registry/GetPackageVersionMetadata': {
    input: 'RegistryGetPackageVersionMetadataRequest',
    output: 'PackageVersionMetadata',
    http: 'GET /registry/v1/versions/{package=**}',
  },
  'Registry/ListEolTags': { input: 'RegistryListEolTagsRequest', output: 'EolTagList', http: 'GET /registry/v1/eoltags' },
  'Registry/GetVulnReport': {
    input: 'RegistryGetVulnReportRequest',
    output: 'ImageVulnReport',
    http: 'GET /registry/v1/repos/{repo_id=**}/digests/{digest=*}/vulnreport',
  },
  'Vulnerabilities/ListVulnReports': { input: 'VulnerabilitiesListVulnReportsRequest', output: 'VulnReportList', http: 'GET /registry/v1/vuln_reports' },
  'Vulnerabilities/GetRawVulnReport': { input: 'VulnerabilitiesGetRawVulnReportRequest', output: 'RawVulnReport', http: 'GET /registry/v1/vuln_reports/raw' },
  'Vulnerabilities/ListVulnCountReports': {
    input: 'VulnerabilitiesListVulnCountReportsRequest',
    output: 'VulnCountReportList',
    http: 'GET /registry/v1/vuln_reports/counts',
  },
  'Vulnerabilities/ListCumulativeVulnCountReports': {
    input: 'VulnerabilitiesListVulnCountReportsRequest',
    output: 'VulnCountReportList',
    http: 'GET /registry/v1/vuln_reports/counts_cumulative',
  },
}

/** Methods of the tables of the wire contract that Taproot does not serve, with their routes. */
export const unservedInContract: Readonly<Record<string, string>> = {
  'events.v1.Identities/Create': 'POST /iam/v1/identities',
  'events.v1.Identities/UpdateMetadata': 'PATCH /iam/v1/identities/metadata',
  'iam.v1.GroupInvites/CreateWithGroup': '',
  'registry.v1.Apko/BuildImage': 'POST /apko/v1/build/{repo_uidp=**}',
  'registry.v1.Apko/ResolveConfig': 'POST /apko/v1/resolve/{repo_uidp=**}',
  'registry.v1.Registry/ListBuildReports': 'GET /registry/v1/buildreports',
}

/** Methods of `Registry` that the wire contract only names. */
export const untabledMethods = [
  ...['GetSbom', 'GetRawSbom', 'GetHelm', 'GetChart', 'ListChartsByImageRepo', 'ListManifestMetadata', 'GetManifestDigestCount', 'GetBuildStatus'],
  ...['GetUpdateStatus', 'GetSyncStatus', 'ListSyncStatuses', 'GetRegistrySettings', 'UpdateRegistrySettings'],
].map((method) => `registry.v1.Registry/${method}`)
