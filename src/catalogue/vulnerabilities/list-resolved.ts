import { create, toBinary } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { Digest } from '../../base/digest.ts'
import { DomainError, maxViolations } from '../../base/errors.ts'
import type { TaskTurn } from '../../base/task-thread.ts'
import type { Uid } from '../../base/uid.ts'
import type { ImageVulnerability } from '../../cache/lists/contents-source.ts'
import { turnOf, type Handler, type Services } from '../../engine/services.ts'
import {
  ListResolvedVulnsReportsResponseSchema,
  ResolvedVulnsReportSchema,
  type ListResolvedVulnsReportsRequest,
} from '../../gen/taproot/advisory/v2/advisory_pb.ts'
import { answerTooLarge } from '../advisories/visible-advisories.ts'
import { dayMs, daysOf, imagesOf, maxReportBytes, reportTooLarge, type DayRange, type NamedImage } from './report-images.ts'
import { historyAt, readHistory } from '../../registry/index.ts'

/** The most moves of a tag in one answer. */
const maxMoves = 1_000

/** A day on which a tag began to point to other content. */
interface ImageChange {
  readonly repo: Uid
  readonly day: number
  readonly from: Digest
  readonly to: Digest
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
    if (from !== undefined && from !== to) changes.push({ repo, day, from, to })
    from = to
  }
  return changes
}

function tooManyMoves(image: string): DomainError {
  const description = `${image} was moved more than ${maxMoves} times in this period: choose a shorter one`
  return DomainError.precondition([{ type: 'ANSWER_TOO_LARGE', subject: image, description }], { reason: 'ANSWER_TOO_LARGE' })
}

/** Resolves with the vulnerabilities of the images in the changes, by `<repo>@<digest>`. Rejects with code 9 that names images whose contents are not known. */
async function contentsOf(
  { vulnerabilitiesIn }: Services,
  changes: readonly ImageChange[],
  turn: TaskTurn,
): Promise<ReadonlyMap<string, readonly ImageVulnerability[]>> {
  const found = new Map<string, readonly ImageVulnerability[]>()
  const unknown = new Set<string>()
  for (const { repo, digest } of changes.flatMap(({ repo, from, to }) => [from, to].map((digest) => ({ repo, digest })))) {
    const name = `${repo}@${digest}`
    if (found.has(name) || unknown.has(name)) continue
    const contents = await vulnerabilitiesIn({ repo, digest }, turn)
    if (contents === undefined) unknown.add(name)
    else found.set(name, contents)
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
  const contents = await contentsOf(services, changes, turnOf(context))
  const resolved = Array.from({ length: range.days }, () => new Map<string, ImageVulnerability>())
  for (const { repo, day, from, to } of changes) {
    const left = new Set(contents.get(`${repo}@${to}`)?.map(({ id }) => id))
    for (const one of contents.get(`${repo}@${from}`) ?? []) if (!left.has(one.id)) resolved[day]?.set(one.id, one)
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
