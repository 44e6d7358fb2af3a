import type { Environment } from '../environment.ts'
import type { HttpLoad, PushLoad } from '../load/load.ts'
import { compare, type Candidate, type Comparison, type Measured } from '../measure.ts'
import { startBareRelay } from '../subjects/bare-server.ts'
import { pulls } from './registry-loads.ts'
import { layerBytes, registryWorld } from './registry-world.ts'
import { ratioRow, type Row, type RowSource } from './row.ts'

/** Number of layers that are transferred concurrently: three by `docker pull`, more by other clients. */
const together = 4
const mib = 2 ** 20

/** Loads of blobs: through the registry host, and directly to the upstream. */
interface BlobLoads {
  readonly ours: HttpLoad | PushLoad
  readonly theirs: HttpLoad | PushLoad
}

type Direction = 'pull' | 'push'

async function pullLoads(environment: Environment, connections: number): Promise<BlobLoads> {
  const world = await registryWorld(environment)
  return pulls(environment, world, { connections, what: `blobs/${world.layerDigest}` })
}

async function pushLoads(environment: Environment, connections: number): Promise<BlobLoads> {
  const world = await registryWorld(environment)
  const [host, upstream] = [await environment.registryHost(environment.scale.baseRecords), await environment.distribution()]
  const common = { kind: 'push', connections, blobBytes: layerBytes } as const
  const authorization = `Bearer ${await world.registryToken('pull,push')}`
  return {
    ours: { ...common, port: host.port, headers: { authorization }, repository: world.path },
    theirs: { ...common, port: upstream.port, headers: {}, repository: 'bench/direct' },
  }
}

const loadsOf = { pull: pullLoads, push: pushLoads } as const satisfies Record<Direction, (environment: Environment, connections: number) => Promise<BlobLoads>>

/** Returns a note with the throughput, and the processor time per blob of each process involved. */
function noteOf({ name, perSecond, generatorBusy, cpuMicrosOf }: Measured): string {
  const rate = Math.round((perSecond * layerBytes) / mib).toLocaleString('en')
  const each = [
    `client ${millis((generatorBusy * 1e6) / perSecond)}`,
    ...Object.entries(cpuMicrosOf).map(([process, micros]) => `${process} ${millis(micros)}`),
  ]
  return `${name} ${rate} MiB/s, CPU per blob: ${each.join(', ')}`
}

function millis(micros: number): string {
  return Number.isFinite(micros) ? `${(micros / 1000).toFixed(1)} ms` : '-'
}

function atOnce(connections: number): string {
  return connections === 1 ? 'one at a time' : `${connections} at once`
}

/** A server between a client and the upstream, and the names of its processes. */
interface Between {
  readonly name: string
  readonly load: HttpLoad | PushLoad
  readonly pids: readonly number[]
  readonly processes: readonly string[]
}

/** Compares transfers through this server with direct transfers. */
async function overUpstream(environment: Environment, between: Between, alone: HttpLoad | PushLoad): Promise<{ comparison: Comparison; note: string }> {
  const upstream = await environment.distribution()
  const comparison = await environment.withGenerators([between.load, alone], ([first, second]) => {
    const other: Candidate = { name: 'distribution', generator: second, pids: [upstream.pid], processes: ['upstream'] }
    const { name, pids, processes } = between
    return compare({ name, generator: first, pids, processes }, other, environment.scale.rounds)
  })
  const [ours, theirs] = comparison.measured
  return { comparison, note: `${atOnce(between.load.connections)}, each ${layerBytes / mib} MiB: ${noteOf(ours)}; ${noteOf(theirs)}` }
}

function hostRow(id: string, direction: Direction, connections: number, what = `blobs ${direction}ed`): RowSource {
  return {
    id,
    async measure(environment): Promise<Row> {
      const { hostPids } = await registryWorld(environment)
      const { ours, theirs } = await loadsOf[direction](environment, connections)
      const passing = what === passed ? await environment.registryHost(environment.scale.baseRecords, { blobCacheMegabytes: 0 }) : undefined
      const load = passing === undefined ? ours : { ...ours, port: passing.port }
      const pids = passing === undefined ? hostPids : hostPids.with(0, passing.pid)
      const between = { name: 'Taproot', load, pids, processes: ['host', 'etcd', 'upstream'] }
      const { comparison, note } = await overUpstream(environment, between, theirs)
      const title = `${what} through the registry host to the upstream alone, ${atOnce(connections)}`
      return ratioRow({ id, title, goal: { atLeast: 0.8 }, note }, comparison)
    },
  }
}

/** Returns a row for pushes to the host with a folder as upstream, which flushes each blob and its directory before it responds. */
function folderRow(id: string, connections: number): RowSource {
  return {
    id,
    async measure(environment): Promise<Row> {
      const { etcd } = await environment.stored(environment.scale.baseRecords)
      const { ours, theirs } = await pushLoads(environment, connections)
      const { port, pid } = await environment.registryHost(environment.scale.baseRecords, { overFolder: true })
      const alone = { name: 'Taproot', load: { ...ours, port }, pids: [pid, etcd.pid], processes: ['host', 'etcd'] }
      const { comparison, note } = await overUpstream(environment, alone, theirs)
      const title = `blobs pushed to the registry host over a folder to distribution, ${atOnce(connections)}`
      return ratioRow({ id, title, goal: { atLeast: 0.9 }, note }, comparison)
    },
  }
}

const repeated = 'blobs pulled again and again'
/** Pulls from a host without memory for blobs, as for blobs that were never pulled before. */
const passed = 'blobs pulled for the first time'

/** Returns a row for a bare relay, which shows the best result that a server between client and upstream can reach in this runtime. */
function relayRow(id: string, direction: Direction, connections: number): RowSource {
  return {
    id,
    async measure(environment): Promise<Row> {
      const upstream = await environment.distribution()
      const { theirs } = await loadsOf[direction](environment, connections)
      const relay = await startBareRelay(upstream.port)
      try {
        const between = { name: 'bare relay', load: { ...theirs, port: relay.port }, pids: [relay.pid, upstream.pid], processes: ['relay', 'upstream'] }
        const { comparison, note } = await overUpstream(environment, between, theirs)
        const title = `for comparison: blobs ${direction}ed through a bare relay of sockets to the upstream alone, ${atOnce(connections)}`
        return ratioRow({ id, title, note }, comparison)
      } finally {
        await relay.stop()
      }
    },
  }
}

/** Blobs through the registry host, one and several at a time; through a bare relay; and into a folder. */
export const blobRows: readonly RowSource[] = [
  hostRow('registry-blob-hot-one', 'pull', 1, repeated),
  hostRow('registry-blob-hot', 'pull', together, repeated),
  hostRow('registry-blob-get-one', 'pull', 1, passed),
  relayRow('registry-relay-get-one', 'pull', 1),
  hostRow('registry-blob-get', 'pull', together, passed),
  relayRow('registry-relay-get', 'pull', together),
  hostRow('registry-blob-put-one', 'push', 1),
  relayRow('registry-relay-put-one', 'push', 1),
  hostRow('registry-blob-put', 'push', together),
  relayRow('registry-relay-put', 'push', together),
  folderRow('registry-folder-put-one', 1),
  folderRow('registry-folder-put', together),
]
