import { join } from 'node:path'
import { orderOf, type Order, type OrderTerm, type SortKey } from '../../src/cache/lists/order.ts'
import type { Environment } from '../environment.ts'
import type { Row, RowGroup } from './row.ts'

/** Records of a page. */
const pageSize = 50
/** Number of records in the small catalogue. */
const small = 10_000
/** Each page is read so often, and its shortest time counts. */
const readings = 100
/** So many readers of the same file give a first answer, and the shortest time counts. */
const readers = 3

const orders: readonly (readonly OrderTerm[])[] = [
  [{ field: 'uid', descending: false }],
  [{ field: 'createMs', descending: true }],
  [{ field: 'updateMs', descending: false }],
]

/** The part of a list that is asked for. */
export interface AskedPart {
  readonly order: Order
  readonly after: SortKey | undefined
  readonly skip: number
  readonly limit: number
}

/** A kind of catalogue, with generated content. */
export interface MeasuredCatalogue<Reader> {
  /** In the names of rows and files. */
  readonly name: string
  /** The records, in titles: `advisories`. */
  readonly records: string
  readonly build: (path: string, count: number) => void
  readonly open: (path: string) => Reader & { close(): void }
  /** Returns the last record of the part, and the number of records on all pages. */
  readonly lists: Readonly<Record<string, (reader: Reader, part: AskedPart) => { readonly last: SortKey | undefined; readonly total: number }>>
}

/** Times in milliseconds: of the first answer for a filter, of the next page, and of a list that skips half, again. */
interface PageTimes {
  readonly first: number
  readonly next: number
  readonly skip: number
}

function timeOf(work: () => unknown): number {
  const startMs = performance.now()
  work()
  return performance.now() - startMs
}

function shortestTimeOf(work: () => unknown): number {
  return Math.min(...Array.from({ length: readings }, () => timeOf(work)))
}

function pageTimes<Reader>(fresh: readonly Reader[], list: MeasuredCatalogue<Reader>['lists'][string], order: readonly OrderTerm[]): PageTimes {
  const [reader] = fresh
  if (reader === undefined) throw new Error('a list is read without a reader')
  const start: AskedPart = { order: orderOf(order), after: undefined, skip: 0, limit: pageSize }
  const firstTimeOf = (part: AskedPart): number => Math.min(...fresh.map((one) => timeOf(() => list(one, part))))
  const first = firstTimeOf(start)
  const { last, total } = list(reader, start)
  if (total < 2 * pageSize) throw new Error('a filter has fewer results than two pages')
  const next = shortestTimeOf(() => list(reader, { ...start, after: last }))
  const far = { ...start, skip: Math.floor(total / 2) }
  const firstSkip = firstTimeOf(far)
  return { first: Math.max(first, firstSkip), next, skip: shortestTimeOf(() => list(reader, far)) }
}

/** Returns the times of all filters and orders, by name. */
function timesOf<Reader>(environment: Environment, catalogue: MeasuredCatalogue<Reader>, count: number): Promise<ReadonlyMap<string, PageTimes>> {
  const { name, records, build, open, lists } = catalogue
  return environment.once(`${name} ${count}`, async () => {
    environment.progress(`building a catalogue of ${count} ${records}`)
    const path = join(await environment.directory(), `${name}-${count}.sqlite`)
    build(path, count)
    const fresh = Array.from({ length: readers }, () => open(path))
    const times = Object.entries(lists).flatMap(([filter, list]) =>
      orders.map((order) => [`${filter} by ${order[0]?.field ?? ''}`, pageTimes(fresh, list, order)] as const),
    )
    for (const one of fresh) one.close()
    return new Map(times)
  })
}

async function growthOf<Reader>(environment: Environment, catalogue: MeasuredCatalogue<Reader>): Promise<Row> {
  const { largeRecords } = environment.scale
  const [before, after] = [await timesOf(environment, catalogue, small), await timesOf(environment, catalogue, largeRecords)]
  const ratios = [...after].map(([name, { next }]) => ({ name, ratio: next / (before.get(name)?.next ?? NaN) }))
  const worst = ratios.reduce((one, other) => (other.ratio > one.ratio ? other : one))
  const title = `catalogue: next page at ${largeRecords.toLocaleString('en')} to ${small.toLocaleString('en')} ${catalogue.records}, the worst filter`
  return { id: `${catalogue.name}-growth`, title, unit: 'x', value: worst.ratio, goal: { atMost: 1.5 }, measured: [], note: worst.name }
}

/** The other rows: the longest time of one sort at the large size, with its title and goal in milliseconds. */
const sorts = [
  { id: 'page', of: 'next', title: 'next page', goal: 20 },
  { id: 'first', of: 'first', title: 'first answer', goal: 300 },
  { id: 'skip', of: 'skip', title: 'skip of half, again', goal: 5 },
] as const

/** Returns the rows of a kind of catalogue. */
export function rowsOfCatalogue<Reader>(catalogue: MeasuredCatalogue<Reader>, about: string): RowGroup {
  const { name, records } = catalogue
  return {
    name,
    about,
    rows: [
      { id: `${name}-growth`, measure: (environment) => growthOf(environment, catalogue) },
      ...sorts.map((sort) => ({
        id: `${name}-${sort.id}`,
        async measure(environment: Environment): Promise<Row> {
          const { largeRecords } = environment.scale
          const times = await timesOf(environment, catalogue, largeRecords)
          const worst = [...times].reduce((one, other) => (other[1][sort.of] > one[1][sort.of] ? other : one))
          const title = `catalogue: ${sort.title} at ${largeRecords.toLocaleString('en')} ${records}, the worst filter`
          return { id: `${name}-${sort.id}`, title, unit: 'ms', value: worst[1][sort.of], goal: { atMost: sort.goal }, measured: [], note: worst[0] }
        },
      })),
    ],
  }
}
