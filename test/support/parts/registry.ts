import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { freePorts } from './free-port.ts'
import { pauseProcess } from './pause-process.ts'
import { requirePart } from './require-part.ts'

const startTimeoutMs = 30_000

/** The one account of a registry with `auth: 'basic'`. */
export const registryAccount = { username: 'upstream', password: 'upstream-password' } as const
/** The bcrypt hash of the password. */
const passwordFile = `${registryAccount.username}:$2a$04$iXbL6ZrOzBodMYgHeWUDAOD0JsFBEaOaEcwTLzGCvVPW.TELdcRPm\n`

/** A running CNCF distribution registry. */
export interface DistributionRegistry {
  /** `http://127.0.0.1:<port>`, or `https` */
  readonly url: string
  readonly port: number
  readonly pid: number
  /** The root folder of its `filesystem` driver. */
  readonly dir: string
  /** The end of its standard error output. */
  readonly output: string
  /** Kills the process and waits for its end. */
  kill(): Promise<void>
  /** Pauses the process; resolves when all its threads are stopped. */
  pause(): Promise<void>
  /** Resumes the process. */
  resume(): void
  /** Starts the registry again on the same data and port, after `kill`; resolves when it answers. */
  restart(): Promise<void>
  /** Stops it and removes its data, but not a `storageDir` that was given. */
  stop(): Promise<void>
}

/** Options of the start. */
export interface RegistryOptions {
  /** The storage folder; a new one by default. */
  readonly storageDir?: string
  /** Whether deletes are allowed; true by default. */
  readonly deleteEnabled?: boolean
  /**
   * Without authentication by default. `basic` accepts the one `registryAccount`. Otherwise the token protocol, by a service and its signing keys (a JWKS
   * file).
   */
  readonly auth?: 'basic' | { readonly realm: string; readonly service: string; readonly issuer: string; readonly jwksFile: string }
  /** The OTLP endpoint for its traces; none by default. */
  readonly traces?: string
  /** PEM files. */
  readonly tls?: { readonly certFile: string; readonly keyFile: string }
  /** Top-level keys of its configuration, which replace the settings here. */
  readonly configuration?: Readonly<Record<string, unknown>>
  /** A YAML configuration file instead of these options; only the address and storage folder are overridden. */
  readonly configurationFile?: string
}

/** Starts a real distribution registry on a free loopback port; resolves when `/v2/` answers. */
export async function startRegistry(options: RegistryOptions = {}): Promise<DistributionRegistry> {
  const program = requirePart('registry')
  const directory = await mkdtemp(join(tmpdir(), 'taproot-registry-'))
  const [port = 0] = await freePorts(1)
  const dir = options.storageDir ?? join(directory, 'data')
  const file = join(directory, 'config.yml')
  await writeFile(join(directory, 'htpasswd'), passwordFile)
  await writeFile(file, options.configurationFile === undefined ? configurationOf(options, directory) : await readFile(options.configurationFile))
  const registry = new RegistryProcess([program, 'serve', file], { dir, port, directory, tls: options.tls !== undefined, traces: options.traces })
  try {
    await registry.restart()
  } catch (error) {
    await registry.stop()
    throw error
  }
  return registry
}

/** JSON is YAML. */
function configurationOf(options: RegistryOptions, directory: string): string {
  const { auth, tls } = options
  const basic = { htpasswd: { realm: 'upstream', path: join(directory, 'htpasswd') } }
  const token = (by: Exclude<typeof auth, 'basic' | undefined>) => ({ token: { realm: by.realm, service: by.service, issuer: by.issuer, jwks: by.jwksFile } })
  return JSON.stringify({
    version: 0.1,
    log: { level: 'warn', accesslog: { disabled: true } },
    storage: { filesystem: {}, delete: { enabled: options.deleteEnabled ?? true } },
    http: { ...(tls && { tls: { certificate: tls.certFile, key: tls.keyFile } }) },
    ...(auth !== undefined && { auth: auth === 'basic' ? basic : token(auth) }),
    ...options.configuration,
  })
}

class RegistryProcess implements DistributionRegistry {
  readonly url: string
  readonly port: number
  readonly dir: string
  readonly #command: readonly string[]
  readonly #directory: string
  readonly #traces: Readonly<Record<string, string>>
  #process: ChildProcess | undefined
  #output = ''

  constructor(command: readonly string[], place: { dir: string; port: number; directory: string; tls: boolean; traces: string | undefined }) {
    this.#command = command
    this.#directory = place.directory
    this.#traces =
      place.traces === undefined
        ? { OTEL_TRACES_EXPORTER: 'none' }
        : { OTEL_TRACES_EXPORTER: 'otlp', OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf', OTEL_EXPORTER_OTLP_ENDPOINT: place.traces }
    this.dir = place.dir
    this.port = place.port
    this.url = `${place.tls ? 'https' : 'http'}://127.0.0.1:${place.port}`
  }

  get pid(): number {
    return this.#process?.pid ?? 0
  }

  get output(): string {
    return this.#output
  }

  async restart(): Promise<void> {
    const [program = '', ...args] = this.#command
    const settings = { REGISTRY_HTTP_ADDR: `127.0.0.1:${this.port}`, REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY: this.dir, ...this.#traces }
    const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, ...settings } })
    child.stderr.on('data', (chunk) => (this.#output = (this.#output + String(chunk)).slice(-8000)))
    this.#process = child
    const killChild = (): void => void child.kill('SIGKILL')
    process.once('exit', killChild)
    child.once('exit', () => process.off('exit', killChild))
    const deadline = performance.now() + startTimeoutMs
    while (!(await answers(this.url))) {
      if (child.exitCode !== null || performance.now() > deadline) throw new Error(`the registry did not start:\n${this.#output}`)
      await delay(30)
    }
  }

  async kill(): Promise<void> {
    const child = this.#process
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    child.kill('SIGKILL')
    await exited
  }

  async pause(): Promise<void> {
    await pauseProcess(this.#process?.pid)
  }

  resume(): void {
    this.#process?.kill('SIGCONT')
  }

  async stop(): Promise<void> {
    await this.kill()
    await rm(this.#directory, { recursive: true, force: true, maxRetries: 3 })
  }
}

/** True for any answer, including a request for credentials. */
async function answers(url: string): Promise<boolean> {
  const sent = url.startsWith('https:')
    ? httpsRequest(`${url}/v2/`, { rejectUnauthorized: false, timeout: 2000, agent: false })
    : httpRequest(`${url}/v2/`, { timeout: 2000, agent: false })
  sent.on('timeout', () => sent.destroy())
  sent.end()
  try {
    const [response] = await once(sent, 'response')
    response.resume()
    return response.statusCode !== 503
  } catch {
    // Nothing listens yet.
    return false
  }
}
