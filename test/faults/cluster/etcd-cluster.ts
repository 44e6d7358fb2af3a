import { execFile } from 'node:child_process'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { ensurePart } from '../../../tools/parts.js'
import { freePorts } from '../../support/parts/free-port.ts'
import { Member } from './member.ts'
import type { Network } from './network.ts'
import { until } from './until.ts'

const run = promisify(execFile)

/** Returns the path of a part's program. Throws a one-line reason if this machine can't provide it. */
export function programOf(name: Parameters<typeof ensurePart>[0]): string {
  const part = ensurePart(name)
  if (!('path' in part)) throw new Error(part.reason)
  return part.path
}

/** How a cluster is started. */
export interface EtcdClusterOptions {
  readonly directory: string
  readonly network: Network
  readonly members: number
  /** Maximum size of a member's database; etcd's default if absent. */
  readonly quotaBytes?: number | undefined
  /** True if leaders must stay on a busy machine: a member waits 10 s for its leader, not 1 s. */
  readonly hasLongTimeouts?: boolean
}

/** Many small snapshots of the log, so that a member that was down catches up by both mechanisms of etcd. */
const memberFlags = ['--snapshot-count', '1000', '--snapshot-catchup-entries', '200']

/** Real etcd members whose connections to one another go through the network's proxies. */
export class EtcdCluster {
  readonly members: readonly Member[]
  readonly #directory: string
  readonly #names: Map<string, string>
  #restores = 0

  private constructor(options: { members: readonly Member[]; directory: string; names: Map<string, string> }) {
    this.members = options.members
    this.#directory = options.directory
    this.#names = options.names
  }

  /** Starts the members; resolves when all serve. On failure nothing is left running. */
  static async start({ directory, network, members: count, quotaBytes, hasLongTimeouts = false }: EtcdClusterOptions): Promise<EtcdCluster> {
    await mkdir(directory, { recursive: true })
    const program = programOf('etcd')
    // Peers identify themselves by their id in every request. The ids of the members are known once all run.
    const names = new Map<string, string>()
    const sender = (bytes: Buffer): (() => string | undefined) | undefined => {
      const id = /x-server-from: ([0-9a-f]+)/i.exec(bytes.toString('latin1', 0, 4096))?.[1]
      return id === undefined ? undefined : () => names.get(id)
    }
    const ports = await freePorts(3 * count)
    const nodes = await Promise.all(
      Array.from({ length: count }, async (_, index) => {
        const [client = 0, peer = 0, metrics = 0] = ports.slice(3 * index)
        const name = `m${index}`
        return { name, ports: { client, peer, metrics, advertisedPort: await network.proxy({ to: name, targetPort: peer, from: sender }) } }
      }),
    )
    const initialCluster = nodes.map((node) => `${node.name}=http://127.0.0.1:${node.ports.advertisedPort}`).join(',')
    const timeouts = hasLongTimeouts ? ['--heartbeat-interval', '1000', '--election-timeout', '10000'] : []
    const flags = [...memberFlags, ...timeouts, ...(quotaBytes === undefined ? [] : ['--quota-backend-bytes', String(quotaBytes)])]
    const members = nodes.map((node) => new Member({ ...node, program, directory, initialCluster, flags }))
    const cluster = new EtcdCluster({ members, directory, names })
    try {
      await cluster.#startAll()
    } catch (error) {
      await cluster.stop()
      throw error
    }
    return cluster
  }

  async #startAll(): Promise<void> {
    for (const member of this.members) member.start()
    await Promise.all(this.members.map((member) => member.healthy()))
    for (const member of this.members) {
      const status = await member.status()
      if (status === undefined) throw new Error(`etcd member ${member.name} does not answer`)
      // The gateway writes ids in decimal, peers send them in hexadecimal.
      this.#names.set(BigInt(status.memberId).toString(16), member.name)
    }
  }

  /** Returns the leader that a majority of members agrees on; waits for one. */
  async leader(): Promise<Member> {
    let found: Member | undefined
    const look = async (): Promise<boolean> => {
      const statuses = await Promise.all(this.members.map((member) => member.status()))
      const leaders = statuses.flatMap((status) => (status === undefined || status.leaderId === '0' ? [] : [status.leaderId]))
      const id = leaders.find((candidate) => leaders.filter((other) => other === candidate).length * 2 > this.members.length)
      const at = statuses.findIndex((status) => id !== undefined && status?.memberId === id)
      found = this.members[at]
      return found !== undefined
    }
    await until(look, { withinMs: 60_000, what: 'etcd has a leader', everyMs: 50 })
    if (found === undefined) throw new Error('etcd has a leader')
    return found
  }

  /** Any member that answers. */
  async anyHealthy(): Promise<Member> {
    for (const member of this.members) if (member.running && (await member.isHealthy())) return member
    throw new Error('no etcd member serves')
  }

  /** Returns the current database as a file for `restore`. */
  async backup(): Promise<string> {
    const file = join(this.#directory, `backup-${Date.now()}.db`)
    await writeFile(file, await (await this.anyHealthy()).snapshot())
    return file
  }

  /**
   * Kills all members and starts them on the contents of the file, as etcd's manual describes.
   * They start as a new cluster under another token, or under the same token as the same cluster. `between` is called when no member runs.
   */
  async restore(file: string, { sameToken, between }: { sameToken: boolean; between: () => void }): Promise<void> {
    const program = programOf('etcdutl')
    await Promise.all(this.members.map((member) => member.kill()))
    between()
    if (!sameToken) this.#restores += 1
    const token = `taproot-faults-${this.#restores}`
    const initialCluster = this.members.map((member) => `${member.name}=${member.peerUrl}`).join(',')
    for (const member of this.members) {
      const old = member.dataDirectory
      member.renew(token)
      const names = ['--name', member.name, '--initial-advertise-peer-urls', member.peerUrl]
      const cluster = ['--initial-cluster', initialCluster, '--initial-cluster-token', token]
      await run(program, ['snapshot', 'restore', file, '--data-dir', member.dataDirectory, ...names, ...cluster])
      await rm(old, { recursive: true, force: true })
    }
    await this.#startAll()
  }

  /** Kills every member. */
  async stop(): Promise<void> {
    await Promise.all(this.members.map((member) => member.kill()))
  }
}
