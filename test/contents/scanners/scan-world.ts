import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, vi } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import { findRepository } from '../../../src/registry/records/repo-paths.ts'
import { shareEtcd } from '../../support/parts/etcd.ts'
import { freshName, makeMember, makeOrganisation, ok, roleUid, startTestServer, type TestServer } from '../../support/test-server.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { OciClient, type TestManifest } from '../../registry/oci/oci-client.ts'
import { ScannerService } from './scanner-service.ts'

/** For as long as it takes: reading contents and reports each start a process. */
export const pollOptions = { timeout: 240_000, interval: 100 }

/** A server with one scanner, which acts as an identity of the organisation. */
export class ScanWorld {
  readonly service = new ScannerService()
  readonly clock = new TestClock()
  readonly organisation = freshName('org')
  server!: TestServer
  group = ''
  owner = ''
  /** The identity of the scanner. It may pull and push in all repos of the organisation. */
  scanner = ''
  #binding = ''
  readonly #clients: OciClient[] = []
  #start!: (env: Readonly<Record<string, string>>) => Promise<TestServer>
  #remove!: () => Promise<void>

  /** Starts a server, makes the identities, and starts the server again with the scanner. */
  async start(store: 'sqlite' | 'etcd', settings: Readonly<Record<string, unknown>> = {}): Promise<this> {
    const dataDir = await mkdtemp(join(tmpdir(), 'taproot-scans-'))
    this.#remove = () => rm(dataDir, { recursive: true, force: true })
    const etcd = store === 'etcd' ? await shareEtcd() : undefined
    this.#start = (env) => startTestServer({ dataDir, env, store, clock: this.clock, ...(etcd && { etcd }) })
    await this.service.start()
    this.server = await this.#start({})
    const made = await makeOrganisation(this.server, this.organisation)
    this.group = made.group
    this.owner = made.owner
    this.scanner = (await makeMember(this.server, this.group, {})).uid
    await this.grant()
    await this.restart(settings)
    return this
  }

  /** Gives the identity of the scanner its rights. */
  async grant(): Promise<void> {
    const request = { parent: this.group, roleBinding: { identityUid: this.scanner, roleUid: roleUid('registry.push') } }
    this.#binding = String((await this.call('CreateRoleBinding', request))['uid'])
  }

  /** Takes them away. */
  async withdraw(): Promise<void> {
    await this.call('DeleteRoleBinding', { uid: this.#binding })
  }

  /** Stops the server, and starts it with the scanner. */
  async restart(settings: Readonly<Record<string, unknown>> = {}): Promise<void> {
    await this.halt()
    const row = { name: 'stand-in', url: this.service.url, identity: this.scanner, ...settings }
    this.server = await this.#start({ TAPROOT_SCANNERS: JSON.stringify([row]), TAPROOT_REGISTRY_READ_CONTENTS: 'true' })
  }

  /** Stops the server only. */
  async halt(): Promise<void> {
    for (const client of this.#clients.splice(0)) client.close()
    await this.server.stop()
  }

  /** A client of the registry host with a bearer token. */
  client(token: string): OciClient {
    const client = new OciClient(this.server.config.registry.port, token)
    this.#clients.push(client)
    return client
  }

  /** A client of the registry host with the rights of the owner. */
  async pusher(): Promise<OciClient> {
    const { host } = this.server.config.registry
    const act = { issuer: 'https://issuer.test', subject: 'test', audience: host }
    const { token } = await this.server.running.signIn.tokens.mint({ identityUid: trustedUid(this.owner), audiences: [host], act, restrictions: {} })
    return this.client(token)
  }

  freshPath(): string {
    return `${this.organisation}/${freshName('app')}`
  }

  /** Pushes a fresh image. */
  async push(path: string): Promise<TestManifest> {
    return (await this.pusher()).pushImage(path, 'latest')
  }

  uidOf(path: string): string {
    const target = findRepository(this.server.running.engine.cache.tables, path)
    if (target?.kind !== 'repo') throw new Error(`no repo ${path}`)
    return target.uid
  }

  async referrers(path: string, { digest }: TestManifest): Promise<readonly Record<string, unknown>[]> {
    const { body } = await (await this.pusher()).send('GET', `/v2/${path}/referrers/${digest}`)
    return (JSON.parse(body.toString()) as { manifests: Record<string, unknown>[] }).manifests
  }

  /** Resolves once an image has reports. */
  async scanned(path: string, image: TestManifest, reports = 1): Promise<void> {
    await vi.waitFor(async () => expect(await this.referrers(path, image)).toHaveLength(reports), pollOptions)
  }

  /** Resolves once no image waits to be read or scanned. */
  async idle(): Promise<void> {
    const { store } = this.server.running.engine
    const keys = async (): Promise<string[]> => {
      const found = await Promise.all(['x/unread/', 'x/unscanned/'].map((prefix) => store.range({ prefix, limit: 10 }, AbortSignal.timeout(60_000))))
      return found.flatMap(({ entries }) => entries.map(({ key }) => key))
    }
    await vi.waitFor(async () => expect(await keys()).toEqual([]), pollOptions)
  }

  /** Resolves once the store has the id of the scan of an image. */
  async noted(path: string, { digest }: TestManifest): Promise<void> {
    const key = `x/unscanned/stand-in/${this.uidOf(path)}/${digest}`
    const valueOf = async (): Promise<string> =>
      Buffer.from((await this.server.running.engine.store.get(key, AbortSignal.timeout(60_000)))?.value ?? []).toString()
    await vi.waitFor(async () => expect(await valueOf()).toContain('{'), pollOptions)
  }

  /** The number of images that left the queue with an outcome. */
  async counted(outcome: string): Promise<number> {
    const answer = await fetch(`http://127.0.0.1:${this.server.config.ops.port}/metrics`)
    const line = `taproot_scans_total{scanner="stand-in",outcome="${outcome}"} `
    return Number(
      (await answer.text())
        .split('\n')
        .find((one) => one.startsWith(line))
        ?.slice(line.length) ?? 0,
    )
  }

  /** Calls a method of the API as the owner. */
  async call(rpc: string, request: object, over: 'rest' | 'grpc' = 'rest'): Promise<Record<string, unknown>> {
    return ok(await this.server[over].call(rpc, request as never, { token: await this.server.tokenFor(this.owner) }))
  }

  async stop(): Promise<void> {
    await this.halt()
    await this.service.down()
    await this.#remove()
  }
}
