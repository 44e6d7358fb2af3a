import { randomBytes } from 'node:crypto'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import type { Log } from '../../../src/base/log.ts'
import { createEtcdStore } from '../../../src/store/etcd/etcd-store.ts'
import { createSqliteStore } from '../../../src/store/sqlite/sqlite-store.ts'
import type { Store } from '../../../src/store/store.ts'
import { freePorts } from '../../support/parts/free-port.ts'
import { bodyOf } from './api-call.ts'
import { ApiProcess } from './api-process.ts'
import { Disk } from './disk.ts'
import { EtcdCluster } from './etcd-cluster.ts'
import { startIssuer, type Issuer } from './issuer.ts'
import { Network } from './network.ts'
import { packetDropper } from './own-network.ts'
import { until } from './until.ts'

/** `cluster`: two API processes on three etcd members. `embedded`: one API process on an SQLite file. */
export type InstallationKind = 'cluster' | 'embedded'

/** Options of an installation. */
export interface InstallationOptions {
  readonly kind: InstallationKind
  /** Size of etcd's database or of the SQLite file's disk in bytes, for schedules that fill it; the default if absent. */
  readonly roomBytes?: number | undefined
}

const members = 3
const replicas = { cluster: 2, embedded: 1 } as const satisfies Record<InstallationKind, number>
const operatorSubject = 'operator'
/** Maximum time in milliseconds for which all processes together may keep sign-in unavailable. */
const exchangeMs = 60_000
const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {} }

/** Real processes and their stores, in their own directory. */
export interface Installation {
  readonly kind: InstallationKind
  /** Data and logs of all processes. */
  readonly directory: string
  readonly network: Network
  /** Set if the store is etcd. */
  readonly etcd: EtcdCluster | undefined
  /** Set if the store is a file on its own disk. */
  readonly disk: Disk | undefined
  readonly apis: readonly ApiProcess[]
  /** Returns an operator's access token from any process that answers. */
  token(): Promise<string>
  /** Opens the store itself, without proxies and caches. An embedded store opens only while no process runs. */
  openStore(): Store
  /** Kills every process by its id; `keep` leaves the directory. */
  stop(options: { keep: boolean }): Promise<void>
}

/** Starts everything; resolves when every process is ready. On failure nothing is left running, and the directory is kept for its logs. */
export async function startInstallation({ kind, roomBytes }: InstallationOptions): Promise<Installation> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-faults-'))
  const network = new Network(packetDropper())
  // Cleanups of started parts, the last one first.
  const cleanups: (() => Promise<unknown>)[] = [() => network.close()]
  const stopAll = async (): Promise<void> => {
    for (const cleanup of cleanups.splice(0)) await cleanup()
  }
  try {
    const issuer = await startIssuer()
    cleanups.unshift(() => issuer.close())
    const etcd = kind === 'cluster' ? await EtcdCluster.start({ directory: join(directory, 'etcd'), network, members, quotaBytes: roomBytes }) : undefined
    if (etcd !== undefined) cleanups.unshift(() => etcd.stop())
    const disk = kind === 'embedded' && roomBytes !== undefined ? await Disk.mount(join(directory, 'disk'), roomBytes) : undefined
    if (disk !== undefined) cleanups.unshift(() => disk.unmount())
    const { apis, baseUrl } = await makeApis({ directory, network, etcd, disk, issuer, count: replicas[kind] })
    cleanups.unshift(() => Promise.all(apis.map((api) => api.kill())))
    for (const api of apis) api.start()
    await Promise.all(apis.map((api) => api.ready()))
    const databaseFile = join(disk?.directory ?? directory, 'taproot.db')
    return {
      kind,
      directory,
      network,
      etcd,
      disk,
      apis,
      token: () => exchange(apis, issuer, baseUrl),
      openStore: () =>
        etcd === undefined
          ? createSqliteStore({ path: databaseFile, log: silentLog })
          : createEtcdStore({ endpoints: etcd.members.map((member) => member.clientUrl), log: silentLog }),
      async stop({ keep }) {
        await stopAll()
        if (!keep) await rm(directory, { recursive: true, force: true, maxRetries: 3 })
      },
    }
  } catch (error) {
    await stopAll()
    throw new Error(`the installation did not start, see ${directory}`, { cause: error })
  }
}

interface ApiParts {
  readonly directory: string
  readonly network: Network
  readonly etcd: EtcdCluster | undefined
  readonly disk: Disk | undefined
  readonly issuer: Issuer
  readonly count: number
}

async function makeApis({ directory, network, etcd, disk, issuer, count }: ApiParts): Promise<{ apis: readonly ApiProcess[]; baseUrl: string }> {
  const keyFile = join(directory, 'encryption.key')
  await writeFile(keyFile, randomBytes(32).toString('hex'))
  const ports = await freePorts(3 * count)
  const baseUrl = `http://localhost:${ports[0]}`
  const common = {
    TAPROOT_BASE_URL: baseUrl,
    TAPROOT_LISTEN: '127.0.0.1',
    TAPROOT_REGISTRY_HOST: 'registry.example',
    TAPROOT_ENCRYPTION_KEY_FILE: keyFile,
    TAPROOT_RATE_LIMIT_ENABLED: 'false',
    TAPROOT_ISSUERS: JSON.stringify([{ issuer: issuer.issuer, allowPrivate: true }]),
    TAPROOT_BOOTSTRAP_OPERATORS: JSON.stringify([{ issuer: issuer.issuer, subject: operatorSubject }]),
    // Processes start often, so their compiled code is cached.
    NODE_COMPILE_CACHE: join(tmpdir(), 'taproot-faults-compile-cache'),
  }
  const apis = await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const name = `a${index}`
      const [api = 0, ops = 0, registry = 0] = ports.slice(3 * index)
      const dataDirectory = join(disk?.directory ?? directory, name)
      await mkdir(dataDirectory, { recursive: true })
      const env = {
        ...common,
        TAPROOT_API_PORT: String(api),
        TAPROOT_OPS_PORT: String(ops),
        TAPROOT_REGISTRY_PORT: String(registry),
        TAPROOT_DATA_DIR: dataDirectory,
        ...(etcd === undefined
          ? { TAPROOT_STORE_KIND: 'sqlite', TAPROOT_STORE_SQLITE_PATH: join(disk?.directory ?? directory, 'taproot.db') }
          : { TAPROOT_STORE_KIND: 'etcd', TAPROOT_STORE_ETCD_ENDPOINTS: (await proxiedEndpoints({ etcd, network, from: name, first: index })).join(',') }),
      }
      return new ApiProcess({ name, directory, env, ports: { api, ops } })
    }),
  )
  return { apis, baseUrl }
}

/** Returns the members' client URLs for one process, each through its own proxy. Each process begins with a different member. */
async function proxiedEndpoints({ etcd, network, from, first }: { etcd: EtcdCluster; network: Network; from: string; first: number }): Promise<string[]> {
  const inTurn = [...etcd.members.slice(first), ...etcd.members.slice(0, first)]
  const ports = await Promise.all(inTurn.map((member) => network.proxy({ to: member.name, targetPort: Number(new URL(member.clientUrl).port), from })))
  return ports.map((port) => `http://127.0.0.1:${port}`)
}

/** Waits for a process that answers, because all of them may be down for a moment. */
async function exchange(apis: readonly ApiProcess[], issuer: Issuer, audience: string): Promise<string> {
  const call = { rpc: 'SecurityTokenService/Exchange', request: {}, token: await issuer.token(operatorSubject, audience) }
  let answer: JsonObject | undefined
  const attempt = async (): Promise<boolean> => {
    for (const api of apis.filter((candidate) => candidate.running)) if ((answer = await bodyOf(api, call)) !== undefined) return true
    return false
  }
  await until(attempt, { withinMs: exchangeMs, what: 'a process exchanges the token of an operator', everyMs: 100 })
  return String(answer?.['token'])
}
