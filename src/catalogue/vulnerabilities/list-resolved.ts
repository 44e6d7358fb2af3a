import { create, toBinary } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { Digest } from '../../base/digest.ts'
import { DomainError, maxViolations } from '../../base/errors.ts'
import type { TaskTurn } from '../../base/task-thread.ts'
import type { ImageVulnerability } from '../../cache/lists/contents-source.ts'
import { turnOf, type Handler, type Services } from '../../engine/services.ts'
import {
  ListResolvedVulnsReportsResponseSchema,
  ResolvedVulnsReportSchema,
  type ListResolvedVulnsReportsRequest,
} from '../../gen/taproot/advisory/v2/advisory_pb.ts'
import { answerTooLarge } from '../advisories/visible-advisories.ts'
import { dayMs, daysOf, imagesOf, maxReportBytes, reportTooLarge, type DayRange, type NamedImage } from './report-images.ts'
import { heldManifest, historyAt, readHistory } from '../../registry/index.ts'

/** The most moves of a tag in one answer. */
const maxMoves = 1_000

/** An image that a tag pointed to at the end of a day. */
interface TaggedImage extends NamedImage {
  readonly digest: Digest
  /** Whole days since 1970. */
  readonly date: number
}

/** A day, counted from the first one, on which a tag began to point to other content. */
interface ImageChange {
  readonly day: number
  readonly from: TaggedImage
  readonly to: TaggedImage
}

/** Returns the days at whose end an image was another one than a day before. */
async function changesOf(
  { store }: Services,
  { repo, tag: name }: NamedImage,
  { range, signal }: { range: DayRange; signal: AbortSignal },
): Promise<ImageChange[]> {
  const { firstMs, days } = range
  const tag = { repo, name }
  const window = { ...tag, startMs: firstMs, endMs: firstMs + days * dayMs, limit: maxMoves }
  const [before, history] = await Promise.all([historyAt(store, { ...tag, timeMs: firstMs - 1 }, signal), readHistory({ store }, window, signal)])
  if (history?.more === true) throw tooManyMoves(`${repo}:${name}`)
  const ends = new Map((history?.records ?? []).map(({ timeMs, digest }) => [Math.floor((timeMs - firstMs) / dayMs), digest]))
  const changes: ImageChange[] = []
  let from = before === '' ? undefined : before
  for (const [day, to] of ends) {
    const date = firstMs / dayMs + day
    if (from !== undefined && from !== to)
      changes.push({ day, from: { repo, tag: name, digest: from, date: date - 1 }, to: { repo, tag: name, digest: to, date } })
    from = to
  }
  return changes
}

function tooManyMoves(image: string): DomainError {
  const description = `${image} was moved more than ${maxMoves} times in this period: choose a shorter one`
  return DomainError.precondition([{ type: 'ANSWER_TOO_LARGE', subject: image, description }], { reason: 'ANSWER_TOO_LARGE' })
}

/** Resolves with the vulnerabilities in an image, as known now. If the image is gone, with those that were recorded for its tag; undefined if they are not known. */
async function contentsOf(
  services: Services,
  { repo, tag: name, digest, date }: TaggedImage,
  turn: TaskTurn,
): Promise<readonly ImageVulnerability[] | undefined> {
  const found = await services.vulnerabilitiesIn({ repo, digest }, turn)
  if (found !== undefined || (await heldManifest(services, { repo, digest }, turn.signal)) !== undefined) return found
  return services.recordedVulnerabilities({ repo, name, date }, turn.signal)
}

type KnownContents = ReadonlyMap<TaggedImage, readonly ImageVulnerability[]>

/** Resolves with the vulnerabilities of the images in the changes. Rejects with code 9 that names images whose contents are not known. */
async function allContents(services: Services, changes: readonly ImageChange[], turn: TaskTurn): Promise<KnownContents> {
  const found = new Map<TaggedImage, readonly ImageVulnerability[]>()
  const unknown = new Set<string>()
  for (const image of changes.flatMap(({ from, to }) => [from, to])) {
    const contents = await contentsOf(services, image, turn)
    if (contents === undefined) unknown.add(`${image.repo}@${image.digest}`)
    else found.set(image, contents)
  }
  if (unknown.size === 0) return found
  const violations = [...unknown]
    .slice(0, maxViolations)
    .map((subject) => ({ type: 'CONTENTS_UNKNOWN', subject, description: `the contents of ${subject} are not known` }))
  throw DomainError.precondition(violations, { reason: 'CONTENTS_UNKNOWN' })
}

/** Answers ListResolvedVulnsReports: for each day, the vulnerabilities that images no longer had at its end (docs/spec/vulnerability-metadata.md#resolved-reports). */
export const listResolvedVulnsReports: Handler = async (services, context, message) => {
  const request = message as ListResolvedVulnsReportsRequest // the method's input
  const range = daysOf(request)
  const images = imagesOf(services, context, request.imageRefs)
  const changes = (await Promise.all(images.map((image) => changesOf(services, image, { range, signal: context.signal })))).flat()
  const contents = await allContents(services, changes, turnOf(context))
  const resolved = Array.from({ length: range.days }, () => new Map<string, ImageVulnerability>())
  for (const { day, from, to } of changes) {
    const left = new Set(contents.get(to)?.map(({ id }) => id))
    for (const one of contents.get(from) ?? []) if (!left.has(one.id)) resolved[day]?.set(one.id, one)
  }
  const all = resolved.flatMap((ofDay) => [...ofDay.values()])
  const source = all.length === 0 ? undefined : services.catalogue('vulnerabilities')
  const scores =
    (await source?.scores(
      all.map(({ id, aliases }) => [id, ...aliases]),
      turnOf(context),
    )) ?? []
  const scored = new Map(all.map((one, at) => [one, scores[at] ?? []]))
  const resolvedVulnsReports = resolved.map((ofDay, day) =>
    create(ResolvedVulnsReportSchema, {
      date: timestampFromMs(range.firstMs + day * dayMs),
      resolvedVulns: [...ofDay.values()]
        .sort((a, b) => (a.id < b.id ? -1 : 1))
        .map((one) => ({ id: one.id, aliases: [...one.aliases], cvssSeverities: [...(scored.get(one) ?? [])] })),
    }),
  )
  const answer = create(ListResolvedVulnsReportsResponseSchema, { resolvedVulnsReports })
  if (toBinary(ListResolvedVulnsReportsResponseSchema, answer).length > maxReportBytes) throw answerTooLarge(reportTooLarge)
  return { message: answer }
}
