import { randomUUID } from 'node:crypto'
import { createServer, type RequestListener, type Server, type ServerOptions, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { SecureContextOptions } from 'node:tls'
import { createClientAddress, createNetworks } from '../base/client-address.ts'
import type { AuditTrail } from '../base/audit-line.ts'
import type { Log } from '../base/log.ts'
import type { Config } from '../config/config.ts'
import { openServerTls, type ServerTls } from '../config/files/open-files.ts'
import type { ReloadedFiles } from '../config/files/reloaded-files.ts'
import {
  createRegistryHost,
  type RegistryHost,
  type LimitKey,
  type RegistryLimits,
  type RegistryKeys,
  type Upstream,
  type Observe,
  type RegistryHostOptions,
} from '../registry/index.ts'
import type { Engine } from './engine.ts'
import { closeHttp, listenHttp } from './open-port.ts'
import type { SignIn } from './sign-in.ts'
import { createConnectionLimit } from '../transport/connection-limit.ts'
import { Counts, Durations, type MetricsRegistry } from '../transport/hot-metrics.ts'
import { FairScheduler } from '../transport/fair-scheduler.ts'
import type { LoopMeter } from '../transport/loop-meter.ts'
import { addressKey, RateLimiter } from '../transport/rate-limit.ts'
import { ReadLimiter } from '../transport/read-limit.ts'

const buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 300]

/** Registers `taproot_registry_requests_total` and `taproot_registry_request_duration_seconds` by route, method and status, `taproot_registry_blobs_total` by source, `taproot_registry_pull_policy_verdicts_total` by decision, and `taproot_registry_traffic_events_total` by outcome. */
function createRegistryMetrics(
  registry: MetricsRegistry,
): Required<Pick<RegistryHostOptions, 'observe' | 'observeToken' | 'observeBlob' | 'observeTraffic' | 'observeVerdict'>> {
  const requests = new Counts<'route' | 'method' | 'status'>({ name: 'taproot_registry_requests_total', help: 'Requests to the registry host', registry })
  const help = 'Time from the request headers to the end of the answer'
  const durations = new Durations<'route' | 'method'>({ name: 'taproot_registry_request_duration_seconds', help, buckets, registry })
  const blobs = new Counts<'source'>({ name: 'taproot_registry_blobs_total', help: 'Blobs pulled', registry })
  const sources = { memory: blobs.series({ source: 'memory' }), upstream: blobs.series({ source: 'upstream' }), redirect: blobs.series({ source: 'redirect' }) }
  const verdictsHelp = 'Pulls of manifests that pull policies decided about'
  const verdicts = new Counts<'decision'>({ name: 'taproot_registry_pull_policy_verdicts_total', help: verdictsHelp, registry })
  const decisions = { allow: verdicts.series({ decision: 'allow' }), warn: verdicts.series({ decision: 'warn' }), deny: verdicts.series({ decision: 'deny' }) }
  const traffic = new Counts<'outcome'>({ name: 'taproot_registry_traffic_events_total', help: 'Events of pulls and failed pushes', registry })
  const outcomes = {
    written: traffic.series({ outcome: 'written' }),
    repeated: traffic.series({ outcome: 'repeated' }),
    lost: traffic.series({ outcome: 'lost' }),
  }
  const methods = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'])
  // Cached, because finding a series by its labels costs more than counting.
  const children = new Map<string, (seconds: number) => void>()
  const childOf = (route: string, method: string, status: number): ((seconds: number) => void) => {
    const id = `${route} ${method} ${status}`
    const known = children.get(id)
    if (known !== undefined) return known
    const counted = requests.series({ route, method, status: String(status) })
    const timed = durations.series({ route, method })
    const child = (seconds: number): void => {
      counted()
      timed(seconds)
    }
    children.set(id, child)
    return child
  }
  // Unknown methods count as `other`. Otherwise clients could create any number of series.
  const count: Observe = (route, method, { status, seconds }) => childOf(route, methods.has(method) ? method : 'other', status)(seconds)
  return {
    observe: count,
    observeToken: ({ status, seconds }) => childOf('token', 'any', status)(seconds),
    observeBlob: (source) => sources[source](),
    observeVerdict: (decision) => decisions[decision](),
    observeTraffic: (outcome, events) => outcomes[outcome](events),
  }
}

/** Dependencies of the registry port. */
export interface RegistryPortOptions {
  readonly config: Config
  readonly files: ReloadedFiles
  readonly engine: Engine
  readonly signIn: SignIn
  readonly upstream: Upstream
  readonly keys: RegistryKeys
  /** Returns the trusted root for signatures; undefined without one. */
  readonly trustedRoot: (() => Buffer | undefined) | undefined
  readonly log: Log
  readonly auditLog: AuditTrail
  readonly metrics: MetricsRegistry
  readonly meter: LoopMeter
}

/** The registry host and its port. */
export interface RegistryPort {
  readonly host: RegistryHost
  listen(): Promise<void>
  /** Continues to serve requests, but closes each connection after its response. */
  beginDrain(): void
  /** Waits up to `graceMs` milliseconds for running requests, then aborts them. */
  close(graceMs: number): Promise<void>
}

/**
 * Headers must arrive within 15 s. A whole request may take as long as its bytes continue to arrive; the registry host aborts stalled
 * requests.
 */
const serverOptions: ServerOptions = {
  maxHeaderSize: 32 * 1024,
  headersTimeout: 15_000,
  requestTimeout: 0,
  keepAliveTimeout: 75_000,
  connectionsCheckingInterval: 1000,
  // The registry host itself rejects requests without a Host header.
  requireHostHeader: false,
}

/** Creates the registry host. `listen` opens its port. Throws SettingError if a certificate cannot be read. */
export function createRegistryPort(options: RegistryPortOptions): RegistryPort {
  const { config, engine, signIn, upstream, keys, trustedRoot, log, auditLog, metrics } = options
  const { registry } = config
  const trusted = createNetworks(config.trustedProxies)
  const host = createRegistryHost({
    services: engine.services,
    upstream,
    authenticator: signIn.registryAuthenticator,
    checks: signIn.checks,
    keys,
    keyring: engine.keyring,
    issuer: config.baseUrl,
    host: registry.host,
    scheme: registry.scheme,
    publicOrganization: registry.publicOrganization,
    catalog: registry.catalog,
    blobCacheBytes: registry.blobCacheMegabytes * 1_000_000,
    ...(trustedRoot && { trustedRoot }),
    trafficWindowMs: config.events.trafficWindowSeconds * 1000,
    operators: config.bootstrap.operators,
    reads: config.reads,
    limits: limitsOf(options),
    clientAddress: createClientAddress(trusted),
    log,
    auditLog,
    newRequestId: randomUUID,
    ...createRegistryMetrics(metrics),
  })
  const server = createHttpServer(openServerTls(options.files, 'registry', registry.tls), host.listener)
  server.on('clientError', host.unreadable)
  // A server may ignore an unknown `Expect` header (RFC 9110, 10.1.1).
  server.on('checkExpectation', (request, response) => server.emit('request', request, response))
  server.maxConnections = config.connections.max
  server.on('connection', createConnectionLimit({ ...config.connections, perAddress: config.connections.registryPerAddress }, trusted))
  let draining = false
  server.prependListener('request', (_request, response: ServerResponse) => {
    if (draining) response.shouldKeepAlive = false
  })
  return {
    host,
    beginDrain: () => void (draining = true),
    listen: () => listenHttp(server, config.listen, registry.port),
    async close(graceMs) {
      await closeHttp(server, graceMs)
      await host.close()
    },
  }
}

function createHttpServer(tls: ServerTls | undefined, listener: RequestListener): Server {
  if (tls === undefined) return createServer(serverOptions, listener)
  const secure = ({ cert, key }: ServerTls['current']): SecureContextOptions => ({ cert, key, minVersion: 'TLSv1.2' })
  const server = createTlsServer({ ...serverOptions, ...secure(tls.current) }, listener)
  tls.onChange((contents) => server.setSecureContext(secure(contents)))
  return server
}

const bytesPerMegabyte = 1_000_000

/**
 * Returns the rate limits; undefined if there are none. Reads have their own limits. Other requests have the limits of the API, but are
 * counted separately.
 */
function limitsOf({ config, engine, meter }: RegistryPortOptions): RegistryLimits | undefined {
  const { enabled, address: addressLimit, reads, ...principalLimit } = config.rateLimit
  if (!enabled) return undefined
  const { clock } = engine.services
  const [principals, addresses] = [new RateLimiter(principalLimit, clock, meter), new RateLimiter(addressLimit, clock, meter)]
  const { concurrent, megabytesPerSecond, burstMegabytes } = reads
  const limit = { concurrent, bytesPerSecond: megabytesPerSecond * bytesPerMegabyte, burstBytes: burstMegabytes * bytesPerMegabyte }
  const [readers, turns] = [new ReadLimiter(limit, clock), new FairScheduler()]
  const keyOf = (key: LimitKey): string => ('principal' in key ? key.principal : addressKey(key.address))
  return {
    write: (uid) => principals.take(uid),
    refusal: (address) => addresses.take(addressKey(address)),
    read(key) {
      // Processor time is measured for each turn of the event loop. This turn must not count for an earlier request.
      meter.enter(() => {})
      return readers.begin(keyOf(key))
    },
    turn: (key) => turns.take(keyOf(key)),
  }
}
