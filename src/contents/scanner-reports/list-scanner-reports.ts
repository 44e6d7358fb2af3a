import { create, toBinary } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { Digest } from '../../base/digest.ts'
import { DomainError } from '../../base/errors.ts'
import { hashQuery, sealCursor } from '../../base/page-token.ts'
import type { Uid } from '../../base/uid.ts'
import type { ReportOutcome, ScannerReport } from '../../cache/lists/scanner-reports-source.ts'
import { openPage, pageLimit } from '../../engine/read.ts'
import { callerOf, type Handler } from '../../engine/services.ts'
import { PackageSchema } from '../../gen/taproot/registry/v2/contents_pb.ts'
import {
  ListScannerReportsResponseSchema,
  ReportedVulnerabilitySchema,
  ScannerReport_Format,
  ScannerReport_State,
  ScannerReportSchema,
  SeverityCountSchema,
  type ListScannerReportsRequest,
  type ReportedVulnerability as VulnerabilityMessage,
  type ScannerReport as ReportMessage,
} from '../../gen/taproot/registry/v2/vuln_reports_pb.ts'
import { severitiesByRank } from '../counts/tag-state.ts'
import { pageOf, type Listed } from './report-page.ts'

const states = {
  pending: ScannerReport_State.PENDING,
  read: ScannerReport_State.READ,
  failed: ScannerReport_State.FAILED,
  tooLarge: ScannerReport_State.TOO_LARGE,
} as const satisfies Record<ReportOutcome['state'], ScannerReport_State>

/** The bytes after which a page ends. Clients of gRPC accept 4 MiB. */
const maxAnswerBytes = 3.5 * 1024 * 1024

function reportMessage({ digest, document, subject, pushedMs, outcome }: ScannerReport): ReportMessage {
  const about = { digest, documentDigest: document, subjectDigest: subject, state: states[outcome.state], pushTime: timestampFromMs(pushedMs) }
  if (outcome.state === 'pending') return create(ScannerReportSchema, about)
  if (outcome.state !== 'read') return create(ScannerReportSchema, { ...about, message: outcome.message })
  const { format, scanner, scannerVersion, createdMs, severityCounts } = outcome.report
  return create(ScannerReportSchema, {
    ...about,
    format: ScannerReport_Format[format],
    scannerName: scanner,
    scannerVersion,
    ...(createdMs === undefined ? {} : { createTime: timestampFromMs(createdMs) }),
    severityCounts: severityCounts
      .toSorted(([one], [other]) => severitiesByRank.indexOf(one) - severitiesByRank.indexOf(other))
      .map(([severityLevel, count]) => create(SeverityCountSchema, { severityLevel, count })),
  })
}

function vulnerabilityMessage({ one, report }: Listed): VulnerabilityMessage {
  const { id, level, type, name, version, purl, fixedVersion, locations } = one
  const found = create(PackageSchema, { digest: report.subject, type, name, version, purl, locations: [...locations] })
  return create(ReportedVulnerabilitySchema, { id, severityLevel: level, package: found, fixedVersion, reportDigest: report.digest })
}

/** Returns the first vulnerabilities, as many as one answer may have with its reports: one at least. */
function fitting(vulnerabilities: readonly VulnerabilityMessage[], reports: readonly ReportMessage[]): VulnerabilityMessage[] {
  let bytes = reports.reduce((sum, report) => sum + toBinary(ScannerReportSchema, report).length, 0)
  const end = vulnerabilities.findIndex((one) => {
    bytes += toBinary(ReportedVulnerabilitySchema, one).length
    return bytes > maxAnswerBytes
  })
  return vulnerabilities.slice(0, end < 0 ? undefined : Math.max(1, end))
}

/** Answers ListScannerReports: the reports of other scanners about an image or index, and one page of what they found (docs/spec/registry.md#reports-of-scanners). */
export const listScannerReports: Handler = async (services, context, message) => {
  const request = message as ListScannerReportsRequest // the method's input
  const { repoUid: repo, digest, reportDigests, severityLevels, skip } = request
  if (digest === '') throw DomainError.invalid('digest', 'is required')
  const queryHash = hashQuery([context.method.rpc, repo, digest, reportDigests.toSorted(), severityLevels.toSorted(), callerOf(context).identity])
  const { key, restarted } = await openPage(services, context, { text: request.pageToken, queryHash })
  // Casts: authorization found the repo, and the schema checked the digest.
  const reports = (await services.scannerReports?.of({ repo: repo as Uid, digest: digest as Digest }, context.signal)) ?? []
  const wanted = reports.filter((report) => reportDigests.length === 0 || reportDigests.includes(report.digest))
  const { listed, hasMore, total } = pageOf(wanted, {
    levels: new Set(severityLevels),
    after: key?.map(String),
    skip,
    limit: pageLimit(request.pageSize),
  })
  const about = reports.map(reportMessage)
  const vulnerabilities = fitting(listed.map(vulnerabilityMessage), about)
  const last = listed[vulnerabilities.length - 1]
  const answer = create(ListScannerReportsResponseSchema, {
    vulnerabilities,
    nextPageToken:
      (hasMore || vulnerabilities.length < listed.length) && last !== undefined
        ? sealCursor({ key: [...last.place], queryHash, issuedMs: services.clock.now() }, services.pageKeys.current(), services.random)
        : '',
    totalCount: BigInt(total),
    skipped: skip,
    reports: about,
  })
  return { message: answer, ...(restarted ? { pageTokenRestarted: true } : {}) }
}
