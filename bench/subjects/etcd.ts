import { freePorts } from '../../test/parts/free-port.ts'
import { requirePart } from '../../test/parts/require-part.ts'
import { answers, Child } from './child.ts'

/** One running member that keeps its data. */
export interface Etcd {
  readonly endpoint: string
  readonly pid: number
  /** Ends it in order, so that its files can be copied. */
  stop(): Promise<void>
}

/** Starts etcd on the data in `directory`, which it makes where there is none. `durable: false` leaves out the flushes to disk. */
export async function startEtcdOn(directory: string, { durable = true }: { durable?: boolean } = {}): Promise<Etcd> {
  const [port = 0, peerPort = 0, metricsPort = 0] = await freePorts(3)
  const [client, peer, metrics] = [port, peerPort, metricsPort].map((number) => `http://127.0.0.1:${number}`) as [string, string, string]
  const addresses = ['--listen-client-urls', client, '--advertise-client-urls', client, '--listen-metrics-urls', metrics]
  // A member keeps the peer address that it was made with; nobody connects to it.
  const peers = ['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer, '--initial-cluster', `bench=${peer}`]
  const sizes = ['--quota-backend-bytes', String(8 * 1024 ** 3), '--log-level', 'error']
  const flags = ['--name', 'bench', '--data-dir', directory, ...addresses, ...peers, ...sizes, ...(durable ? [] : ['--unsafe-no-fsync'])]
  const child = new Child([requirePart('etcd'), ...flags])
  await child.until(() => answers(`${metrics}/health`), 60_000)
  return { endpoint: client, pid: child.pid, stop: () => child.stop('SIGTERM') }
}
