import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { Digest } from '../../base/digest.ts'
import { DomainError } from '../../base/errors.ts'
import { hashQuery, sealCursor } from '../../base/page-token.ts'
import type { Uid } from '../../base/uid.ts'
import type { ReportedVulnerability, ReportOutcome, ScannerReport } from '../../cache/lists/scanner-reports-source.ts'
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
  type SeverityCount,
} from '../../gen/taproot/registry/v2/vuln_reports_pb.ts'
import { severitiesByRank } from '../counts/tag-state.ts'
import { comparePlaces } from '../vulnerability-message.ts'

const states = {
  pending: ScannerReport_State.PENDING,
  read: ScannerReport_State.READ,
  failed: ScannerReport_State.FAILED,
  tooLarge: ScannerReport_State.TOO_LARGE,
} as const satisfies Record<ReportOutcome['state'], ScannerReport_State>

/** The digits of the place of a vulnerability in its report. */
const placeDigits = 5

/** A vulnerability, the report that has it, and its place in the list. */
interface Listed {
  readonly one: ReportedVulnerability
  readonly report: ScannerReport
  readonly place: readonly string[]
}

function listedOf(report: ScannerReport): Listed[] {
  const { outcome, digest, document } = report
  if (outcome.state !== 'read') return []
  return outcome.report.vulnerabilities.map((one, at) => ({
    one,
    report,
    place: [one.id, one.name, digest, document, String(at).padStart(placeDigits, '0')],
  }))
}

function countsOf(vulnerabilities: readonly ReportedVulnerability[]): SeverityCount[] {
  const counts = severitiesByRank.map((level) => ({ level, count: vulnerabilities.filter((one) => one.level === level).length }))
  return counts.filter(({ count }) => count > 0).map(({ level, count }) => create(SeverityCountSchema, { severityLevel: level, count }))
}

function reportMessage({ digest, document, subject, pushedMs, outcome }: ScannerReport): ReportMessage {
  const about = { digest, documentDigest: document, subjectDigest: subject, state: states[outcome.state], pushTime: timestampFromMs(pushedMs) }
  if (outcome.state === 'pending') return create(ScannerReportSchema, about)
  if (outcome.state !== 'read') return create(ScannerReportSchema, { ...about, message: outcome.message })
  const { format, scanner, scannerVersion, createdMs, vulnerabilities } = outcome.report
  return create(ScannerReportSchema, {
    ...about,
    format: ScannerReport_Format[format],
    scannerName: scanner,
    scannerVersion,
    ...(createdMs === undefined ? {} : { createTime: timestampFromMs(createdMs) }),
    severityCounts: countsOf(vulnerabilities),
  })
}

function vulnerabilityMessage({ one, report }: Listed): VulnerabilityMessage {
  const { id, level, type, name, version, purl, fixedVersion, locations } = one
  const found = create(PackageSchema, { digest: report.subject, type, name, version, purl, locations: [...locations] })
  return create(ReportedVulnerabilitySchema, { id, severityLevel: level, package: found, fixedVersion, reportDigest: report.digest })
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
  const found = wanted.flatMap(listedOf).filter(({ one }) => severityLevels.length === 0 || severityLevels.includes(one.level))
  const after = key?.map(String)
  const left = found.filter(({ place }) => after === undefined || comparePlaces(place, after) > 0)
  const sorted = left.sort((one, other) => comparePlaces(one.place, other.place)).slice(skip)
  const shown = sorted.slice(0, pageLimit(request.pageSize))
  const last = shown.at(-1)
  const answer = create(ListScannerReportsResponseSchema, {
    vulnerabilities: shown.map(vulnerabilityMessage),
    nextPageToken:
      sorted.length > shown.length && last !== undefined
        ? sealCursor({ key: [...last.place], queryHash, issuedMs: services.clock.now() }, services.pageKeys.current(), services.random)
        : '',
    totalCount: BigInt(found.length),
    skipped: skip,
    reports: reports.map(reportMessage),
  })
  return { message: answer, ...(restarted ? { pageTokenRestarted: true } : {}) }
}
