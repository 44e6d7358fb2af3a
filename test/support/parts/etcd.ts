import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { randomBytes } from 'node:crypto'
import { rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { freePorts } from './free-port.ts'
import { pauseProcess } from './pause-process.ts'
import { requirePart } from './require-part.ts'
import { onWorkerEnd } from './worker-end.ts'

const startTimeoutMs = 30_000

/** A running member. */
export interface EtcdMember {
  /** `http://127.0.0.1:<port>`, or `https` */
  readonly endpoint: string
  readonly port: number
  readonly dataDirectory: string
  /** The member's own certificate, if clients have to use TLS. */
  readonly certificateFile: string
  /** Kills the process and waits for its end. */
  kill(): Promise<void>
  /** Pauses the process; resolves when all its threads are stopped. */
  pause(): Promise<void>
  /** Resumes the process. */
  resume(): void
  /** Starts the process again on its own data, after `kill`; resolves when it is healthy. */
  restart(): Promise<void>
  /** Calls a method of etcd's gateway, such as `maintenance/defragment`; throws if it fails. Without TLS only. */
  call(method: string, body?: Readonly<Record<string, unknown>>): Promise<Readonly<Record<string, unknown>>>
}

/** An etcd, or a key space in one, for a test. */
export interface EtcdSpace {
  readonly endpoints: readonly string[]
  /** The port of the first endpoint. */
  readonly port: number
  /** Prefix of a test's keys, without a trailing slash: `/taproot` in an etcd of its own. */
  readonly prefix: string
  /** Releases the key space. */
  stop(): Promise<void>
}

/** A running cluster. */
export interface EtcdCluster extends EtcdSpace {
  readonly members: readonly EtcdMember[]
  /** Kills a member and replaces it by an empty one; resolves when that has caught up. The others must be healthy. */
  replace(index: number): Promise<void>
  /** Stops every member and removes the data. */
  stop(): Promise<void>
}

/** Options of a cluster. */
export interface EtcdOptions {
  /** 1 by default. */
  readonly members?: number
  /** More flags for every member, e.g. `--quota-backend-bytes=16777216`. */
  readonly flags?: readonly string[]
  /** TLS for clients. Each member creates its own certificate, `certificateFile`; or all use these files, and require client certificates. */
  readonly tls?: boolean | { readonly certFile: string; readonly keyFile: string; readonly clientCaFile: string }
  /** The cluster's token, which determines the cluster id. */
  readonly token?: string
}

/** The settings of a server on this etcd. */
export function etcdSettings({ endpoints, prefix = '/taproot' }: Pick<EtcdSpace, 'endpoints'> & Partial<EtcdSpace>): Record<string, string> {
  return { TAPROOT_STORE_KIND: 'etcd', TAPROOT_STORE_ETCD_ENDPOINTS: endpoints.join(','), TAPROOT_STORE_ETCD_PREFIX: prefix }
}

let shared: Promise<EtcdCluster> | undefined

/**
 * A key space of its own in the etcd of this worker, which starts with the first use and goes on until the worker ends. A test that stops, pauses or fills its
 * etcd, or counts revisions or keys outside the prefix, starts its own.
 */
export async function shareEtcd(): Promise<EtcdSpace> {
  shared ??= startEtcd().then((etcd) => (endWithWorker(etcd), etcd))
  const { endpoints, port } = await shared
  return { endpoints, port, prefix: `/test-${randomBytes(8).toString('hex')}`, stop: () => Promise.resolve() }
}

/** Ends the cluster and removes its data at the end of the worker. */
export function endWithWorker({ members }: Pick<EtcdCluster, 'members'>): void {
  onWorkerEnd(() => {
    for (const member of members) {
      void member.kill()
      rmSync(dirname(member.dataDirectory), { recursive: true, force: true })
    }
  })
}

/**
 * Starts a real etcd on free loopback ports with data of its own; resolves when every member is healthy. Its members do not wait for the disk: what they wrote survives
 * their end, not that of the machine.
 */
export async function startEtcd(options: EtcdOptions = {}): Promise<EtcdCluster> {
  const { members: count = 1, flags = [], tls = false, token = 'taproot-test' } = options
  const program = requirePart('etcd')
  const directory = await mkdtemp(join(tmpdir(), 'taproot-etcd-'))
  const ports = await freePorts(3 * count)
  const nodes = Array.from({ length: count }, (_, index) => {
    const [port = 0, peerPort = 0, healthPort = 0] = ports.slice(3 * index)
    return { name: `m${index}`, port, peerPort, healthPort }
  })
  const initialCluster = nodes.map(({ name, peerPort }) => `${name}=http://127.0.0.1:${peerPort}`).join(',')
  const processes = nodes.map(({ name, port, peerPort, healthPort }) => {
    const client = `${tls !== false ? 'https' : 'http'}://127.0.0.1:${port}`
    const health = `http://127.0.0.1:${healthPort}`
    const dataDirectory = join(directory, name)
    const peer = `http://127.0.0.1:${peerPort}`
    const member = ['--name', name, '--data-dir', dataDirectory, '--unsafe-no-fsync', '--listen-metrics-urls', health, ...tlsFlags(tls)]
    const addresses = ['--listen-client-urls', client, '--advertise-client-urls', client, '--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer]
    const cluster = ['--initial-cluster', initialCluster, '--initial-cluster-token', token]
    const certificateFile = join(dataDirectory, 'fixtures', 'client', 'cert.pem')
    return new MemberProcess([program, ...member, ...addresses, ...cluster, '--log-level', 'error', ...flags], {
      endpoint: client,
      port,
      certificateFile,
      dataDirectory,
      health,
    })
  })
  for (const member of processes) member.start()
  try {
    await Promise.all(processes.map((member) => member.healthy()))
  } catch (error) {
    await Promise.all(processes.map((member) => member.kill()))
    throw error
  }
  return {
    members: processes,
    endpoints: processes.map((member) => member.endpoint),
    port: nodes[0]?.port ?? 0,
    prefix: '/taproot',
    replace: async (index) => {
      const [member, helper] = [processes[index], processes[(index + 1) % count]]
      if (member === undefined || helper === undefined) throw new Error(`no member ${index}`)
      const { header } = (await member.call('maintenance/status')) as { header: { member_id: string } } // a cast of etcd's answer
      const peerURL = `http://127.0.0.1:${nodes[index]?.peerPort}`
      await changeMembers(helper, { method: 'remove', body: { ID: header.member_id } }, (all) => all.every(({ ID }) => ID !== header.member_id))
      await member.kill()
      await rm(member.dataDirectory, { recursive: true })
      await changeMembers(helper, { method: 'add', body: { peerURLs: [peerURL] } }, (all) => all.some(({ peerURLs }) => peerURLs.includes(peerURL)))
      member.start(['--initial-cluster-state', 'existing'])
      await member.healthy()
    },
    stop: async () => {
      await Promise.all(processes.map((member) => member.kill()))
      await rm(directory, { recursive: true, force: true })
    },
  }
}

function tlsFlags(tls: NonNullable<EtcdOptions['tls']>): string[] {
  if (typeof tls === 'boolean') return tls ? ['--auto-tls'] : []
  return ['--cert-file', tls.certFile, '--key-file', tls.keyFile, '--client-cert-auth', '--trusted-ca-file', tls.clientCaFile]
}

/** A member in the answer of `cluster/member/list`. */
interface Listed {
  readonly ID: string
  readonly peerURLs: readonly string[]
}

/**
 * Changes the membership by way of `helper`, and retries until the list shows the change.
 * An etcd refuses a change before its members have known each other for some seconds, and may not answer the one that removes its leader.
 */
async function changeMembers(
  helper: MemberProcess,
  change: { method: 'add' | 'remove'; body: Readonly<Record<string, unknown>> },
  done: (members: readonly Listed[]) => boolean,
): Promise<void> {
  const deadline = performance.now() + 2 * startTimeoutMs
  for (;;) {
    const failure = await helper.call(`cluster/member/${change.method}`, change.body, 5_000).catch((error: unknown) => error)
    const { members } = (await helper.call('cluster/member/list', { linearizable: false })) as unknown as { members: readonly Listed[] } // a cast of etcd's answer
    if (done(members)) return
    if (performance.now() > deadline) throw failure
    await delay(200)
  }
}

class MemberProcess implements EtcdMember {
  readonly endpoint: string
  readonly port: number
  readonly certificateFile: string
  readonly dataDirectory: string
  readonly #command: readonly string[]
  readonly #health: string
  #process: ChildProcess | undefined
  #output = ''

  constructor(command: readonly string[], addresses: { endpoint: string; port: number; certificateFile: string; dataDirectory: string; health: string }) {
    this.#command = command
    this.endpoint = addresses.endpoint
    this.port = addresses.port
    this.certificateFile = addresses.certificateFile
    this.dataDirectory = addresses.dataDirectory
    this.#health = addresses.health
  }

  start(more: readonly string[] = []): void {
    const [program = '', ...args] = this.#command
    const child = spawn(program, [...args, ...more], { stdio: ['ignore', 'ignore', 'pipe'] })
    child.stderr.on('data', (chunk) => (this.#output = (this.#output + String(chunk)).slice(-4000)))
    this.#process = child
    const killChild = (): void => void child.kill('SIGKILL')
    process.once('exit', killChild)
    child.once('exit', () => process.off('exit', killChild))
  }

  async healthy(): Promise<void> {
    const deadline = performance.now() + startTimeoutMs
    while (!(await this.#isHealthy())) {
      if (this.#process === undefined || this.#process.exitCode !== null || performance.now() > deadline)
        throw new Error(`etcd did not start:\n${this.#output}`)
      await delay(50)
    }
  }

  async #isHealthy(): Promise<boolean> {
    try {
      const response = await fetch(`${this.#health}/health`, { signal: AbortSignal.timeout(2000) })
      await response.body?.cancel()
      return response.ok
    } catch {
      return false
    }
  }

  async kill(): Promise<void> {
    const child = this.#process
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    child.kill('SIGKILL')
    await exited
  }

  async pause(): Promise<void> {
    await pauseProcess(this.#process?.pid)
  }

  resume(): void {
    this.#process?.kill('SIGCONT')
  }

  async restart(): Promise<void> {
    this.start()
    await this.healthy()
  }

  async call(method: string, body: Readonly<Record<string, unknown>> = {}, timeoutMs = startTimeoutMs): Promise<Readonly<Record<string, unknown>>> {
    const response = await fetch(`${this.endpoint}/v3/${method}`, { method: 'POST', body: JSON.stringify(body), signal: AbortSignal.timeout(timeoutMs) })
    const text = await response.text()
    if (!response.ok) throw new Error(`etcd answered ${response.status} to ${method}: ${text}`)
    return JSON.parse(text) as Readonly<Record<string, unknown>> // a cast: the gateway answers objects
  }
}
