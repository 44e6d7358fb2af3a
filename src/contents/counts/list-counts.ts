import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { answerTooLarge, dayMs, daysOf, imagesOf, maxReportBytes, reportTooLarge, type DayRange, type NamedImage } from '../../catalogue/index.ts'
import type { RecordedImages, TagDays } from '../../cache/lists/contents-source.ts'
import type { Handler, Services } from '../../engine/services.ts'
import {
  ListVulnCountReportsResponseSchema,
  VulnCountReportSchema,
  VulnCountSchema,
  type ListVulnCountReportsRequest,
  type VulnCount,
  type VulnCountReport,
} from '../../gen/taproot/registry/v2/vuln_reports_pb.ts'
import { countsKey, decodeStates, knownState, monthDay, monthsBefore, stateOn, type CountedState, type TagStates } from './tag-month.ts'
import { severitiesByRank } from './tag-state.ts'

type KnownState = CountedState & { readonly kind: 'known' }

/** Room of a report and of a count in an answer besides names and ids, in bytes. */
const reportBytes = 120
const countBytes = 12

/** Returns the states of a tag by month. It also has the months before that may say what held at the start. */
async function monthsOf(
  { store }: Services,
  { image: { repo, tag: name }, range }: { readonly image: NamedImage; readonly range: DayRange },
  signal: AbortSignal,
): Promise<ReadonlyMap<string, TagStates>> {
  const first = range.firstMs / dayMs
  const months = new Set(Array.from({ length: range.days }, (_, at) => monthDay(first + at).month))
  for (const month of monthsBefore(monthDay(first).month)) months.add(month)
  const entries = await Promise.all([...months].map(async (month) => [month, await store.get(countsKey(month, { repo, name }), signal)] as const))
  return new Map(entries.flatMap(([month, entry]) => (entry === undefined ? [] : [[month, decodeStates(entry.value)] as const])))
}

/** Returns the state of a tag at the end of a day, whole days since 1970. */
function stateAt(months: ReadonlyMap<string, TagStates>, date: number): CountedState | undefined {
  const { month, day } = monthDay(date)
  // Each month repeats what holds at its start, but not at its first moment.
  const earlier = monthsBefore(month).map((one) => months.get(one)?.at(-1)?.state)
  return stateOn(months.get(month) ?? [], day) ?? earlier.find((state) => state !== undefined)
}

/** Resolves with a function that returns what was recorded for a tag in a range of days. It returns undefined if the tag had another image, or its ids are not known. */
export async function recordedVulnerabilities(services: Services, { repo, name: tag, date, days }: TagDays, signal: AbortSignal): Promise<RecordedImages> {
  const months = await monthsOf(services, { image: { repo, tag }, range: { firstMs: date * dayMs, days } }, signal)
  return (digest, on) => {
    const state = stateAt(months, on)
    if (state?.kind !== 'known' || state.digest !== digest || state.severities === undefined) return undefined
    const { aliases } = state
    return [...state.severities.keys()].map((id) => ({ id, aliases: aliases.get(id) ?? [] }))
  }
}

/** Returns the counts of a state, the worst severity first. */
function countsOf({ counts, severities }: KnownState): VulnCount[] {
  const ids = Map.groupBy(severities?.keys() ?? [], (id) => severities?.get(id))
  return severitiesByRank.flatMap((severityLevel) => {
    const count = counts[severityLevel] ?? 0
    return count === 0 ? [] : [create(VulnCountSchema, { severityLevel, count, ids: ids.get(severityLevel)?.sort() ?? [] })]
  })
}

/** Returns a function that adds each state to those before it. */
function accumulator(): (state: KnownState) => KnownState {
  const all = new Map<string, number>()
  let most: readonly number[] = []
  return ({ counts, severities, size }) => {
    for (const [id, severity] of severities ?? []) all.set(id, severity)
    // Without ids, at least as many are known as on the day that had most.
    if (severities === undefined) most = counts.map((count, at) => Math.max(count, most[at] ?? 0))
    const sum = knownState(new Map(all), size) as KnownState // it makes no other kind
    return { ...sum, counts: sum.counts.map((count, at) => Math.max(count, most[at] ?? 0)) }
  }
}

/** Makes the reports of an answer. Throws code 9 ANSWER_TOO_LARGE before they need much memory. */
class CountReports {
  readonly reports: VulnCountReport[] = []
  readonly #services: Services
  readonly #isCumulative: boolean
  #bytes = 0

  constructor(services: Services, isCumulative: boolean) {
    this.#services = services
    this.#isCumulative = isCumulative
  }

  /** Adds the reports of a tag: one for each day on which its vulnerabilities are known. */
  async add(image: NamedImage, range: DayRange, signal: AbortSignal): Promise<void> {
    const { clock, cache } = this.#services
    const repo = cache.tables.get('Repo', image.repo)?.name ?? ''
    const months = await monthsOf(this.#services, { image, range }, signal)
    const first = range.firstMs / dayMs
    const today = Math.floor(clock.now() / dayMs)
    const sumOf = this.#isCumulative ? accumulator() : (state: KnownState) => state
    let before: CountedState | undefined
    let sum: { readonly size: number; readonly counts: VulnCount[] } = { size: 0, counts: [] }
    for (let date = first; date < first + range.days && date <= today; date++) {
      const state = stateAt(months, date)
      if (state?.kind !== 'known') continue
      if (state !== before) {
        const total = sumOf(state)
        sum = { size: total.size, counts: countsOf(total) }
      }
      before = state
      this.#reserve(image, sum.counts)
      const names = { repoUid: image.repo, repo, tag: image.tag }
      this.reports.push(create(VulnCountReportSchema, { ...names, date: timestampFromMs(date * dayMs), vulnCounts: sum.counts, sizeBytes: BigInt(sum.size) }))
    }
  }

  #reserve({ repo, tag }: NamedImage, counts: readonly VulnCount[]): void {
    this.#bytes += reportBytes + repo.length + tag.length
    for (const { ids } of counts) this.#bytes += countBytes + ids.reduce((sum, id) => sum + id.length + 3, 0)
    if (this.#bytes > maxReportBytes) throw answerTooLarge(reportTooLarge)
  }
}

function listReports(isCumulative: boolean): Handler {
  return async (services, context, message) => {
    const request = message as ListVulnCountReportsRequest // the method's input
    const range = daysOf(request)
    const made = new CountReports(services, isCumulative)
    for (const image of imagesOf(services, context, request.imageRefs)) await made.add(image, range, context.signal)
    return { message: create(ListVulnCountReportsResponseSchema, { vulnCountReports: made.reports }) }
  }
}

/** Answers ListVulnCountReports: the vulnerabilities of tags by day (docs/spec/registry.md#vulnerabilities-over-time). */
export const listVulnCountReports = listReports(false)

/** Answers ListCumulativeVulnCountReports: for each day, all that a tag had since the first one (docs/spec/registry.md#vulnerabilities-over-time). */
export const listCumulativeVulnCountReports = listReports(true)
