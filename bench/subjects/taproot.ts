import { once } from 'node:events'
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { request } from 'node:https'
import type { Profiler } from 'node:inspector'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { benchIssuer, subjects } from '../data/generate.ts'
import { Child, onFreePorts } from './child.ts'
import type { Issuer } from './issuer.ts'

/** A running process of the product, with a probe loaded into it. */
export interface TaprootProcess {
  readonly pid: number
  /** Port that the process's role serves. */
  readonly port: number
  /** Time from spawning the process to a 200 of `/readyz`, in milliseconds. */
  readonly startMs: number
  /** The last part of its log. */
  readonly log: string
  /** True if `/readyz` answered 503 before it answered 200. */
  readonly saidNotReady: boolean
  /** Returns the process's memory right after garbage collection, in bytes. */
  memory(): Promise<NodeJS.MemoryUsage>
  /** Records a processor profile of the process while `work` runs. */
  profiled(work: () => Promise<unknown>): Promise<Profiler.Profile>
  metric(name: string): Promise<number>
  stop(): Promise<void>
}

/** A running `taproot api`. */
export interface Taproot extends TaprootProcess {
  readonly tls: boolean
  readonly baseUrl: string
  /** Returns a new access token for a person of the benchmark, by a token exchange. Its audience is the API, unless another one is given. */
  tokenOf(subject: string, audience?: string): Promise<string>
  /** Sends one request. Throws unless the status is 2xx. */
  call(token: string, path: string, body?: unknown): Promise<Record<string, unknown>>
}

/** Name of the registry host. It does not resolve: clients of the benchmark connect to the host's port. */
export const registryHostName = 'registry.example'

/** Options for starting a server. */
export interface TaprootOptions {
  readonly store: { readonly etcd: string; readonly prefix?: string } | { readonly sqlite: string }
  readonly issuer: Issuer
  readonly encryptionKeyFile: string
  readonly reads?: 'linearizable' | 'bounded'
  /** URL of the replica whose tokens the server accepts; its own URL if absent. */
  readonly baseUrl?: string
  /** CA certificate of sinks, as a PEM file. Sinks may be on loopback. */
  readonly sinkCaFile?: string
  /** Paths of PEM files. */
  readonly tls?: { readonly certFile: string; readonly keyFile: string }
}

/** Options of a registry host that the API does not have. */
export interface RegistryHostOptions extends Omit<TaprootOptions, 'tls'> {
  /** URL of the API whose tokens it accepts. */
  readonly baseUrl: string
  readonly upstream: { readonly url: string } | { readonly folder: string }
  readonly blobCacheMegabytes?: number
}

const root = join(import.meta.dirname, '..', '..')
const startTimeoutMs = 600_000

/** Creates a key file for servers that share a store. The caller removes its folder. */
export async function makeEncryptionKeyFile(directory: string): Promise<string> {
  const file = join(directory, 'encryption.key')
  await writeFile(file, randomBytes(32).toString('hex'))
  return file
}

/** Sends a GET or POST. Does not verify the server's certificate, which was created for this run. */
async function fetchText(url: string, options: { token: string; body?: unknown }): Promise<{ status: number; text: string }> {
  const headers = { authorization: `Bearer ${options.token}`, ...(options.body === undefined ? {} : { 'content-type': 'application/json' }) }
  const method = options.body === undefined ? 'GET' : 'POST'
  if (!url.startsWith('https:')) {
    const response = await fetch(url, { method, headers, ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }) })
    return { status: response.status, text: await response.text() }
  }
  const sent = request(url, { method, headers, rejectUnauthorized: false })
  sent.end(options.body === undefined ? undefined : JSON.stringify(options.body))
  const [response] = await once(sent, 'response')
  let text = ''
  for await (const chunk of response) text += String(chunk)
  return { status: Number(response.statusCode), text }
}

function settings(options: Omit<TaprootOptions, 'tls'>, place: Place): Record<string, string> {
  const [apiPort = 0, opsPort = 0, registryPort = 0] = place.ports
  const { store } = options
  return {
    PATH: process.env['PATH'] ?? '',
    TAPROOT_DATA_DIR: place.directory,
    TAPROOT_LISTEN: '127.0.0.1',
    TAPROOT_API_PORT: String(apiPort),
    TAPROOT_OPS_PORT: String(opsPort),
    TAPROOT_REGISTRY_PORT: String(registryPort),
    TAPROOT_REGISTRY_HOST: registryHostName,
    TAPROOT_ENCRYPTION_KEY_FILE: options.encryptionKeyFile,
    TAPROOT_RATE_LIMIT_ENABLED: 'false',
    TAPROOT_READS: options.reads ?? 'linearizable',
    TAPROOT_BOOTSTRAP_OPERATORS: JSON.stringify([{ issuer: benchIssuer, subject: subjects.operator }]),
    TAPROOT_ISSUERS: JSON.stringify([{ issuer: benchIssuer, jwksUri: options.issuer.jwksUri, allowPrivate: true }]),
    ...(options.sinkCaFile === undefined ? {} : { TAPROOT_EVENTS_CA_FILE: options.sinkCaFile, TAPROOT_EVENTS_NETWORKS: '["127.0.0.0/8","::1"]' }),
    ...('etcd' in store
      ? { TAPROOT_STORE_KIND: 'etcd', TAPROOT_STORE_ETCD_ENDPOINTS: store.etcd, TAPROOT_STORE_ETCD_PREFIX: store.prefix ?? '/taproot' }
      : { TAPROOT_STORE_SQLITE_PATH: store.sqlite }),
  }
}

/** The ports and folder of a process. */
interface Place {
  readonly ports: readonly number[]
  readonly directory: string
}

/** A process that is ready, and how its start went. */
interface Ready {
  readonly child: Child
  readonly ports: readonly number[]
  readonly startMs: number
  readonly saidNotReady: boolean
}

async function spawnReady(role: 'api' | 'registry', place: Place, env: Record<string, string>): Promise<Ready> {
  const flags = ['--disable-warning=ExperimentalWarning', '--expose-gc', '--import', join(import.meta.dirname, 'probe.ts')]
  const start = performance.now()
  const child = new Child([process.execPath, ...flags, join(root, 'src/cli/taproot.ts'), role], { stdio: ['ignore', 'ignore', 'pipe', 'ipc'], env })
  let saidNotReady = false
  await child.until(async () => {
    const response = await fetch(`http://127.0.0.1:${place.ports[1]}/readyz`).catch(() => undefined)
    await response?.body?.cancel()
    saidNotReady ||= response?.status === 503
    return response?.ok === true
  }, startTimeoutMs)
  return { child, ports: place.ports, startMs: performance.now() - start, saidNotReady }
}

function urlOf({ tls }: TaprootOptions, host: string, ports: readonly number[]): string {
  return `${tls === undefined ? 'http' : 'https'}://${host}:${ports[0]}`
}

/** Starts the product in one of its roles, on free ports for the API, operations and the registry host. Resolves when it is ready. */
async function startRole(
  role: 'api' | 'registry',
  envOf: (place: Place) => Record<string, string>,
): Promise<{ running: TaprootProcess; ports: readonly number[] }> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-bench-api-'))
  const removeDirectory = (): Promise<void> => rm(directory, { recursive: true, force: true, maxRetries: 3 })
  const starting = onFreePorts(3, (free) => spawnReady(role, { ports: free, directory }, envOf({ ports: free, directory })))
  const { child, ports, startMs, saidNotReady } = await starting.catch(async (error: unknown) => {
    await removeDirectory()
    throw error
  })
  const [apiPort = 0, opsPort = 0, registryPort = 0] = ports
  const ask = async (question: string): Promise<unknown> => {
    child.process.send(question)
    const [answer] = (await once(child.process, 'message')) as [{ value?: unknown; error?: string }]
    if (answer.error !== undefined) throw new Error(answer.error)
    return answer.value
  }
  const running: TaprootProcess = {
    pid: child.pid,
    port: role === 'api' ? apiPort : registryPort,
    startMs,
    get log() {
      return child.output
    },
    saidNotReady,
    // a cast: the probe sends this answer
    memory: async () => (await ask('memory')) as NodeJS.MemoryUsage,
    async profiled(work) {
      await ask('profile')
      await work()
      return (await ask('profiled')) as Profiler.Profile
    },
    async metric(name) {
      const text = await (await fetch(`http://127.0.0.1:${opsPort}/metrics`)).text()
      return Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)`, 'm').exec(text)?.[1] ?? NaN)
    },
    async stop() {
      await child.stop()
      await removeDirectory()
    },
  }
  return { running, ports }
}

/** Starts `taproot api` like an operator would, with a probe loaded into it. Resolves when it is ready. */
export async function startTaproot(options: TaprootOptions): Promise<Taproot> {
  const { tls } = options
  const { running, ports } = await startRole('api', (place) => ({
    ...settings(options, place),
    TAPROOT_BASE_URL: options.baseUrl ?? urlOf(options, 'localhost', place.ports),
    ...(tls === undefined ? {} : { TAPROOT_API_TLS_CERT_FILE: tls.certFile, TAPROOT_API_TLS_KEY_FILE: tls.keyFile }),
  }))
  const url = urlOf(options, '127.0.0.1', ports)
  const baseUrl = urlOf(options, 'localhost', ports)
  const own = {
    tls: tls !== undefined,
    baseUrl,
    async tokenOf(subject: string, audience?: string) {
      const query = audience === undefined ? '' : `?aud=${encodeURIComponent(audience)}`
      const { status, text } = await fetchText(`${url}/sts/exchange${query}`, { token: await options.issuer.tokenOf(subject, baseUrl) })
      if (status !== 200) throw new Error(`the exchange answered ${status} ${text}`)
      const { token } = JSON.parse(text) as { token: string }
      return token
    },
    async call(token: string, path: string, body?: unknown) {
      const { status, text } = await fetchText(`${url}${path}`, { token, ...(body === undefined ? {} : { body }) })
      if (status > 299) throw new Error(`${path} answered ${status} ${text}`)
      return JSON.parse(text) as Record<string, unknown>
    },
  }
  // Object.assign keeps the getter of `running`; a copy would not.
  return Object.assign(running, own)
}

/** Starts `taproot registry` with an upstream. Resolves when it is ready. */
export async function startRegistryHost(options: RegistryHostOptions): Promise<TaprootProcess> {
  const { running } = await startRole('registry', (place) => ({
    ...settings(options, place),
    TAPROOT_BASE_URL: options.baseUrl,
    ...('url' in options.upstream ? { TAPROOT_REGISTRY_UPSTREAM_URL: options.upstream.url } : { TAPROOT_REGISTRY_UPSTREAM_DIRECTORY: options.upstream.folder }),
    ...(options.blobCacheMegabytes === undefined ? {} : { TAPROOT_REGISTRY_BLOB_CACHE_MEGABYTES: String(options.blobCacheMegabytes) }),
  }))
  return running
}
