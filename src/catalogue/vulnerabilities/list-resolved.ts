import { create, toBinary } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { Digest } from '../../base/digest.ts'
import { DomainError, maxViolations } from '../../base/errors.ts'
import { RecentMap } from '../../base/recent-map.ts'
import type { TaskTurn } from '../../base/task-thread.ts'
import type { ImageVulnerability, RecordedImages } from '../../cache/lists/contents-source.ts'
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
/** The most vulnerabilities that one answer remembers, of the images that it needed last. */
const rememberedVulnerabilities = 500_000

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

/** What an image has, as known now. */
type KnownNow = { readonly kind: 'known'; readonly found: readonly ImageVulnerability[] } | { readonly kind: 'unknown' | 'gone' }

/** What both images of a change had, by the same advisories or as it was recorded. The names of images whose contents are not known. */
type Compared = { readonly from: readonly ImageVulnerability[]; readonly to: readonly ImageVulnerability[] } | { readonly unknown: readonly string[] }

const nameOf = ({ repo, digest }: TaggedImage): string => `${repo}@${digest}`

/** Looks up the images of one answer, each once. */
class ChangedImages {
  readonly #services: Services
  readonly #turn: TaskTurn
  readonly #known = new RecentMap<string, KnownNow>(rememberedVulnerabilities, (one) => 1 + (one.kind === 'known' ? one.found.length : 0))

  constructor(services: Services, turn: TaskTurn) {
    this.#services = services
    this.#turn = turn
  }

  /** Resolves with what the images of the changes of one tag had, in their order. What is known now is never compared with what was recorded. */
  async ofTag(changes: readonly ImageChange[], recorded: () => Promise<RecordedImages>): Promise<Compared[]> {
    const compared: Compared[] = []
    let records: RecordedImages | undefined
    for (const { from, to } of changes) {
      const [before, after] = [await this.#now(from), await this.#now(to)]
      if (before.kind === 'gone' || after.kind === 'gone') {
        records ??= await recorded()
        const [had, has] = [records(from.digest, from.date), records(to.digest, to.date)]
        const gone = [...(before.kind === 'gone' ? [from] : []), ...(after.kind === 'gone' ? [to] : [])]
        compared.push(had === undefined || has === undefined ? { unknown: gone.map(nameOf) } : { from: had, to: has })
      } else if (before.kind === 'known' && after.kind === 'known') compared.push({ from: before.found, to: after.found })
      else compared.push({ unknown: [...(before.kind === 'unknown' ? [from] : []), ...(after.kind === 'unknown' ? [to] : [])].map(nameOf) })
    }
    return compared
  }

  async #now(image: TaggedImage): Promise<KnownNow> {
    const name = nameOf(image)
    const known = this.#known.get(name) ?? (await this.#look(image))
    this.#known.set(name, known)
    return known
  }

  async #look({ repo, digest }: TaggedImage): Promise<KnownNow> {
    const found = await this.#services.vulnerabilitiesIn({ repo, digest }, this.#turn)
    if (found !== undefined) return { kind: 'known', found }
    const isHeld = (await heldManifest(this.#services, { repo, digest }, this.#turn.signal)) !== undefined
    return { kind: isHeld ? 'unknown' : 'gone' }
  }
}

/** Returns the vulnerabilities that only the first image has, under any of their names. */
function resolvedBetween(from: readonly ImageVulnerability[], to: readonly ImageVulnerability[]): ImageVulnerability[] {
  const left = new Set(to.flatMap(({ id, aliases }) => [id, ...aliases]))
  return from.filter(({ id, aliases }) => ![id, ...aliases].some((name) => left.has(name)))
}

/** Adds what was resolved by the changes of tags to each day. Rejects with code 9 that names images whose contents are not known. */
async function addResolved(
  services: Services,
  { changes, range, turn }: { readonly changes: readonly (readonly ImageChange[])[]; readonly range: DayRange; readonly turn: TaskTurn },
  resolved: readonly Map<string, ImageVulnerability>[],
): Promise<void> {
  const images = new ChangedImages(services, turn)
  const unknown = new Set<string>()
  for (const ofTag of changes) {
    const [first] = ofTag
    if (first === undefined) continue
    // Also the day before the first one.
    const days = { repo: first.from.repo, name: first.from.tag, date: range.firstMs / dayMs - 1, days: range.days + 1 }
    const compared = await images.ofTag(ofTag, () => services.recordedVulnerabilities(days, turn.signal))
    for (const [at, one] of compared.entries()) {
      if ('unknown' in one) for (const name of one.unknown) unknown.add(name)
      else for (const left of resolvedBetween(one.from, one.to)) resolved[ofTag[at]?.day ?? 0]?.set(left.id, left)
    }
  }
  if (unknown.size === 0) return
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
  const changes = await Promise.all(images.map((image) => changesOf(services, image, { range, signal: context.signal })))
  const resolved = Array.from({ length: range.days }, () => new Map<string, ImageVulnerability>())
  await addResolved(services, { changes, range, turn: turnOf(context) }, resolved)
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
