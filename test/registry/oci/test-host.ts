import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createKeyring } from '../../../src/auth/keys/sealing.ts'
import { contentSource } from '../../../src/server/engine.ts'
import { readEncryptionKey } from '../../../src/server/read-encryption-key.ts'
import { systemClock, systemRandom } from '../../../src/server/runtime.ts'
import type { Clock } from '../../../src/base/runtime.ts'
import type { Services } from '../../../src/engine/services.ts'
import type { OciHandlerOptions } from '../../../src/registry/oci/oci-handler.ts'
import { createOciHandler } from '../../../src/registry/oci/oci-handler.ts'
import { TrafficEvents } from '../../../src/registry/oci/traffic-events.ts'
import { trafficWriter } from '../../../src/registry/registry-host.ts'
import { createDiskUpstream } from '../../../src/registry/upstream/disk/disk-upstream.ts'
import type { Upstream } from '../../../src/registry/upstream/upstream.ts'
import { freshName, makeMember, makeOrganisation, startTestServer, type TestServer, type TestServerOptions } from '../../support/test-server.ts'
import { createTestGate } from './test-gate.ts'
import { OciClient } from './oci-client.ts'
import { listenOnLoopback } from '../../support/parts/loopback.ts'

/** The default of the product. */
const defaultBlobCacheBytes = 256_000_000

/** An upstream for a test, and its end. */
export interface TestUpstream {
  readonly upstream: Upstream
  /** The folder of an embedded upstream. */
  readonly directory?: string
  stop(): Promise<void>
}

/** An embedded upstream in a directory of its own. */
export function startDiskUpstream(): Promise<TestUpstream> {
  return startDiskUpstreamAt(systemClock)
}

/** The same, with a clock for the age of uploads. */
export async function startDiskUpstreamAt(clock: Clock): Promise<TestUpstream & { readonly directory: string }> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-oci-'))
  const upstream = await createDiskUpstream({ directory, clock, random: systemRandom })
  return {
    upstream,
    directory,
    stop: async () => {
      await upstream.close()
      await rm(directory, { recursive: true, force: true })
    },
  }
}

/** A registry host in this process with real store, upstream and port. The bearer token is the uid of the calling identity. */
export interface TestHost {
  readonly server: TestServer
  readonly services: Services
  readonly upstream: Upstream
  readonly port: number
  readonly http: Server
  /** Each request has an event. */
  readonly traffic: TrafficEvents
  /** The number of lost events. */
  readonly lost: () => number
  /** An organisation of this host, and its owner. */
  readonly organisation: string
  readonly group: string
  readonly owner: string
  /** A client with the owner's rights. */
  readonly client: OciClient
  /** A client of another identity; undefined for an anonymous caller. */
  as(identity: string | undefined): OciClient
  /** A path to an unused repo. */
  freshRepository(): string
  /** A fresh identity of the organisation with a role. */
  member(role: string): Promise<string>
  stop(): Promise<void>
}

/** Options of a host. */
export interface TestHostOptions extends TestServerOptions {
  readonly upstream: () => Promise<TestUpstream>
  /** Settings of the handler. */
  readonly handler?: Partial<OciHandlerOptions>
  /** Wraps the upstream. */
  readonly wrap?: (upstream: Upstream) => Upstream
  /** The organisation of another host on the same store. */
  readonly organisation?: Pick<TestHost, 'organisation' | 'group' | 'owner'>
}

/** Starts a host; `stop` removes all its data. */
export async function startTestHost(options: TestHostOptions): Promise<TestHost> {
  // Without its own upstream: its collections would delete the content recorded here.
  const server = await startTestServer({ keepsContent: false, ...options })
  const { engine } = server.running
  const { services } = engine
  const { upstream: source, stop } = await options.upstream()
  const upstream = options.wrap?.(source) ?? source
  Object.assign(services, { content: contentSource(upstream) })
  const keyEncryptionKey = await readEncryptionKey(server.config, services.random)
  const sealer = await createKeyring({ store: engine.store, keyEncryptionKey, random: services.random }, AbortSignal.timeout(60_000))
  const registryHost = 'registry.test:5000'
  let lost = 0
  const traffic = new TrafficEvents({
    write: trafficWriter(services, registryHost),
    log: services.log,
    observe: (outcome, count) => void (lost += outcome === 'lost' ? count : 0),
    windowMs: 0,
  })
  const handler = createOciHandler({
    services,
    catalog: false,
    upstream,
    gate: createTestGate(services),
    sealer,
    auditLog: { record: (line) => services.log.info('audit', { audit: true, ...line }) },
    registryHost,
    report: (request, details) => traffic.add(request, details),
    blobCacheBytes: defaultBlobCacheBytes,
    history: async (exchange) => exchange.send(200, [], '{}'),
    ...options.handler,
  })
  const http = createServer({ requestTimeout: 0, keepAliveTimeout: 20_000 }, handler.handle)
  const port = await listenOnLoopback(http)
  const name = freshName('org')
  const { group, owner } = options.organisation ?? (await makeOrganisation(server, name))
  const organisation = options.organisation?.organisation ?? name
  const clients: OciClient[] = []
  const as = (identity: string | undefined): OciClient => {
    const client = new OciClient(port, identity)
    clients.push(client)
    return client
  }
  return {
    server,
    services,
    upstream,
    port,
    http,
    traffic,
    lost: () => lost,
    organisation,
    group,
    owner,
    client: as(owner),
    as,
    freshRepository: () => `${organisation}/${freshName('app')}`,
    member: async (role) => (await makeMember(server, group, { role })).uid,
    async stop() {
      for (const client of clients) client.close()
      http.closeAllConnections()
      await once(http.close(), 'close')
      await traffic.close()
      await server.stop()
      await stop()
    },
  }
}
