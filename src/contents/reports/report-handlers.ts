import { create, toBinary, type DescMessage, type MessageShape } from '@bufbuild/protobuf'
import type { Uid } from '../../base/uid.ts'
import { millisecondFrom } from '../../base/schema/whole-milliseconds.ts'
import { messageOf } from '../../cache/records/record-types.ts'
import { answerTooLarge, maxReportBytes } from '../../catalogue/index.ts'
import { notFound } from '../../engine/errors.ts'
import { turnOf, type Context, type Handler, type HandlerAnswer, type Services } from '../../engine/services.ts'
import {
  ListVulnReportsResponseSchema,
  RawVulnReportSchema,
  VulnReportSchema,
  type GetRawVulnReportRequest,
  type GetVulnReportRequest,
  type ListVulnReportsRequest,
  type VulnReport,
} from '../../gen/taproot/registry/v2/vuln_reports_pb.ts'
import { tagNamed } from '../../registry/index.ts'
import { namedImages } from '../named-images.ts'
import { cycloneDxReport, cycloneDxType } from './cyclonedx-report.ts'
import { vulnReport, vulnReportTooLarge } from './vuln-report.ts'

const defaultTag = 'latest'

/** Returns the number of bytes of a message. Throws code 9 ANSWER_TOO_LARGE if it has more than `left`. */
function boundedLength<Desc extends DescMessage>(desc: Desc, message: MessageShape<Desc>, left = maxReportBytes): number {
  const { length } = toBinary(desc, message)
  if (length > left) throw answerTooLarge(vulnReportTooLarge)
  return length
}

/** Returns the answer. Throws code 9 ANSWER_TOO_LARGE. */
function bounded<Desc extends DescMessage>(desc: Desc, message: MessageShape<Desc>): HandlerAnswer {
  boundedLength(desc, message)
  return { message }
}

/** Resolves with the report about a digest of a repo that the caller may see. */
async function reportAbout(services: Services, context: Context, { repoUid, digest }: GetVulnReportRequest | GetRawVulnReportRequest): Promise<VulnReport> {
  const images = await namedImages(services, context, { repoUid, digest, platform: '' })
  return vulnReport(services, { ...images, digest }, turnOf(context))
}

/** Answers GetVulnReport: all vulnerabilities of an image or index (docs/spec/registry.md#vulnerability-reports). */
export const getVulnReport: Handler = async (services, context, message) => {
  return bounded(VulnReportSchema, await reportAbout(services, context, message as GetVulnReportRequest)) // the method's input
}

/** Answers GetRawVulnReport: the same as a document of CycloneDX (docs/spec/registry.md#vulnerability-reports). */
export const getRawVulnReport: Handler = async (services, context, message) => {
  const request = message as GetRawVulnReportRequest // the method's input
  const report = await reportAbout(services, context, request)
  const { repoUid, digest, scanner, createTime } = report
  const name = services.cache.tables.get('Repo', repoUid)?.name ?? ''
  const raw = create(RawVulnReportSchema, {
    ...{ repoUid, digest, mediaType: cycloneDxType, rawReport: cycloneDxReport(report, name) },
    ...(scanner === undefined ? {} : { scanner }),
    ...(createTime === undefined ? {} : { createTime }),
  })
  return bounded(RawVulnReportSchema, raw)
}

/** Returns the digest that a request names. Throws code 5 if the repo has no such tag, or if the tag has no digest. */
function digestOf({ cache: { tables } }: Services, { repoUid, digest, tag }: ListVulnReportsRequest): string {
  if (digest !== '') return digest
  const name = tag === '' ? defaultTag : tag
  const record = tagNamed(tables, repoUid, name)
  const found = record === undefined ? '' : messageOf(record, 'Tag').digest
  if (found === '') throw notFound('Tag', `${repoUid}:${name}`)
  return found
}

/** Answers ListVulnReports: a report for each image of a digest or tag (docs/spec/registry.md#vulnerability-reports). */
export const listVulnReports: Handler = async (services, context, message) => {
  const request = message as ListVulnReportsRequest // the method's input
  const { createdSince } = request
  const { repo, wanted, read } = await namedImages(services, context, { repoUid: request.repoUid, digest: digestOf(services, request), platform: '' })
  const vulnReports: VulnReport[] = []
  let left = maxReportBytes
  for (const image of wanted) {
    const report = await vulnReport(services, { repo: repo satisfies Uid, digest: image.digest, wanted: [image], read }, turnOf(context))
    const { createTime } = report
    if (createdSince !== undefined && (createTime === undefined || millisecondFrom(createTime) < millisecondFrom(createdSince))) continue
    vulnReports.push(report)
    // Before the next one needs more memory.
    left -= boundedLength(VulnReportSchema, report, left)
  }
  return { message: create(ListVulnReportsResponseSchema, { vulnReports }) }
}
