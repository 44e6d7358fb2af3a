import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import { readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { Counter, Gauge, Registry, collectDefaultMetrics } from 'prom-client'
import { createDoors } from '../api/doors.ts'
import { createGrpcApi, type GrpcApi } from '../api/grpc/grpc-api.ts'
import { createHttpApi } from '../api/http/http-api.ts'
import { createHttpDoor } from '../api/http/http-door.ts'
import { createJsonEncoders } from '../api/json-encode.ts'
import { createCallMetrics } from '../api/metrics.ts'
import { createOnePort, type OnePort } from '../api/one-port.ts'
import { createOpsHandler, type ReadyCheck } from '../api/ops.ts'
import { createPipeline } from '../api/pipeline.ts'
import { RateLimiter } from '../api/rate-limit.ts'
import type { DevIssuer } from '../authn/dev-issuer.ts'
import type { Log } from '../core/log.ts'
import type { Clock } from '../core/runtime.ts'
import { fileDescriptors, methods } from '../core/schema.ts'
import type { Replica } from '../snapshot/replica.ts'
import type { Config } from './config/config.ts'
import { withSetting } from './setting-error.ts'
import { runBackground } from './background.ts'
import { createBackgroundMetrics } from './background-metrics.ts'
import { createReplica, startEngine, type Engine } from './engine.ts'
import { documentRoutes } from './http-routes.ts'
import { closeHttp, listenHttp, openPort } from './open-port.ts'
import { openStore } from './open-store.ts'
import { openUpstream } from './open-upstream.ts'
import { createRegistryPort, type RegistryPortOptions } from './registry-port.ts'
import { systemClock, systemRandom } from './runtime.ts'
import { createSignIn, type SignIn } from './sign-in.ts'

/** A running API: what role `dev` adds to it, and how it is stopped. */
export interface RunningServer {
  readonly engine: Engine
  readonly signIn: SignIn
  /** Serves on for `stop.drainSeconds`, not ready any more; then ends running calls (within `stop.graceSeconds`), background work and the store. */
  stop(): Promise<void>
}

/** What a server is started with. */
export interface ServerOptions {
  readonly config: Config
  readonly log: Log
  /** Where audit lines go, whatever the level of `log`. */
  readonly auditLog: Log
  readonly devIssuer: DevIssuer | undefined
  /** What is served; all of it where absent. The registry host needs an upstream. */
  readonly serves?: readonly ('api' | 'registry' | 'controller')[]
  /** The machine's time by default. */
  readonly clock?: Clock
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
  const {
    api: { tls },
    stop,
  } = config
  const port = createOnePort({ http, grpc, ...(tls === undefined ? {} : { tls: readTls(tls) }) })
  return {
    port,
    grpc,
    async close() {
      await port.close(stop.graceSeconds * 1000)
      http.stop()
      grpc.stop()
    },
  }
}

/** Keeps what gRPC health answers in step with the replica; not serving once `signal` aborts. */
function followReadiness(replica: Replica, grpc: GrpcApi, signal: AbortSignal): void {
  const timer = setInterval(() => grpc.setReady(replica.state.kind === 'live'), 500)
  const leave = (): void => {
    clearInterval(timer)
    grpc.setReady(false)
  }
  signal.addEventListener('abort', leave, { once: true })
  grpc.setReady(true)
}

/** A port that is served, and how it stops. */
interface Served {
  open(): Promise<void>
  /** Goes on serving, but gives connections up after a call. */
  linger(): void
  close(): Promise<void>
}

/** The API's port: not open yet. */
function serveApi(options: ServerOptions & { readonly registry: Registry }, engine: Engine, signIn: SignIn): Served & { readonly grpc: GrpcApi } {
  const { listen, api: settings } = options.config
  const api = createApiPort(options, engine, signIn)
  const address = { host: listen, port: settings.port }
  return {
    grpc: api.grpc,
    open: () => openPort('api.port', address, () => api.port.listen(address.host, address.port)),
    linger: () => api.port.linger(),
    close: api.close,
  }
}

/** The registry host's port: not open yet. */
function serveRegistry(options: RegistryPortOptions): Served {
  const { listen, registry, stop } = options.config
  const port = createRegistryPort(options)
  const address = { host: listen, port: registry.port }
  return { open: () => openPort('registry.port', address, () => port.listen()), linger: () => port.linger(), close: () => port.close(stop.graceSeconds * 1000) }
}

/** Serves on, not ready any more, until whoever leads requests here has noticed. */
async function drain(ports: readonly Served[], leaving: AbortController, seconds: number): Promise<void> {
  if (seconds === 0) return
  leaving.abort(new Error('the server is about to stop'))
  for (const port of ports) port.linger()
  await delay(seconds * 1000)
}

/** Stops what was started, last first. */
class Cleanups {
  readonly #steps: (() => Promise<unknown>)[] = []

  add(step: () => Promise<unknown>): void {
    this.#steps.unshift(step)
  }

  async run(): Promise<void> {
    for (const step of this.#steps.splice(0)) await step()
  }
}

/** What `/readyz` tells: of the upstream nothing, since tokens and lists go on without it. */
function readyChecks(replica: Replica, names: readonly string[], isListening: () => boolean): ReadyCheck[] {
  const check = (): Promise<boolean> => Promise.resolve(isListening())
  return [{ name: 'snapshot', check: () => Promise.resolve(replica.state.kind === 'live') }, ...names.map((name) => ({ name, check }))]
}

/**
 * Starts store, memory view, ops port and the ports of what is served; resolves when requests are answered. `/readyz` answers from the start, and is 503 until then.
 * Rejects with PortError, StoreError, SealingError, a file's error, or the signal's reason; nothing is left running then.
 */
export async function startServer(options: ServerOptions, signal: AbortSignal): Promise<RunningServer> {
  const { config, log, auditLog, devIssuer, clock = systemClock, serves = ['api', 'registry'] } = options
  const [leaving, stopping] = [new AbortController(), new AbortController()]
  const cleanups = new Cleanups()
  const ports: Served[] = []
  const close = async (): Promise<void> => {
    for (const step of [leaving, stopping]) step.abort(new Error('the server stops'))
    await cleanups.run()
  }
  const stop = async (): Promise<void> => {
    await drain(ports, leaving, config.stop.drainSeconds)
    await close()
  }
  try {
    const store = await openStore(config, log, signal)
    cleanups.add(() => store.close())
    const replica = createReplica(store, log)
    cleanups.add(() => replica.close())
    const { registry, signatureChecks } = createMetrics(replica)
    let listening = false
    const checks = readyChecks(replica, serves, () => listening && !leaving.signal.aborted)
    const ops = createServer(createOpsHandler({ checks, registry }))
    await openPort('ops.port', { host: config.listen, port: config.ops.port }, () => listenHttp(ops, config.listen, config.ops.port))
    cleanups.add(() => closeHttp(ops))
    const upstream = await openUpstream(config, { clock, random: systemRandom, log })
    cleanups.add(() => upstream?.close() ?? Promise.resolve())
    const servesRegistry = serves.includes('registry') && upstream !== undefined
    const engine = await startEngine({ config, store, replica, upstream, servesRegistry, log, clock, random: systemRandom }, signal)
    const onSignatureCheck = (): void => signatureChecks.inc()
    const signIn = createSignIn({ config, replica, signingKeys: engine.signingKeys, clock, random: systemRandom, devIssuer, onSignatureCheck })
    cleanups.add(() => signIn.close())
    const background = runBackground(engine, stopping.signal, {
      observer: createBackgroundMetrics(registry),
      leads: serves.some((role) => role !== 'controller'),
    })
    cleanups.add(() => background)
    const api = serves.includes('api') ? serveApi({ ...options, registry }, engine, signIn) : undefined
    const { registryKeys: keys } = engine
    const host =
      keys === undefined || upstream === undefined ? undefined : serveRegistry({ config, engine, signIn, upstream, keys, log, auditLog, metrics: registry })
    for (const served of [api, host]) {
      if (served === undefined) continue
      cleanups.add(() => served.close())
      await served.open()
      ports.push(served)
    }
    if (serves.includes('controller')) {
      // Its client of Kubernetes takes seconds to load: the other roles do without.
      const { startControllerRole } = await import('./controller-role.ts')
      const controller = await startControllerRole({ config, engine, tokens: signIn.tokens, registry, log, auditLog, clock }, stopping.signal)
      cleanups.add(() => controller.ended)
      await controller.synced(signal)
    }
    listening = true
    if (api !== undefined) followReadiness(replica, api.grpc, leaving.signal)
    return { engine, signIn, stop }
  } catch (error) {
    await close()
    throw error
  }
}
