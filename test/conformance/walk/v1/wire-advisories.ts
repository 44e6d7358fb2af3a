/** A method of version 1. */
export interface WireMethod {
  /** Names of messages in the tables. */
  readonly input: string
  readonly output: string
  /** The verb and the path; absent for a method that only gRPC has. */
  readonly http?: string
  /** The part of the request in the body: `*` for all of it. */
  readonly body?: string
}

/** The messages about advisories, vulnerabilities and libraries, see `wireMessages`. */
export const advisoryMessages: Readonly<Record<string, string>> = {
  AdvisoriesCreateRequest: '1 parent_id s, 2 advisory Advisory',
  AdvisoriesDeleteRequest: '1 id s',
  AdvisoriesCreateAdvisoryEventRequest: '1 parent_id s, 3 advisory_event AdvisoryEvent',
  AdvisoriesListAdvisoryEventsRequest: '1 parent_id s',
  AdvisoryEventList: '1 parent_id s, 2 items []AdvisoryEvent',
  AdvisoriesListRequest:
    '23 advisory_ids []s, 24 legacy_advisory_ids []s, 17 id s, 16 uidp UIDPFilter, 2 artifact_type []s, 3 artifact_name []s, 5 component_name []s, 6 component_type []s, 20 component_location []s, 7 aliases []s, 8 artifact_architecture []s, 9 page_token s, 10 page_size l, 11 event_statuses []ReviewStatus, 12 event_author []s, 18 event_reviewer []s, 13 event_types []EventTypeFilter, 14 order_by OrderBy, 15 exclude_event_author []s, 19 latest_event_type EventTypeFilter, 22 origin s',
  AdvisoriesList: '1 id s, 2 items []Advisory, 3 next_page_token s, 4 total_count l',
  Advisory:
    '1 id s, 2 artifact_type s, 3 artifact_name s, 5 artifact_architecture s, 6 component_name s, 7 component_location s, 8 component_type s, 10 created_at ts, 11 updated_at ts, 12 deleted_at ts, 13 aliases []s, 14 events []AdvisoryEvent, 15 advisory_id s, 16 author s, 19 legacyAdvisoryID s',
  AdvisoryEvent:
    '1 id s, 2 timestamp ts, 3 detection AdvisoryDetection|type, 4 fixed AdvisoryFixed|type, 5 false_positive_determination AdvisoryFalsePositive|type, 6 analysis_not_planned Note|type, 7 fix_not_planned Note|type, 8 pending_upstream_fix Note|type, 9 true_positive_determination Note|type, 15 patched AdvisoryPatched|type, 16 component_location_changed Empty|type, 10 findings bytes, 11 author s, 12 reviewer s, 13 status ReviewStatus, 14 issue s',
  Note: '1 note s',
  AdvisoryDetection: '1 nvdapi DetectionNvdApi|type, 2 manual Empty|type, 3 scanv1 DetectionScan|type',
  DetectionNvdApi: '1 cpe_searched s, 2 cpe_found s',
  DetectionScan:
    '1 scanner s, 2 subpackage_name s, 3 component_id s, 4 component_name s, 5 component_version s, 6 component_type s, 7 component_location s, 8 artifact_version s, 9 scanner_version s, 10 grype_db_built s, 11 grype_db_checksum s',
  AdvisoryFixed: '1 fixed_version s, 2 note s, 3 scanner_version s, 4 grype_db_built s, 5 grype_db_checksum s',
  AdvisoryFalsePositive: '1 type FalsePositiveType, 2 note s',
  AdvisoryPatched: '1 patched_versions []s, 2 note s',
  ArtifactsListRequest:
    '1 ecosystems []Ecosystem, 2 query s, 3 cuda_version s, 4 remediated b, 5 include_upstream b, 10 page_size i, 11 page_token s, 12 skip i',
  ArtifactList: '1 items []Artifact, 2 next_page_token s, 3 total_artifacts i, 4 skipped i',
  Artifact: '1 id s, 2 name s, 3 description s, 4 ecosystem Ecosystem, 5 latest_version s, 6 version_count i, 7 created_at ts, 8 updated_at ts',
  ArtifactsListVersionsRequest: '1 id s, 2 include_upstream b',
  ArtifactVersionList: '1 items []ArtifactVersion',
  ArtifactVersion:
    '1 id s, 2 name s, 3 version s, 4 description s, 5 created_at ts, 6 updated_at ts, 7 size_bytes l, 8 source_type s, 9 malware_scanned b, 10 malware_malicious b, 11 upstream_published_date ts',
  ArtifactsGetArtifactCountRequest: '1 ecosystems []Ecosystem',
  GetArtifactCountResponse: '1 counts []GetArtifactCountResponseCounts',
  GetArtifactCountResponseCounts: '1 ecosystem Ecosystem, 2 total_artifacts i',
  SecurityAdvisoryListDocumentsRequest: '1 id s, 2 cves []s',
  DocumentList: '1 items []Document',
  Document: '1 id s, 2 advisories []DocumentAdvisory',
  DocumentAdvisory: '1 id s, 2 events []DocumentEvent, 3 aliases []s, 4 package_namespace s',
  DocumentEvent:
    '1 timestamp ts, 10 true_positive_determination Note|data, 11 false_positive_determination AdvisoryFalsePositive|data, 12 fixed DocumentFixed|data, 13 detection AdvisoryDetection|data, 14 analysis_not_planned Note|data, 15 fix_not_planned Note|data, 16 pending_upstream_fix Note|data',
  DocumentFixed: '1 fixed_version s, 2 scanner_version s, 3 grype_db_built s, 4 grype_db_checksum s',
  SecurityAdvisoryListVulnerabilityMetadataRequest: '1 id s, 2 ids []s, 10 page_size i, 11 page_token s, 12 order_by s, 13 skip i',
  VulnerabilityMetadataList: '1 items []VulnerabilityMetadata, 2 next_page_token s, 3 total_count l, 4 skipped i',
  VulnerabilityMetadata: '1 id s, 2 summary s, 3 details s, 4 references []VulnerabilityReference, 5 severity []VulnerabilitySeverity',
  VulnerabilityReference: '1 type ReferenceType, 2 url s',
  VulnerabilitySeverity: '1 type SeverityType, 2 score s',
  SecurityAdvisoryListResolvedVulnsReportsRequest: '1 image_refs []ImageRef, 2 from ts, 3 to ts',
  ImageRef: '1 repo s, 2 tags []s',
  ResolvedVulnsReportList: '1 items []ResolvedVulnsReport',
  ResolvedVulnsReport: '1 date ts, 2 resolved_vulns []ResolvedVuln',
  ResolvedVuln: '1 id s, 2 aliases []s, 3 cvss_severities []VulnerabilitySeverity',
}

/** The methods about advisories, vulnerabilities and libraries. */
export const advisoryMethods: Readonly<Record<string, WireMethod>> = {
  'Advisories/Create': { input: 'AdvisoriesCreateRequest', output: 'Advisory', http: 'POST /vulnerabilities/v1/advisories', body: '*' },
  'Advisories/Update': { input: 'Advisory', output: 'Advisory', http: 'PUT /vulnerabilities/v1/advisories/{id=**}', body: '*' },
  'Advisories/Delete': { input: 'AdvisoriesDeleteRequest', output: 'Empty', http: 'DELETE /vulnerabilities/v1/advisories/{id=**}' },
  'Advisories/CreateAdvisoryEvent': {
    input: 'AdvisoriesCreateAdvisoryEventRequest',
    output: 'AdvisoryEvent',
    http: 'POST /vulnerabilities/v1/advisories/{parent_id=**}/events',
    body: '*',
  },
  'Advisories/ListAdvisoryEvents': {
    input: 'AdvisoriesListAdvisoryEventsRequest',
    output: 'AdvisoryEventList',
    http: 'GET /vulnerabilities/v1/advisories/{parent_id=**}/events',
  },
  'Advisories/UpdateAdvisoryEvent': { input: 'AdvisoryEvent', output: 'AdvisoryEvent', http: 'PUT /vulnerabilities/v1/advisory_events/{id=**}', body: '*' },
  'Advisories/List': { input: 'AdvisoriesListRequest', output: 'AdvisoriesList', http: 'GET /vulnerabilities/v1/advisories' },
  'Artifacts/List': { input: 'ArtifactsListRequest', output: 'ArtifactList', http: 'GET /libraries/v1/artifacts' },
  'Artifacts/ListVersions': { input: 'ArtifactsListVersionsRequest', output: 'ArtifactVersionList', http: 'GET /libraries/v1/artifacts/{id=*}/versions' },
  'Artifacts/GetArtifactCount': { input: 'ArtifactsGetArtifactCountRequest', output: 'GetArtifactCountResponse', http: 'GET /libraries/v1/artifacts/count' },
  'SecurityAdvisory/ListDocuments': { input: 'SecurityAdvisoryListDocumentsRequest', output: 'DocumentList', http: 'GET /advisory/v1/documents' },
  'SecurityAdvisory/ListVulnerabilityMetadata': {
    input: 'SecurityAdvisoryListVulnerabilityMetadataRequest',
    output: 'VulnerabilityMetadataList',
    http: 'GET /advisory/v1/metadata',
  },
  'SecurityAdvisory/ListResolvedVulnsReports': {
    input: 'SecurityAdvisoryListResolvedVulnsReportsRequest',
    output: 'ResolvedVulnsReportList',
    http: 'GET /advisory/v1/images/resolved_vulns',
  },
}
