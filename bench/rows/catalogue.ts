import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { trustedUid } from '../../src/base/uid.ts'
import type { AdvisoryFilter, AdvisoryQuery, FacetValues } from '../../src/cache/lists/advisory-source.ts'
import { orderOf, type OrderTerm } from '../../src/cache/lists/order.ts'
import { AdvisoryBuilder } from '../../src/catalogue/advisories/advisory-builder.ts'
import { AdvisoryReader } from '../../src/catalogue/advisories/advisory-reader.ts'
import { AdvisoryEventSchema, AdvisorySchema, ReviewState } from '../../src/gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import type { Environment } from '../environment.ts'
import type { Row, RowGroup } from './row.ts'

const group = trustedUid('c'.repeat(40))
const pageSize = 50
/** Number of advisories in the small catalogue. */
const small = 10_000
/** Each page is read so often, and its shortest time counts. */
const readings = 10
/** So many readers of the same file give a first answer, and the shortest time counts. */
const readers = 3

const anyOf = (...values: FacetValues[]): Partial<AdvisoryFilter> => ({ anyOf: values })
const filters: Readonly<Record<string, Partial<AdvisoryFilter>>> = {
  'no filter': {},
  'one of 5 types': anyOf(['artifactType', ['type-1']]),
  'two types': anyOf(['artifactType', ['type-1', 'type-2']]),
  'one of 10 authors': anyOf(['eventAuthor', ['author-7']]),
  'two filters': anyOf(['artifactType', ['type-1']], ['eventAuthor', ['author-7']]),
  'without an author': { noneOf: [['eventAuthor', ['author-7']]] },
  'query with few results': { text: 'package-77' },
  'query with all results': { text: 'package' },
}

const orders: readonly (readonly OrderTerm[])[] = [
  [{ field: 'uid', descending: false }],
  [{ field: 'createMs', descending: true }],
  [{ field: 'updateMs', descending: false }],
]

/** Times in milliseconds: of the first answer for a filter, of the next page, and of a list that skips half, again. */
interface PageTimes {
  readonly first: number
  readonly next: number
  readonly skip: number
}

function build(path: string, count: number): void {
  const builder = new AdvisoryBuilder({ path, group, isNew: true })
  for (let at = 0; at < count; at += 1) {
    const spread = (at * 2_654_435_761) % 2 ** 32
    const createTime = timestampFromMs(Date.UTC(2020, 0) + spread)
    const event = create(AdvisoryEventSchema, { createTime, author: `author-${spread % 10}`, reviewState: ReviewState.APPROVED })
    const advisory = create(AdvisorySchema, {
      advisoryId: `ID-${at}`,
      createTime,
      updateTime: timestampFromMs(Date.UTC(2021, 0) + ((spread * 7) % 2 ** 32)),
      artifactName: `package-${spread % (count / 10)}`,
      artifactType: `type-${at % 5}`,
      aliases: [`ALIAS-${at}`],
      events: [event],
    })
    builder.put({ segment: createHash('sha256').update(String(at)).digest('hex').slice(0, 16), origin: `package-${at % 1_000}`, advisory })
  }
  builder.finish({ source: 'bench', nowMs: 0 })
}

function timeOf(work: () => unknown): number {
  const startMs = performance.now()
  work()
  return performance.now() - startMs
}

function shortestTimeOf(work: () => unknown): number {
  return Math.min(...Array.from({ length: readings }, () => timeOf(work)))
}

function pageTimes(fresh: readonly [AdvisoryReader, ...AdvisoryReader[]], filter: Partial<AdvisoryFilter>, order: readonly OrderTerm[]): PageTimes {
  const whole = { groups: [group], uids: undefined, anyOf: [], noneOf: [], text: '', ...filter }
  const query: AdvisoryQuery = { filter: whole, order: orderOf(order), after: undefined, skip: 0, limit: pageSize }
  const firstTimeOf = (asked: AdvisoryQuery): number => Math.min(...fresh.map((one) => timeOf(() => one.page(asked))))
  const [reader] = fresh
  const first = firstTimeOf(query)
  const { advisories, total } = reader.page(query)
  if (total < 2 * pageSize) throw new Error('a filter has fewer results than two pages')
  const next = shortestTimeOf(() => reader.page({ ...query, after: advisories.at(-1) }))
  const far = { ...query, skip: Math.floor(total / 2) }
  const firstSkip = firstTimeOf(far)
  return { first: Math.max(first, firstSkip), next, skip: shortestTimeOf(() => reader.page(far)) }
}

/** Returns the times of all filters and orders, by name. */
function timesOf(environment: Environment, count: number): Promise<ReadonlyMap<string, PageTimes>> {
  return environment.once(`catalogue ${count}`, async () => {
    environment.progress(`building a catalogue of ${count} advisories`)
    const path = join(await environment.directory(), `advisories-${count}.sqlite`)
    build(path, count)
    const open = (): AdvisoryReader => new AdvisoryReader(path)
    const fresh = [open(), ...Array.from({ length: readers - 1 }, open)] as const
    const times = Object.entries(filters).flatMap(([name, filter]) =>
      orders.map((order) => [`${name} by ${order[0]?.field ?? ''}`, pageTimes(fresh, filter, order)] as const),
    )
    for (const one of fresh) one.close()
    return new Map(times)
  })
}

async function measureGrowth(environment: Environment): Promise<Row> {
  const { largeRecords } = environment.scale
  const [before, after] = [await timesOf(environment, small), await timesOf(environment, largeRecords)]
  const ratios = [...after].map(([name, { next }]) => ({ name, ratio: next / (before.get(name)?.next ?? NaN) }))
  const worst = ratios.reduce((one, other) => (other.ratio > one.ratio ? other : one))
  const title = `catalogue: next page at ${largeRecords.toLocaleString('en')} to ${small.toLocaleString('en')} advisories, the worst filter`
  return { id: 'catalogue-growth', title, unit: 'x', value: worst.ratio, goal: { atMost: 1.5 }, measured: [], note: worst.name }
}

/** Returns a row with the longest time of one sort at the large size. */
async function longest(environment: Environment, id: string, { of, title, goal }: { of: keyof PageTimes; title: string; goal: number }): Promise<Row> {
  const { largeRecords } = environment.scale
  const times = await timesOf(environment, largeRecords)
  const worst = [...times].reduce((one, other) => (other[1][of] > one[1][of] ? other : one))
  const full = `catalogue: ${title} at ${largeRecords.toLocaleString('en')} advisories, the worst filter`
  return { id, title: full, unit: 'ms', value: worst[1][of], goal: { atMost: goal }, measured: [], note: worst[0] }
}

/** Lists of advisories from a catalogue. */
export const catalogueRows: RowGroup = {
  name: 'catalogue',
  about: 'pages of advisories: many against 10,000, the first answer for a filter, and a list that skips half of them again',
  rows: [
    { id: 'catalogue-growth', measure: measureGrowth },
    { id: 'catalogue-page', measure: (environment) => longest(environment, 'catalogue-page', { of: 'next', title: 'next page', goal: 20 }) },
    { id: 'catalogue-first', measure: (environment) => longest(environment, 'catalogue-first', { of: 'first', title: 'first answer', goal: 300 }) },
    { id: 'catalogue-skip', measure: (environment) => longest(environment, 'catalogue-skip', { of: 'skip', title: 'skip of half, again', goal: 5 }) },
  ],
}
