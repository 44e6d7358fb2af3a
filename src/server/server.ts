import type { Server } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import type { GrpcApi } from '../transport/grpc/grpc-api.ts'
import { LoopMeter } from '../transport/loop-meter.ts'
import { createOpsServer, type ReadyCheck } from '../transport/web/ops.ts'
import type { WebRoute } from '../transport/web/web-routes.ts'
import { createSafeFetch } from '../auth/safe-fetch.ts'
import type { DevIssuer } from '../auth/oidc/dev-issuer.ts'
import type { Log } from '../base/log.ts'
import type { Clock } from '../base/runtime.ts'
import type { Tracing } from '../base/tracing.ts'
import type { RecordCache } from '../cache/record-cache.ts'
import type { Config } from '../config/config.ts'
import { openIssuers, openTrustedRoot } from '../config/files/open-files.ts'
import { ReloadedFiles } from '../config/files/reloaded-files.ts'
import { createApiPort, type ApiPort, type ApiPortOptions } from './api-port.ts'
import { openServerTrail } from './audit/server-trail.ts'
import { serveImports } from '../catalogue/index.ts'
import { startBackground } from './background.ts'
import type { startControllerRole } from './controller-role.ts'
import { createRecordCache, startEngine, type Engine } from './engine.ts'
import { controllerEndpoint } from './cluster-endpoint.ts'
import { closeHttp, listenHttp, openPort, withOtherPorts, type NamedPort } from './open-port.ts'
import { openStore } from './open-store.ts'
import { openUpstream } from './open-upstream.ts'
import type { SinkOptions } from './delivery.ts'
import { createMetrics, createSignInMetrics, measuredStore, measuredUpstream, registerCache, registerKeys } from './telemetry/process-metrics.ts'
import { createScanJobs } from './scan-jobs.ts'
import { createRegistryPort, type RegistryPortOptions } from './registry-port.ts'
import { systemClock, systemRandom } from './runtime.ts'
import { createSignIn, type SignIn } from './sign-in.ts'

/** A running server, with the parts that role `dev` needs. */
export interface RunningServer {
  readonly engine: Engine
  readonly signIn: SignIn
  /** The routes of the API port other than the methods of the API. */
  readonly routes: readonly Pick<WebRoute, 'method' | 'path'>[]
  /**
   * Reports not ready and continues to serve for `stop.drainSeconds`. Then ends running calls (within `stop.graceSeconds`), background
   * work and the store.
   */
  stop(): Promise<void>
}

/** The longest time that a start waits for catalogues and contents of images, in milliseconds. After that they are not known. */
const maxLoadMs = 30_000

type Part = 'api' | 'registry' | 'controller' | 'worker'

/** Options of a server. */
export interface ServerOptions {
  readonly config: Config
  readonly log: Log
  /** Log for the audit sink `log`, independent of the level of `log`. */
  readonly auditLog: Log
  readonly devIssuer: DevIssuer | undefined
  /** The parts that this process serves; all but the controller by default. The registry host needs an upstream. */
  readonly serves?: readonly Part[]
  /** False for tests that do the work of the leader themselves. */
  readonly leads?: boolean
  /** Default: the machine's clock. */
  readonly clock?: Clock
  /** Interval at which certificates, keys and passwords are read again from their files, in milliseconds; 10 s by default. */
  readonly filesEveryMs?: number
  readonly sinks?: SinkOptions
  readonly tracing?: Tracing | undefined
}

/**
 * Updates the gRPC health status whenever the cache changes between ready and not ready. Once `signal` aborts, reports not serving, and
 * requests stop waiting for events.
 */
function followReadiness({ cache, services }: Engine, grpc: GrpcApi, signal: AbortSignal): void {
  const timer = setInterval(() => grpc.setReady(cache.state.kind === 'live'), 500)
  const leave = (): void => {
    clearInterval(timer)
    grpc.setReady(false)
    services.eventLog.leave()
  }
  signal.addEventListener('abort', leave, { once: true })
  grpc.setReady(true)
}

interface Served {
  open(): Promise<void>
  /** Continues to serve calls, but closes each connection after its call. */
  beginDrain(): void
  close(): Promise<void>
}

/** Catalogues and contents of images, as this process serves them. */
interface ServedData {
  /** Resolves when each of them was loaded, or could not be. */
  readonly tried: Promise<unknown>
  end(): Promise<void>
}

/** Serves catalogues and contents of images in this process: for requests, and for the worker that compares them. */
function serveCatalogues({ catalogues, imageContents, services }: Engine): ServedData {
  const ends: ((() => Promise<void>) | undefined)[] = []
  const tried = [catalogues, imageContents].map((served) => {
    const { promise, resolve } = Promise.withResolvers<void>()
    if (served === undefined) resolve()
    else ends.push(served.serve(resolve))
    return promise
  })
  ends.push(services.pullTrials?.close, () => services.scannerReports?.close() ?? Promise.resolve())
  return {
    tried: Promise.all(tried),
    async end() {
      for (const end of ends) await end?.()
    },
  }
}

/** Resolves once catalogues and contents are loaded, or could not be. Until then nothing is known of any image, and pull policies may let all of them through. */
async function untilTried({ tried }: ServedData, signal: AbortSignal): Promise<void> {
  await Promise.race([tried, delay(maxLoadMs, undefined, { signal, ref: false })])
}

/**
 * Serves catalogues and contents of images in a process that serves the registry and not the API. Begins once there is a pull policy: nothing else there needs
 * them.
 */
function serveForPolicies(engine: Engine, serves: readonly Part[]): ServedData {
  const { cache } = engine
  if (!serves.includes('registry')) return { tried: Promise.resolve(), end: () => Promise.resolve() }
  let served: ServedData | undefined
  const begin = (): void => void (served ??= serveCatalogues(engine))
  const look = (): void => (cache.tables.table('PullPolicy').size > 0 ? begin() : undefined)
  const forget = [cache.onRecord((kind, _, record) => (kind === 'PullPolicy' && record !== undefined ? begin() : undefined)), cache.onReset(look)]
  look()
  return {
    tried: served?.tried ?? Promise.resolve(),
    async end() {
      for (const stop of forget) stop()
      await served?.end()
    },
  }
}

/** Creates the API's port without opening it. */
function serveApi(options: ApiPortOptions): Served & Pick<ApiPort, 'grpc' | 'routes'> {
  const { listen, api: settings } = options.config
  const api = createApiPort(options)
  const address = { host: listen, port: settings.port }
  const { catalogues, cache } = options.engine
  let endImports: (() => Promise<void>) | undefined
  return {
    grpc: api.grpc,
    routes: api.routes,
    async open() {
      if (catalogues !== undefined && options.config.store.kind === 'sqlite')
        endImports = await serveImports({ dataDir: options.config.dataDir, catalogues, tables: cache.tables, log: options.log })
      return openPort('api.port', address, () => api.port.listen(address.host, address.port))
    },
    beginDrain: () => api.port.beginDrain(),
    async close() {
      await endImports?.()
      await api.close()
    },
  }
}

type MaybeServed = { readonly [Part in 'upstream' | 'keys']: RegistryPortOptions[Part] | undefined }

/** Creates the registry host's port without opening it; undefined if the process does not serve it, or has no upstream for it. */
function serveRegistry(
  serves: readonly Part[],
  { upstream, keys, ...options }: Omit<RegistryPortOptions, 'upstream' | 'keys'> & MaybeServed,
): Served | undefined {
  if (!serves.includes('registry') || upstream === undefined || keys === undefined) return undefined
  const { listen, registry, stop } = options.config
  const port = createRegistryPort({ ...options, upstream, keys })
  const address = { host: listen, port: registry.port }
  return {
    open: () => openPort('registry.port', address, () => port.listen()),
    beginDrain: () => port.beginDrain(),
    close: () => port.close(stop.graceSeconds * 1000),
  }
}

/** Continues to serve while not ready, until load balancers have noticed. */
async function drain(ports: readonly Served[], leaving: AbortController, seconds: number): Promise<void> {
  if (seconds === 0) return
  leaving.abort(new Error('the server is stopping'))
  for (const port of ports) port.beginDrain()
  await delay(seconds * 1000)
}

/** Default interval for reading files again, in milliseconds. Kubernetes updates a Secret in a pod within about a minute. */
const defaultFilesEveryMs = 10_000

class Cleanups {
  readonly #steps: (() => Promise<unknown>)[] = []

  add(step: () => Promise<unknown>): void {
    this.#steps.unshift(step)
  }

  async run(): Promise<void> {
    for (const step of this.#steps.splice(0)) await step()
  }
}

/** Starts to watch the files of certificates, keys and passwords for changes. */
function followFiles({ log, filesEveryMs = defaultFilesEveryMs }: ServerOptions): ReloadedFiles {
  const files = new ReloadedFiles(log)
  files.follow(filesEveryMs)
  return files
}

/** Opens the ports one after another, and adds each to `ports` once it is open. */
async function openPorts(candidates: readonly (Served | undefined)[], ports: Served[], cleanups: Cleanups): Promise<void> {
  for (const served of candidates) {
    if (served === undefined) continue
    cleanups.add(() => served.close())
    await served.open()
    ports.push(served)
  }
}

/** Returns the ports that a process opens. */
function portsOf({ ops, api, registry }: Config, serves: readonly Part[]): NamedPort[] {
  return [
    { key: 'ops.port', port: ops.port },
    ...(serves.includes('api') ? [{ key: 'api.port', port: api.port }] : []),
    ...(serves.includes('registry') && registry.upstream !== undefined ? [{ key: 'registry.port', port: registry.port }] : []),
  ]
}

/** Returns the checks of `/readyz`. The upstream is not one of them, because tokens and lists work without it. */
function readyChecks(cache: RecordCache, names: readonly string[], isListening: () => boolean): ReadyCheck[] {
  const check = (): Promise<boolean> => Promise.resolve(isListening())
  return [{ name: 'snapshot', check: () => Promise.resolve(cache.state.kind === 'live') }, ...names.map((name) => ({ name, check }))]
}

/** Opens the ops port. Returns a function that closes it. */
async function openOps({ listen, ops: { port } }: Config, server: Server): Promise<() => Promise<void>> {
  await openPort('ops.port', { host: listen, port }, () => listenHttp(server, listen, port))
  return () => closeHttp(server)
}

/** Returns what a process does in the background. It does all with an embedded store, which no other process can open. */
function sharesOf(serves: readonly Part[], { config: { store }, leads = true }: ServerOptions): { readonly leads: boolean; readonly works: boolean } {
  return { leads: leads && (serves.includes('api') || serves.includes('registry')), works: store.kind === 'sqlite' || serves.includes('worker') }
}

/** Returns whether a process uses the keys of registry tokens: as the registry host, or to have images scanned. */
function usesRegistryKeys(serves: readonly Part[], options: ServerOptions): boolean {
  return serves.includes('registry') || (sharesOf(serves, options).works && options.config.scanners.length > 0)
}

/** Loaded only for this role, since the Kubernetes client takes seconds to load. */
const startController: typeof startControllerRole = async (options, signal) => (await import('./controller-role.ts')).startControllerRole(options, signal)

/**
 * Starts the store, the cache, the ops port and the served ports. Resolves when requests are answered. `/readyz` answers from the start,
 * with 503 until then. Rejects with PortError, StoreError, SealingError, SettingError, a file's error, or the signal's reason; then
 * nothing is left running.
 */
export async function startServer(options: ServerOptions, signal: AbortSignal): Promise<RunningServer> {
  const { config, log, devIssuer, tracing, clock = systemClock, serves = ['api', 'registry', 'worker'] } = options
  const [leaving, stopping] = [new AbortController(), new AbortController()]
  const cleanups = new Cleanups()
  const ports: Served[] = []
  const close = async (): Promise<void> => {
    for (const step of [leaving, stopping]) step.abort(new Error('the server is stopping'))
    await cleanups.run()
  }
  const stop = async (): Promise<void> => {
    await drain(ports, leaving, config.stop.drainSeconds)
    await close()
  }
  try {
    // Checked first, so that these errors are reported before the store is opened.
    const endpoint = serves.includes('controller') ? controllerEndpoint(config.kubernetes.kubeconfig, process.env) : undefined
    const files = followFiles(options)
    cleanups.add(() => files.close())
    // One meter for both ports, because they share the event loop.
    const [registry, meter] = [createMetrics(files, clock, tracing), new LoopMeter()]
    const store = measuredStore(registry, await openStore(config, { log, files }, signal), { system: config.store.kind, tracing })
    cleanups.add(() => store.close())
    const cache = createRecordCache(store, log)
    cleanups.add(() => cache.close())
    registerCache(registry, cache)
    let listening = false
    const checks = readyChecks(cache, serves, () => listening && !leaving.signal.aborted)
    cleanups.add(await openOps(config, createOpsServer({ checks, registry, log })))
    const upstream = measuredUpstream(registry, await openUpstream(config, { clock, random: systemRandom, log, files, tracing }), tracing)
    cleanups.add(() => upstream?.close() ?? Promise.resolve())
    const auditLog = await openServerTrail(options, { files, metrics: registry, cache, store, upstream })
    cleanups.add(() => auditLog.close())
    const fetch = createSafeFetch()
    cleanups.add(() => fetch.close())
    const issuers = openIssuers(config, files)
    const parts = { config, cache, devIssuer, fetch, issuers, trustedRoot: openTrustedRoot(config, files), log, tracing, clock, random: systemRandom }
    const engine = await startEngine({ ...parts, store, upstream, usesRegistryKeys: usesRegistryKeys(serves, options), audit: auditLog.reader }, signal)
    registerKeys(registry, engine, clock)
    const { registryKeys: keys, signingKeys, services } = engine
    const signIn = createSignIn({ ...parts, grants: services.grants, signingKeys, observer: createSignInMetrics(registry) })
    cleanups.add(() => signIn.close())
    const background = { config, files, engine, metrics: registry, sinks: options.sinks, segments: auditLog.segments, ...sharesOf(serves, options) }
    const served = background.works || serves.includes('api') ? serveCatalogues(engine) : serveForPolicies(engine, serves)
    cleanups.add(() => served.end())
    cleanups.add(startBackground({ ...background, scans: createScanJobs({ ...background, upstream, auditLog }) }, stopping.signal))
    const api = serves.includes('api') ? serveApi({ config, log, devIssuer, engine, signIn, auditLog, registry, files, meter }) : undefined
    const hosting = { config, files, engine, signIn, trustedRoot: parts.trustedRoot, log, auditLog, metrics: registry, meter }
    const host = serveRegistry(serves, { ...hosting, upstream, keys })
    await untilTried(served, signal).then(() => openPorts([api, host], ports, cleanups))
    if (endpoint !== undefined) {
      const controller = await startController({ config, endpoint, engine, tokens: signIn.tokens, registry, log, auditLog, clock }, stopping.signal)
      cleanups.add(() => controller.ended)
      await controller.synced(signal)
    }
    listening = true
    if (api !== undefined) followReadiness(engine, api.grpc, leaving.signal)
    return { engine, signIn, routes: api?.routes ?? [], stop }
  } catch (error) {
    await close()
    throw await withOtherPorts(error, config.listen, portsOf(config, serves))
  }
}
