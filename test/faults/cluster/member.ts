import { join } from 'node:path'
import { Child } from './child.ts'
import { until } from './until.ts'

/** Maximum time until a member serves, in a cluster with a majority. */
export const memberStartMs = 60_000

/** The answer of etcd's JSON gateway about a member. */
export interface MemberStatus {
  readonly memberId: string
  readonly leaderId: string
  readonly revision: string
  readonly dbSize: number
}

/** The paths, ports and options of a member. */
export interface MemberOptions {
  readonly name: string
  readonly program: string
  /** Holds its data and its log. */
  readonly directory: string
  /** Its own ports; `advertisedPort` is that of the proxy through which its peers reach it. */
  readonly ports: { readonly client: number; readonly peer: number; readonly metrics: number; readonly advertisedPort: number }
  /** Every member's name and advertised URL, as etcd's `--initial-cluster`. */
  readonly initialCluster: string
  readonly flags: readonly string[]
}

/** One etcd member on its real ports. Calls of this class do not go through a proxy. */
export class Member {
  readonly name: string
  readonly directory: string
  readonly peerUrl: string
  readonly #options: MemberOptions
  readonly #child: Child
  /** Counts the data directories: a restored backup goes into a new one. */
  #generation = 0
  #token = 'taproot-faults-0'

  constructor(options: MemberOptions) {
    this.#options = options
    this.name = options.name
    this.directory = options.directory
    this.peerUrl = `http://127.0.0.1:${options.ports.advertisedPort}`
    this.#child = new Child({ command: [], cwd: options.directory, logFile: join(options.directory, `${options.name}.log`) })
  }

  get running(): boolean {
    return this.#child.running
  }

  /** True once it ended without being killed, also after a restart. */
  get died(): boolean {
    return this.#child.died
  }

  get clientUrl(): string {
    return `http://127.0.0.1:${this.#options.ports.client}`
  }

  get dataDirectory(): string {
    return join(this.directory, `${this.name}.${this.#generation}`)
  }

  /** Uses a new data directory, which the caller fills, and this cluster token for the next start. */
  renew(token: string): void {
    this.#generation += 1
    this.#token = token
  }

  start(): void {
    const { name, program, ports, initialCluster, flags } = this.#options
    const peer = `http://127.0.0.1:${ports.peer}`
    const addresses = [
      ['--listen-client-urls', this.clientUrl],
      ['--advertise-client-urls', this.clientUrl],
      ['--listen-peer-urls', peer],
      ['--initial-advertise-peer-urls', this.peerUrl],
      ['--listen-metrics-urls', `http://127.0.0.1:${ports.metrics}`],
      ['--initial-cluster', initialCluster],
      ['--initial-cluster-token', this.#token],
    ].flat()
    this.#child.start({ command: [program, '--name', name, '--data-dir', this.dataDirectory, ...addresses, '--log-level', 'error', ...flags] })
  }

  /** Kills it without warning and waits until it is gone. */
  kill(): Promise<void> {
    return this.#child.kill()
  }

  pause(): void {
    this.#child.pause()
  }

  resume(): void {
    this.#child.resume()
  }

  /** Resolves once it answers a linearizable read. */
  async healthy(signal?: AbortSignal): Promise<void> {
    await until(() => this.isHealthy(), { withinMs: memberStartMs, what: `etcd member ${this.name} serves`, signal, everyMs: 50 })
  }

  /** Returns whether it answers a linearizable read. An alarm about space does not count. */
  async isHealthy(): Promise<boolean> {
    try {
      const response = await fetch(`http://127.0.0.1:${this.#options.ports.metrics}/health?exclude=NOSPACE`, { signal: AbortSignal.timeout(2_000) })
      await response.body?.cancel()
      return response.ok
    } catch {
      return false
    }
  }

  /** Returns its status; undefined if it does not answer. */
  async status(): Promise<MemberStatus | undefined> {
    try {
      // The gateway's answer, see etcd's rpc.proto.
      const { header, leader, dbSize } = (await this.call('maintenance/status', {}, 2_000)) as {
        header: { member_id: string; revision: string }
        leader?: string
        dbSize?: string
      }
      return { memberId: header.member_id, leaderId: leader ?? '0', revision: header.revision, dbSize: Number(dbSize ?? 0) }
    } catch {
      return undefined
    }
  }

  /** Makes one call to etcd's JSON gateway. Throws if it fails or takes longer than `withinMs`. */
  async call(path: string, request: Readonly<Record<string, unknown>>, withinMs = 30_000): Promise<unknown> {
    const response = await fetch(`${this.clientUrl}/v3/${path}`, { method: 'POST', body: JSON.stringify(request), signal: AbortSignal.timeout(withinMs) })
    const text = await response.text()
    if (!response.ok) throw new Error(`etcd ${path}: ${text}`)
    return JSON.parse(text)
  }

  /** Returns the whole database from etcd's snapshot call, as the file for `etcdutl snapshot restore`. */
  async snapshot(): Promise<Buffer> {
    const response = await fetch(`${this.clientUrl}/v3/maintenance/snapshot`, { method: 'POST', body: '{}', signal: AbortSignal.timeout(60_000) })
    const lines = (await response.text()).split('\n').filter((line) => line !== '')
    // One message per line, see etcd's rpc.proto.
    const parts = lines.map((line) => JSON.parse(line) as { result?: { blob?: string }; error?: unknown })
    if (!response.ok || parts.some((part) => part.error !== undefined)) throw new Error('etcd gave no snapshot')
    return Buffer.concat(parts.map((part) => Buffer.from(part.result?.blob ?? '', 'base64')))
  }
}
