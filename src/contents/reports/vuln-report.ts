import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { TaskTurn } from '../../base/task-thread.ts'
import { vulnerabilityStates, type PackageVulnerability } from '../../cache/lists/contents-source.ts'
import { answerTooLarge, readVectors } from '../../catalogue/index.ts'
import type { Services } from '../../engine/services.ts'
import type { VulnerabilityMetadata } from '../../gen/taproot/advisory/v2/advisory_pb.ts'
import {
  CvssScoreSchema,
  VulnFix_State,
  VulnFixSchema,
  VulnMatchSchema,
  VulnReportSchema,
  VulnScannerSchema,
  type VulnFix,
  type VulnMatch,
  type VulnReport,
} from '../../gen/taproot/registry/v2/vuln_reports_pb.ts'
import { findVulnerabilities } from '../image-vulnerabilities.ts'
import { contentsMessage, type NamedImages } from '../named-images.ts'
import { comparePlaces, metadataOf, placeOf, vulnerabilityMessage } from '../vulnerability-message.ts'

const scannerName = 'taproot'
/** The most vulnerabilities of a report. One needs 300 bytes at least. */
const maxMatches = 10_000
/** Number of vulnerabilities whose metadata is read together. */
const metadataAtOnce = 100
/** The most characters of a description, and the most links. */
const maxDescription = 500
const maxUrls = 10

/** What to do about a report that is too large. */
export const vulnReportTooLarge = 'the report is too large: list the vulnerabilities in pages'

function descriptionOf({ summary = '', details = '' }: Partial<VulnerabilityMetadata>): string {
  return (summary === '' ? details : summary).slice(0, maxDescription).toWellFormed()
}

/** Returns whether a vulnerability has a fix. Without a fixed version, only a determination says that there is none. */
function fixOf({ fixedVersion, rule }: PackageVulnerability): VulnFix {
  if (fixedVersion !== '') return create(VulnFixSchema, { state: VulnFix_State.FIXED, versions: [fixedVersion] })
  const state = rule === 'fix not planned' ? VulnFix_State.WONT_FIX : rule === 'pending upstream fix' ? VulnFix_State.NOT_FIXED : VulnFix_State.UNKNOWN
  return create(VulnFixSchema, { state })
}

function matchOf(found: PackageVulnerability, metadata: VulnerabilityMetadata | undefined): VulnMatch {
  const vulnerability = vulnerabilityMessage(found, metadata)
  return create(VulnMatchSchema, {
    vulnerability,
    description: descriptionOf(metadata ?? {}),
    relatedUrls: (metadata?.references ?? []).slice(0, maxUrls).map(({ url }) => url),
    cvss: readVectors(vulnerability.severities).map((vector) => create(CvssScoreSchema, vector)),
    fix: fixOf(found),
  })
}

/** The images of a report, and the digest that it is about. */
export interface ReportedImages extends NamedImages {
  readonly digest: string
}

/** Resolves with the report about images, as the catalogues say now. Rejects with code 9 ANSWER_TOO_LARGE, and with code 14 while the process still loads its data. */
export async function vulnReport(services: Services, { repo, digest, wanted, read }: ReportedImages, turn: TaskTurn): Promise<VulnReport> {
  const images = wanted.flatMap((image) => read.get(image.digest) ?? [])
  const found = [...(await findVulnerabilities(services, { images, index: digest, states: vulnerabilityStates.slice(0, 2) }, turn))]
  if (found.length > maxMatches) throw answerTooLarge(vulnReportTooLarge)
  const ids = [...new Set(found.map(({ id }) => id))]
  const metadata = new Map<string, VulnerabilityMetadata>()
  for (let at = 0; at < ids.length; at += metadataAtOnce)
    for (const [id, one] of await metadataOf(services, ids.slice(at, at + metadataAtOnce), turn)) metadata.set(id, one)
  const kept = (await services.catalogues?.kept(turn.signal)) ?? []
  const importedMs = kept.find(({ kind, isCurrent }) => kind === 'advisories' && isCurrent)?.publishedMs
  const createdMs = Math.max(importedMs ?? 0, ...images.map(({ readMs }) => readMs))
  const importTime = importedMs === undefined ? {} : { dbBuildTime: timestampFromMs(importedMs) }
  const readers = Math.max(0, ...images.map((image) => image.readers))
  return create(VulnReportSchema, {
    ...{ repoUid: repo, digest },
    scanner: create(VulnScannerSchema, { name: scannerName, version: readers === 0 ? '' : String(readers), ...importTime }),
    ...(createdMs === 0 ? {} : { createTime: timestampFromMs(createdMs) }),
    matches: found.sort((one, other) => comparePlaces(placeOf(one), placeOf(other))).map((one) => matchOf(one, metadata.get(one.id))),
    images: wanted.map((image) => contentsMessage(image, read.get(image.digest))),
    hasAdvisories: importedMs !== undefined,
  })
}
