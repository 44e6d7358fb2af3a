import { subjects } from '../data/generate.ts'
import type { Environment, Stored } from '../environment.ts'
import { compare } from '../measure.ts'
import type { Taproot } from '../subjects/taproot.ts'
import { gets, listPath, taprootLoad } from './loads.ts'
import { costRow, type Row, type RowGroup } from './row.ts'

const goal = { atMost: 1.5 }
const pageSize = 50

/** A way to request a page of a list. */
interface Page {
  readonly id: string
  readonly title: string
  readonly subject: string
  /** Returns the path of the page, for a list with `total` results. */
  path(server: Taproot, total: number, token: string): Promise<string> | string
}

/** Returns the path of the last page, found by its page token as a client does. */
async function lastPage(server: Taproot, total: number, token: string): Promise<string> {
  const before = await server.call(token, listPath({ skip: String(Math.max(0, total - 2 * pageSize)) }))
  return listPath({ pageToken: String(before['nextPageToken']) })
}

const pages: readonly Page[] = [
  { id: 'growth-first', title: 'first page', subject: subjects.operator, path: () => listPath() },
  { id: 'growth-last', title: 'last page', subject: subjects.operator, path: lastPage },
  {
    id: 'growth-skip',
    title: 'skip of 90 %',
    subject: subjects.operator,
    path: (_server, total) => listPath({ skip: String(Math.floor(total * 0.9) - pageSize) }),
  },
  { id: 'growth-few', title: 'caller who sees 20 groups', subject: subjects.few, path: () => listPath() },
]

async function candidateOf(environment: Environment, page: Page, records: number) {
  const server = await environment.taproot({ records })
  const { etcd }: Stored = await environment.stored(records)
  const load = await taprootLoad(server, page.subject, { connections: environment.scale.connections, requests: [] })
  const token = load.headers['authorization']?.replace('Bearer ', '') ?? ''
  // Views are built on first use, so this request comes before the measurement.
  const total = Number((await server.call(token, listPath()))['totalCount'])
  const path = await page.path(server, total, token)
  const items = (await server.call(token, path))['identities']
  if (!Array.isArray(items) || items.length !== pageSize) throw new Error(`${path} returned fewer records than a full page`)
  return { load: { ...load, requests: gets([path]) }, pids: [server.pid, etcd.pid], name: `${records.toLocaleString('en')} records`, total }
}

async function rowOf(environment: Environment, page: Page): Promise<Row> {
  const { smallRecords, largeRecords, rounds } = environment.scale
  const large = await candidateOf(environment, page, largeRecords)
  const small = await candidateOf(environment, page, smallRecords)
  return environment.withGenerators([large.load, small.load], async ([first, second]) => {
    const comparison = await compare({ ...large, generator: first }, { ...small, generator: second }, rounds)
    const title = `${page.title}: cost at ${largeRecords.toLocaleString('en')} to ${smallRecords.toLocaleString('en')} records`
    const note = `lists of ${large.total.toLocaleString('en')} and ${small.total.toLocaleString('en')} results`
    return costRow({ id: page.id, title, goal, note }, comparison)
  })
}

/** Cost of a page by the number of records. */
export const growthRows: RowGroup = {
  name: 'growth',
  about: 'a page of 50 with filter, order and total count: many records against 1,000, for several pages and callers',
  needs: 'etcd',
  rows: pages.map((page) => ({ id: page.id, measure: (environment) => rowOf(environment, page) })),
}
