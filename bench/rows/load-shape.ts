import { subjects } from '../data/generate.ts'
import type { Environment } from '../environment.ts'
import type { HttpRequest } from '../load/load.ts'
import { compare, measure } from '../measure.ts'
import { gets, taprootLoad } from './loads.ts'
import { costRow, type Row, type RowGroup } from './row.ts'

const readPaths = 95

async function measureMixed(environment: Environment): Promise<Row> {
  const { baseRecords: records, connections, rounds } = environment.scale
  const server = await environment.taproot({ records })
  const { etcd, plan } = await environment.stored(records)
  const reads = gets(plan.someIdentities.slice(0, readPaths).map((uid) => `/iam/v2/identities/${uid}`)).map((request) => ({ ...request, class: 'read' }))
  const body = JSON.stringify({ name: 'team-$N', description: 'A group that the benchmark made' })
  const write: HttpRequest = { method: 'POST', path: `/iam/v2/groups/${plan.root}`, body, class: 'write', weight: (reads.length * 5) / 95 }
  const load = await taprootLoad(server, subjects.member, { connections, requests: [...reads, write] })
  return environment.withGenerators([load], async ([generator]) => {
    const measured = await measure({ name: 'Taproot', generator, pids: [server.pid, etcd.pid] }, rounds)
    const title = 'mixed load, 95 % GET, 5 % create: p99 to p50'
    return { id: 'mixed', title, unit: 'x', value: measured.p99 / measured.p50, goal: { atMost: 5 }, measured: [measured] }
  })
}

/** Latencies of reads and writes together. */
export const mixedRows: RowGroup = {
  name: 'mixed',
  about: 'latencies of a load of 95 % GET and 5 % create',
  needs: 'etcd',
  rows: [{ id: 'mixed', measure: measureMixed }],
}

async function measureReads(environment: Environment): Promise<Row> {
  const { baseRecords: records, connections, rounds } = environment.scale
  const { etcd, plan } = await environment.stored(records)
  const linearizable = await environment.taproot({ records })
  const bounded = await environment.taproot({ records, reads: 'bounded' })
  const requests = gets(plan.someIdentities.map((uid) => `/iam/v2/identities/${uid}`))
  const loads = [
    await taprootLoad(linearizable, subjects.member, { connections, requests }),
    await taprootLoad(bounded, subjects.member, { connections, requests }),
  ] as const
  return environment.withGenerators(loads, async ([first, second]) => {
    const comparison = await compare(
      { name: 'linearizable', generator: first, pids: [linearizable.pid, etcd.pid] },
      { name: 'bounded', generator: second, pids: [bounded.pid, etcd.pid] },
      rounds,
    )
    return costRow({ id: 'reads', title: `cost of linearizable to bounded reads, ${connections} at once`, goal: { atMost: 1.3 } }, comparison)
  })
}

/** Cost of linearizable reads. */
export const readsRows: RowGroup = {
  name: 'reads',
  about: 'GET with linearizable against bounded reads',
  needs: 'etcd',
  rows: [{ id: 'reads', measure: measureReads }],
}
