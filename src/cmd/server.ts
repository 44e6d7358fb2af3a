import { randomUUID } from 'node:crypto'
import { createServer, type Server } from 'node:http'
import { readFileSync } from 'node:fs'
import { Counter, Gauge, Registry, collectDefaultMetrics } from 'prom-client'
import { createDoors } from '../api/doors.ts'
import { createGrpcApi, type GrpcApi } from '../api/grpc/grpc-api.ts'
import { createHttpApi } from '../api/http/http-api.ts'
import { createHttpDoor } from '../api/http/http-door.ts'
import { createJsonEncoders } from '../api/json-encode.ts'
import { createCallMetrics } from '../api/metrics.ts'
import { createOnePort, type OnePort } from '../api/one-port.ts'
import { createOpsHandler } from '../api/ops.ts'
import { createPipeline } from '../api/pipeline.ts'
import { RateLimiter } from '../api/rate-limit.ts'
import type { DevIssuer } from '../authn/dev-issuer.ts'
import type { Log } from '../core/log.ts'
import type { Clock } from '../core/runtime.ts'
import { fileDescriptors, methods } from '../core/schema.ts'
import type { Replica } from '../snapshot/replica.ts'
import type { Config } from './config/config.ts'
import { settingOf } from './config/setting.ts'
import { SettingError, withSetting } from './setting-error.ts'
import { runBackground } from './background.ts'
import { createBackgroundMetrics } from './background-metrics.ts'
import { createReplica, startEngine, type Engine } from './engine.ts'
import { documentRoutes } from './http-routes.ts'
import { openStore } from './open-store.ts'
import { systemClock, systemRandom } from './runtime.ts'
import { createSignIn, type SignIn } from './sign-in.ts'

/** How long running calls may take to end when the process stops, in milliseconds. */
const graceMs = 3_000

/** A running API: what role `dev` adds to it, and how it is stopped. */
export interface RunningServer {
  readonly engine: Engine
  readonly signIn: SignIn
  /** Ends running calls (within 3 s), background work and the store. */
  stop(): Promise<void>
}

/** What a server is started with. */
export interface ServerOptions {
  readonly config: Config
  readonly log: Log
  /** Where audit lines go, whatever the level of `log`. */
  readonly auditLog: Log
  readonly devIssuer: DevIssuer | undefined
  /** The machine's time by default. */
  readonly clock?: Clock
}

/** A port that a setting names is taken or may not be used. */
class PortError extends Error {
  override readonly name = 'PortError'
  constructor(key: string, port: number, cause: unknown) {
    const code = codeOf(cause)
    const why = code === 'EADDRINUSE' ? 'is in use' : `can not be used (${code ?? String(cause)})`
    super(`port ${port} ${why}: set ${key} (${settingOf(key).variable}) to another one`, { cause })
  }
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error ? String(error.code) : undefined
}

/** Codes of addresses that are not this machine's. */
const addressFaults: ReadonlySet<string | undefined> = new Set(['EADDRNOTAVAIL', 'ENOTFOUND', 'EAI_AGAIN', 'EINVAL'])

/** Listens, or says which setting names the port or the address. */
async function openPort(key: string, address: { host: string; port: number }, open: () => Promise<unknown>): Promise<void> {
  try {
    await open()
  } catch (error) {
    if (addressFaults.has(codeOf(error))) throw new SettingError('listen', address.host, new Error('is no address of this machine', { cause: error }))
    throw new PortError(key, address.port, error)
  }
}

function listenHttp(server: Server, host: string, port: number): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  server.once('error', reject)
  server.listen(port, host, resolve)
  return promise
}

function closeHttp(server: Server): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  server.close(() => resolve())
  server.closeAllConnections()
  return promise
}

/** Metrics of the process and of the replica. */
function createMetrics(replica: Replica): { registry: Registry; signatureChecks: Counter } {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const live: Gauge = new Gauge({
    name: 'taproot_replica_live',
    help: '1 while the in-memory view follows the store',
    registers: [registry],
    collect: () => live.set(replica.state.kind === 'live' ? 1 : 0),
  })
  const records: Gauge = new Gauge({
    name: 'taproot_records',
    help: 'Records in memory, by kind',
    labelNames: ['kind'],
    registers: [registry],
    collect: () => {
      for (const table of replica.snapshot.kinds()) records.set({ kind: table.index.kind }, table.size)
    },
  })
  const signatureChecks = new Counter({
    name: 'taproot_token_signature_checks_total',
    help: 'Token signatures that were really checked',
    registers: [registry],
  })
  return { registry, signatureChecks }
}

function readTls(tls: NonNullable<Config['api']['tls']>): { cert: Buffer; key: Buffer } {
  return {
    cert: withSetting('api.tls.certFile', tls.certFile, () => readFileSync(tls.certFile)),
    key: withSetting('api.tls.keyFile', tls.keyFile, () => readFileSync(tls.keyFile)),
  }
}

interface ApiPort {
  readonly port: OnePort
  readonly grpc: GrpcApi
  /** Lets running calls end, then ends everything. */
  close(): Promise<void>
}

function createApiPort(options: ServerOptions & { readonly registry: Registry }, engine: Engine, signIn: SignIn): ApiPort {
  const { config, log, auditLog, registry, devIssuer } = options
  const { services, signingKeys } = engine
  const doors = createDoors({ services, exchange: signIn.exchange, ownIssuer: config.baseUrl })
  const rateLimiter = config.rateLimit.enabled ? new RateLimiter(config.rateLimit, services.clock) : undefined
  const dispatch = createPipeline({ services, authenticator: signIn.authenticator, doors, reads: config.reads, rateLimiter, auditLog })
  const shared = { methods, dispatch, log, newRequestId: () => randomUUID(), metrics: createCallMetrics(registry) }
  const routes = documentRoutes({ baseUrl: config.baseUrl, signingKeys, devIssuer })
  const http = createHttpDoor(createHttpApi({ ...shared, encoders: createJsonEncoders(), routes, preview: config.compat.namespaces.length > 0 }))
  const grpc = createGrpcApi({ ...shared, namespaces: config.compat.namespaces, fileDescriptors })
  const { tls } = config.api
  const port = createOnePort({ http, grpc, ...(tls === undefined ? {} : { tls: readTls(tls) }) })
  return {
    port,
    grpc,
    async close() {
      await port.close(graceMs)
      http.stop()
      grpc.stop()
    },
  }
}

/** Keeps what gRPC health answers in step with the replica until `signal` aborts. */
function followReadiness(replica: Replica, grpc: GrpcApi, signal: AbortSignal): void {
  const timer = setInterval(() => grpc.setReady(replica.state.kind === 'live'), 500)
  signal.addEventListener('abort', () => clearInterval(timer), { once: true })
  grpc.setReady(true)
}

/**
 * Starts store, memory view, API port and ops port; resolves when requests are served. `/readyz` answers from the start, and is 503 until then. Rejects
 * with PortError, StoreError, SealingError, a file's error, or the signal's reason; nothing is left running then.
 */
export async function startServer(options: ServerOptions, signal: AbortSignal): Promise<RunningServer> {
  const { config, log, devIssuer, clock = systemClock } = options
  const stopping = new AbortController()
  // What was started, last first: the order in which it is stopped.
  const cleanups: (() => Promise<unknown>)[] = []
  const stop = async (): Promise<void> => {
    stopping.abort(new Error('the server stops'))
    for (const cleanup of cleanups.splice(0)) await cleanup()
  }
  try {
    const store = await openStore(config, log, signal)
    cleanups.unshift(() => store.close())
    const replica = createReplica(store, log)
    cleanups.unshift(() => replica.close())
    const { registry, signatureChecks } = createMetrics(replica)
    let listening = false
    const checks = [
      { name: 'snapshot', check: () => Promise.resolve(replica.state.kind === 'live') },
      { name: 'api', check: () => Promise.resolve(listening && !stopping.signal.aborted) },
    ]
    const ops = createServer(createOpsHandler({ checks, registry }))
    await openPort('ops.port', { host: config.listen, port: config.ops.port }, () => listenHttp(ops, config.listen, config.ops.port))
    cleanups.unshift(() => closeHttp(ops))
    const engine = await startEngine({ config, store, replica, log, clock, random: systemRandom }, signal)
    const signIn = createSignIn({
      config,
      replica,
      signingKeys: engine.signingKeys,
      clock,
      random: systemRandom,
      devIssuer,
      onSignatureCheck: () => signatureChecks.inc(),
    })
    cleanups.unshift(() => signIn.close())
    const background = runBackground(engine, stopping.signal, createBackgroundMetrics(registry))
    cleanups.unshift(() => background)
    const api = createApiPort({ ...options, registry }, engine, signIn)
    cleanups.unshift(() => api.close())
    await openPort('api.port', { host: config.listen, port: config.api.port }, () => api.port.listen(config.listen, config.api.port))
    listening = true
    followReadiness(replica, api.grpc, stopping.signal)
    return { engine, signIn, stop }
  } catch (error) {
    await stop()
    throw error
  }
}
