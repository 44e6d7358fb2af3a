import type { DescMessage } from '@bufbuild/protobuf'
import * as feedV1 from '../gen/taproot/advisory/v1/advisory_pb.ts'
import * as feed from '../gen/taproot/advisory/v2/advisory_pb.ts'
import * as v1 from '../gen/taproot/vulnerabilities/v1/advisories_pb.ts'
import * as v2 from '../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { defineMap, unmapped, type FieldConverter, type FieldMap, type FieldRows } from './field-map.ts'

/** Maps a message whose fields have the same names in both versions, except for these rows. */
function sameNames(message: DescMessage, target: DescMessage, rows: FieldRows = {}): FieldMap {
  return defineMap(message, target, { ...Object.fromEntries(message.fields.map(({ name }) => [name, name])), ...rows })
}

const scan = sameNames(v1.AdvisoryEvent_Detection_ScanV1Schema, v2.AdvisoryEvent_Detection_ScanV1Schema, {
  subpackage_name: 'subpackage',
  component_name: 'component',
})

const detection = defineMap(v1.AdvisoryEvent_DetectionSchema, v2.AdvisoryEvent_DetectionSchema, {
  nvdapi: { to: 'nvdapi', by: sameNames(v1.AdvisoryEvent_Detection_NVDAPISchema, v2.AdvisoryEvent_Detection_NVDAPISchema) },
  manual: { to: 'manual', by: sameNames(v1.AdvisoryEvent_Detection_ManualSchema, v2.AdvisoryEvent_Detection_ManualSchema) },
  scanv1: { to: 'scanv1', by: scan },
})

/** The kinds of events, whose messages have the same fields in both versions. */
const eventTypes = {
  detection,
  fixed: sameNames(v1.AdvisoryEvent_FixedSchema, v2.AdvisoryEvent_FixedSchema),
  false_positive_determination: sameNames(v1.AdvisoryEvent_FalsePositiveDeterminationSchema, v2.AdvisoryEvent_FalsePositiveDeterminationSchema),
  analysis_not_planned: sameNames(v1.AdvisoryEvent_AnalysisNotPlannedSchema, v2.AdvisoryEvent_AnalysisNotPlannedSchema),
  fix_not_planned: sameNames(v1.AdvisoryEvent_FixNotPlannedSchema, v2.AdvisoryEvent_FixNotPlannedSchema),
  pending_upstream_fix: sameNames(v1.AdvisoryEvent_PendingUpstreamFixSchema, v2.AdvisoryEvent_PendingUpstreamFixSchema),
  true_positive_determination: sameNames(v1.AdvisoryEvent_TruePositiveDeterminationSchema, v2.AdvisoryEvent_TruePositiveDeterminationSchema),
  patched: sameNames(v1.AdvisoryEvent_PatchedSchema, v2.AdvisoryEvent_PatchedSchema),
}

/** An event of an advisory. */
export const advisoryEventMap = defineMap(v1.AdvisoryEventSchema, v2.AdvisoryEventSchema, {
  id: 'uid',
  timestamp: 'create_time',
  findings: 'findings',
  author: 'author',
  reviewer: 'reviewer',
  status: 'review_state',
  issue: 'issue',
  ...Object.fromEntries(Object.entries(eventTypes).map(([name, by]) => [name, { to: name, by }])),
})

/** An advisory. */
export const advisoryMap = defineMap(v1.AdvisorySchema, v2.AdvisorySchema, {
  id: 'uid',
  artifact_type: 'artifact_type',
  artifact_name: 'artifact_name',
  artifact_architecture: 'artifact_architecture',
  component_name: 'component_name',
  component_location: 'component_location',
  component_type: 'component_type',
  created_at: 'create_time',
  updated_at: 'update_time',
  deleted_at: 'delete_time',
  aliases: 'aliases',
  events: { to: 'events', by: advisoryEventMap },
  advisory_id: 'advisory_id',
  author: 'author',
  legacyAdvisoryID: 'legacy_advisory_id',
})

/** A list of the events of an advisory. */
export const eventListMaps = {
  request: defineMap(v1.ListAdvisoryEventsRequestSchema, v2.GetAdvisoryRequestSchema, { parent_id: 'uid' }),
  answer: defineMap(v1.AdvisoryEventListSchema, v2.AdvisorySchema, { parent_id: 'uid', items: { to: 'events', by: advisoryEventMap } }),
}

/** The orders of lists by number. Lists leave out withdrawn advisories, so the time of the withdrawal orders nothing. */
const orders: readonly string[] = [
  ...['', 'uid asc', 'uid desc', 'created_at asc', 'created_at desc', 'aliases asc', 'aliases desc', 'updated_at asc', 'updated_at desc'],
  ...['uid asc', 'uid desc'],
]

const order: FieldConverter = {
  toV1: (text) => Math.max(orders.indexOf(String(text)), 0),
  // Version 2 refuses an order that it does not have.
  toV2: (number) => orders[Number(number)] ?? String(number),
}

/** The largest number of 32 bits. */
const maxInt = 2 ** 31 - 1

/** Converts a number of 64 bits to one of 32 bits. */
const shorter: FieldConverter = { toV1: (number) => BigInt(Number(number)), toV2: (number) => Math.max(Math.min(Number(number), maxInt), -1) }

/** A list of advisories. The list maps `id` itself. */
export const advisoryListMaps = {
  request: defineMap(v1.ListAdvisoriesRequestSchema, v2.ListAdvisoriesRequestSchema, {
    artifact_type: 'artifact_types',
    artifact_name: 'artifact_names',
    component_name: 'component_names',
    component_type: 'component_types',
    aliases: 'aliases',
    artifact_architecture: 'artifact_architectures',
    page_token: 'page_token',
    page_size: { to: 'page_size', by: shorter },
    event_statuses: 'event_review_states',
    event_author: 'event_authors',
    event_types: 'event_types',
    order_by: { to: 'order_by', by: order },
    exclude_event_author: 'exclude_event_authors',
    uidp: 'uidp',
    id: unmapped,
    event_reviewer: 'event_reviewers',
    latest_event_type: 'latest_event_type',
    component_location: 'component_locations',
    origin: 'origin',
    advisory_ids: 'advisory_ids',
    legacy_advisory_ids: 'legacy_advisory_ids',
  }),
  answer: defineMap(v1.AdvisoriesListSchema, v2.ListAdvisoriesResponseSchema, {
    id: unmapped,
    items: { to: 'advisories', by: advisoryMap },
    next_page_token: 'next_page_token',
    total_count: 'total_count',
  }),
}

const documentDetection = sameNames(feedV1.DetectionSchema, feed.DetectionSchema, {
  nvdapi: { to: 'nvdapi', by: sameNames(feedV1.Detection_DetectionTypeNVDAPISchema, feed.Detection_DetectionTypeNVDAPISchema) },
  manual: { to: 'manual', by: sameNames(feedV1.Detection_DetectionTypeManualSchema, feed.Detection_DetectionTypeManualSchema) },
  scanv1: { to: 'scanv1', by: sameNames(feedV1.Detection_DetectionTypeScanV1Schema, feed.Detection_DetectionTypeScanV1Schema) },
})

const documentEvents = {
  true_positive_determination: sameNames(feedV1.TruePositiveDeterminationSchema, feed.TruePositiveDeterminationSchema),
  false_positive_determination: sameNames(feedV1.FalsePositiveDeterminationSchema, feed.FalsePositiveDeterminationSchema),
  fixed: sameNames(feedV1.FixedSchema, feed.FixedSchema),
  detection: documentDetection,
  analysis_not_planned: sameNames(feedV1.AnalysisNotPlannedSchema, feed.AnalysisNotPlannedSchema),
  fix_not_planned: sameNames(feedV1.FixNotPlannedSchema, feed.FixNotPlannedSchema),
  pending_upstream_fix: sameNames(feedV1.PendingUpstreamFixSchema, feed.PendingUpstreamFixSchema),
}

const documentEvent = sameNames(
  feedV1.DocumentEventSchema,
  feed.DocumentEventSchema,
  Object.fromEntries(Object.entries(documentEvents).map(([name, by]) => [name, { to: name, by }])),
)

const documentAdvisory = sameNames(feedV1.DocumentAdvisorySchema, feed.DocumentAdvisorySchema, { events: { to: 'events', by: documentEvent } })
const document = sameNames(feedV1.DocumentSchema, feed.DocumentSchema, { advisories: { to: 'advisories', by: documentAdvisory } })

/** A list of documents. */
export const documentMaps = {
  request: sameNames(feedV1.ListDocumentsRequestSchema, feed.ListDocumentsRequestSchema),
  answer: defineMap(feedV1.DocumentListSchema, feed.ListDocumentsResponseSchema, { items: { to: 'documents', by: document } }),
}

const severity = sameNames(feedV1.SeveritySchema, feed.SeveritySchema)

const metadata = sameNames(feedV1.VulnerabilityMetadataSchema, feed.VulnerabilityMetadataSchema, {
  references: { to: 'references', by: sameNames(feedV1.ReferenceSchema, feed.ReferenceSchema) },
  severity: { to: 'severities', by: severity },
})

/** A list of metadata of vulnerabilities. */
export const metadataMaps = {
  request: sameNames(feedV1.ListVulnerabilityMetadataRequestSchema, feed.ListVulnerabilityMetadataRequestSchema),
  answer: sameNames(feedV1.VulnerabilityMetadataListSchema, feed.ListVulnerabilityMetadataResponseSchema, {
    items: { to: 'vulnerability_metadata', by: metadata },
  }),
}

const resolved = sameNames(feedV1.ResolvedVulnSchema, feed.ResolvedVulnSchema, { cvss_severities: { to: 'cvss_severities', by: severity } })
const report = sameNames(feedV1.ResolvedVulnsReportSchema, feed.ResolvedVulnsReportSchema, { resolved_vulns: { to: 'resolved_vulns', by: resolved } })

/** A list of reports about resolved vulnerabilities. */
export const resolvedMaps = {
  request: defineMap(feedV1.ListResolvedVulnsReportsRequestSchema, feed.ListResolvedVulnsReportsRequestSchema, {
    image_refs: { to: 'image_refs', by: sameNames(feedV1.ImageRefSchema, feed.ImageRefSchema) },
    from: 'start_time',
    to: 'end_time',
  }),
  answer: defineMap(feedV1.ResolvedVulnsReportListSchema, feed.ListResolvedVulnsReportsResponseSchema, {
    items: { to: 'resolved_vulns_reports', by: report },
  }),
}
