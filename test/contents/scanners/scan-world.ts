import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { trustedUid } from '../../../src/base/uid.ts'
import { shareEtcd } from '../../support/parts/etcd.ts'
import { freshName, makeMember, makeOrganisation, ok, startTestServer, type TestServer } from '../../support/test-server.ts'
import { OciClient } from '../../registry/oci/oci-client.ts'
import { ScannerService } from './scanner-service.ts'

/** A server with one scanner, which acts as an identity of the organisation. */
export class ScanWorld {
  readonly service = new ScannerService()
  readonly organisation = freshName('org')
  server!: TestServer
  group = ''
  owner = ''
  /** The identity of the scanner. It may pull and push in all repos of the organisation. */
  scanner = ''
  readonly #clients: OciClient[] = []
  #start!: (env: Readonly<Record<string, string>>) => Promise<TestServer>
  #remove!: () => Promise<void>

  /** Starts a server, makes the identities, and starts the server again with the scanner. */
  async start(store: 'sqlite' | 'etcd', settings: Readonly<Record<string, unknown>> = {}): Promise<this> {
    const dataDir = await mkdtemp(join(tmpdir(), 'taproot-scans-'))
    this.#remove = () => rm(dataDir, { recursive: true, force: true })
    const etcd = store === 'etcd' ? await shareEtcd() : undefined
    this.#start = (env) => startTestServer({ dataDir, env, store, ...(etcd && { etcd }) })
    await this.service.start()
    this.server = await this.#start({})
    const made = await makeOrganisation(this.server, this.organisation)
    this.group = made.group
    this.owner = made.owner
    this.scanner = (await makeMember(this.server, this.group, { role: 'registry.push' })).uid
    await this.restart(settings)
    return this
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
