import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { Etcd3 } from 'etcd3'
import { subjects } from '../data/generate.ts'
import type { Environment } from '../environment.ts'
import type { HttpLoad, HttpRequest, TransactionShape } from '../load/load.ts'
import { compare } from '../measure.ts'
import type { Taproot } from '../subjects/taproot.ts'
import { taprootLoad } from './loads.ts'
import { costRow, ratioRow, type Row, type RowGroup } from './row.ts'
import { shapeOfCreation } from './transaction-shape.ts'

const description = 'A group that the benchmark made'

function creation(parent: string): HttpRequest {
  return { method: 'POST', path: `/iam/v2/groups/${parent}`, body: JSON.stringify({ name: 'team-$N', description }) }
}

async function createOne(server: Taproot, subject: string, parent: string): Promise<string> {
  const name = `team-${Date.now().toString(16).padStart(12, '0')}`
  return String((await server.call(await server.tokenOf(subject), `/iam/v2/groups/${parent}`, { name, description }))['uid'])
}

function describe({ puts }: TransactionShape): string {
  const bytes = puts.reduce((sum, put) => sum + put.key.length + put.valueBytes, 0)
  return `${puts.length} puts, ${puts.filter((put) => put.guarded).length + 1} guards, ${bytes} bytes`
}

/** Returns the transaction of a create, read back from etcd. */
async function findShape(environment: Environment): Promise<TransactionShape> {
  const { baseRecords: records } = environment.scale
  const server = await environment.taproot({ records })
  const { etcd, plan } = await environment.stored(records)
  const uid = await createOne(server, subjects.member, plan.root)
  const shape = await shapeOfCreation(etcd.endpoint, { kind: 'Group', uid, parent: plan.root })
  const client = new Etcd3({ hosts: etcd.endpoint })
  await client.put(shape.existing).value('')
  client.close()
  return shape
}

function shapeIn(environment: Environment): Promise<TransactionShape> {
  return environment.once('shape', () => findShape(environment))
}

async function onEtcd(environment: Environment): Promise<Row> {
  const shape = await shapeIn(environment)
  const { baseRecords: records, connections, rounds } = environment.scale
  const server = await environment.taproot({ records })
  const { etcd, plan } = await environment.stored(records)
  const load = await taprootLoad(server, subjects.member, { connections, requests: [creation(plan.root)] })
  return environment.withGenerators([load, { kind: 'etcd', endpoint: etcd.endpoint, connections, shape }], async ([ours, bare]) => {
    const first = { name: 'Taproot', generator: ours, pids: [server.pid, etcd.pid] }
    const comparison = await compare(first, { name: 'bare etcd3', generator: bare, pids: [etcd.pid], generatorWorks: true }, rounds)
    const note = `each a transaction of ${describe(shape)}`
    return ratioRow({ id: 'create-etcd', title: 'create to a bare etcd transaction of the same size', goal: { atLeast: 0.8 }, note }, comparison)
  })
}

async function onSqlite(environment: Environment): Promise<Row> {
  const shape = await shapeIn(environment)
  const { connections, rounds } = environment.scale
  const directory = join(await environment.directory(), 'embedded')
  await mkdir(directory)
  const server = await environment.startTaproot({ store: { sqlite: join(directory, 'taproot.db') } })
  const parent = await createOne(server, subjects.operator, '')
  // The head key, which watches need, exists only in etcd.
  const bareShape = { ...shape, puts: shape.puts.filter(({ key }) => !key.endsWith('!head')) }
  const load = await taprootLoad(server, subjects.operator, { connections, requests: [creation(parent)] })
  try {
    return await environment.withGenerators([load, { kind: 'sqlite', path: join(directory, 'bare.db'), shape: bareShape }], async ([ours, bare]) => {
      const first = { name: 'Taproot', generator: ours, pids: [server.pid] }
      const comparison = await compare(first, { name: 'bare node:sqlite', generator: bare, pids: [], generatorWorks: true }, rounds)
      return ratioRow(
        {
          id: 'create-sqlite',
          title: 'create on the embedded store to bare node:sqlite',
          goal: { atLeast: 0.8 },
          note: `each a transaction of ${describe(bareShape)}`,
        },
        comparison,
      )
    })
  } finally {
    await server.stop()
  }
}

/** Limits that a run never comes close to. */
const farLimits = { groups: 100_000_000, record_mib: 1_000_000 }

/** Compares two organisations on one server. Creates in one of them count toward limits. */
async function withLimits(environment: Environment): Promise<Row> {
  const { baseRecords: records, connections, rounds } = environment.scale
  const server = await environment.taproot({ records })
  const { etcd } = await environment.stored(records)
  const [limited, unlimited] = [await createOne(server, subjects.operator, ''), await createOne(server, subjects.operator, '')]
  await server.call(await server.tokenOf(subjects.operator), `/iam/v2/groups/${limited}:setLimits`, { resourceLimits: farLimits })
  const loadIn = (parent: string): Promise<HttpLoad> => taprootLoad(server, subjects.operator, { connections, requests: [creation(parent)] })
  return environment.withGenerators([await loadIn(limited), await loadIn(unlimited)], async ([first, second]) => {
    const pids = [server.pid, etcd.pid]
    const comparison = await compare({ name: 'with limits', generator: first, pids }, { name: 'without limits', generator: second, pids }, rounds)
    const note = `limits on ${Object.keys(farLimits).join(' and ')}, far from reached`
    return costRow({ id: 'create-limits', title: 'cost of a create that counts towards limits to one that does not', goal: { atMost: 1.1 }, note }, comparison)
  })
}

/** Creates, compared with bare stores, and with limits compared with no limits. */
export const createRows: RowGroup = {
  name: 'create',
  about:
    'create against bare etcd transactions, and on the embedded store against bare node:sqlite, with as many puts, guards and bytes; with limits against without',
  needs: 'etcd',
  rows: [
    { id: 'create-etcd', measure: onEtcd },
    { id: 'create-sqlite', measure: onSqlite },
    { id: 'create-limits', measure: withLimits },
  ],
}
