import { requirePart } from '../../test/support/parts/require-part.ts'
import { answers, Child, onFreePorts } from './child.ts'

/** Timeout for the start, in milliseconds. etcd first reads up to a million records into memory. */
const startTimeoutMs = 300_000

/** A running etcd member that keeps its data. */
export interface Etcd {
  readonly endpoint: string
  readonly pid: number
  /** Stops it in an orderly way, so that its files can be copied. */
  stop(): Promise<void>
}

/** Starts etcd on the data in `directory`, which is created if missing. With `durable: false`, etcd does not flush to disk. */
export function startEtcdOn(directory: string, { durable = true }: { durable?: boolean } = {}): Promise<Etcd> {
  return onFreePorts(3, async (ports) => {
    const [client, peer, metrics] = ports.map((port) => `http://127.0.0.1:${port}`) as [string, string, string]
    const addresses = ['--listen-client-urls', client, '--advertise-client-urls', client, '--listen-metrics-urls', metrics]
    // A member keeps the peer address with which it was created. No client connects to it.
    const peers = ['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer, '--initial-cluster', `bench=${peer}`]
    const sizes = ['--quota-backend-bytes', String(8 * 1024 ** 3), '--log-level', 'error']
    const flags = ['--name', 'bench', '--data-dir', directory, ...addresses, ...peers, ...sizes, ...(durable ? [] : ['--unsafe-no-fsync'])]
    const child = new Child([requirePart('etcd'), ...flags])
    await child.until(() => answers(`${metrics}/health`), startTimeoutMs)
    return { endpoint: client, pid: child.pid, stop: () => child.stop('SIGTERM') }
  })
}
