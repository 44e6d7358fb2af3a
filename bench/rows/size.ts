import type { Environment } from '../environment.ts'
import type { Row, RowGroup } from './row.ts'

const bytesPerMib = 2 ** 20

function held({ heapUsed, external }: NodeJS.MemoryUsage): number {
  // `external` includes array buffers.
  return heapUsed + external
}

function mib(bytes: number): string {
  return `${Math.round(bytes / bytesPerMib).toLocaleString('en')} MiB`
}

async function measureStart(environment: Environment): Promise<Row> {
  const { largeRecords: records } = environment.scale
  const server = await environment.taproot({ records })
  const lines = server.log.split('\n').filter((line) => line.includes('"loading"')).length
  const note = `${lines} progress lines in the log; /readyz ${server.saidNotReady ? 'said 503 until then' : 'was not seen to say 503 before'}`
  const title = `start from etcd with ${records.toLocaleString('en')} records`
  return { id: 'start', title, unit: 's', value: server.startMs / 1000, goal: { atMost: 20 }, measured: [], note }
}

async function measureMemory(environment: Environment): Promise<Row> {
  const { largeRecords: records } = environment.scale
  const { etcd, plan } = await environment.stored(records)
  const full = await (await environment.taproot({ records })).memory()
  const empty = await environment.startTaproot({ store: { etcd: etcd.endpoint, prefix: '/empty' } })
  const base = await empty.memory()
  await empty.stop()
  const perRecord = (of: (memory: NodeJS.MemoryUsage) => number): number => (of(full) - of(base) - plan.recordBytes) / plan.records
  const mix = `${plan.groups.toLocaleString('en')} groups, ${plan.identities.toLocaleString('en')} identities, ${plan.bindings.toLocaleString('en')} role bindings`
  const parts = `heap ${mib(full.heapUsed)}, external ${mib(full.external)}, resident ${mib(full.rss)}; empty ${mib(held(base))}, resident ${mib(base.rss)}`
  const note = `${mix} of ${Math.round(plan.recordBytes / plan.records)} B; ${parts}; by resident memory ${Math.round(perRecord(({ rss }) => rss))} B`
  const title = `memory per record beyond its encoded size, ${records.toLocaleString('en')} records`
  return { id: 'memory', title, unit: 'B', value: perRecord(held), goal: { atMost: 600 }, measured: [], note }
}

/** Memory and start time with many records. */
export const sizeRows: RowGroup = {
  name: 'size',
  about: 'start time and memory with many records',
  needs: 'etcd',
  rows: [
    { id: 'start', measure: measureStart },
    { id: 'memory', measure: measureMemory },
  ],
}
