import { execFile } from 'node:child_process'
import { promisify, stripVTControlCharacters } from 'node:util'
import { textFrom, type ExecPlugin, type KubeCluster } from './kubeconfig.ts'
import { KubeFields } from './kube-fields.ts'

/** What a plugin printed: a token, or a client certificate and its key as PEM. */
interface ExecCredential {
  readonly token: string | undefined
  readonly certificate: string | undefined
  readonly key: string | undefined
  /** Milliseconds since 1970; infinite if the credential does not expire. */
  readonly expiresAt: number
}

const run = promisify(execFile)
/** How long a plugin may take, in milliseconds. */
const pluginMs = 60_000
/** How much a plugin may print, in bytes. */
const outputLimit = 1024 * 1024

/** Runs a plugin, and keeps its credential until that expires or is refused. */
export class ExecCredentials {
  readonly #plugin: ExecPlugin
  readonly #timeoutMs: number
  #kept: Promise<ExecCredential> | undefined
  /** What `#kept` resolved to. */
  #printed: ExecCredential | undefined

  /** A plugin that takes longer than `timeoutMs`, in milliseconds, is killed. */
  constructor(plugin: ExecPlugin, timeoutMs = pluginMs) {
    this.#plugin = plugin
    this.#timeoutMs = timeoutMs
  }

  /** Returns a credential that has not expired. Rejects if the plugin fails or prints none; then the next call runs it again. */
  async get(): Promise<ExecCredential> {
    const kept = this.#kept
    if (kept !== undefined && (await kept).expiresAt > Date.now()) return await kept
    // Others that waited for the same credential may have started the plugin meanwhile.
    if (this.#kept === kept) this.#kept = undefined
    this.#kept ??= this.#start()
    return await this.#kept
  }

  /** Forgets a credential that the API server refused, so that the next call runs the plugin. A newer credential is kept. */
  drop(refused: ExecCredential): void {
    if (this.#printed === refused) this.#kept = undefined
  }

  #start(): Promise<ExecCredential> {
    this.#printed = undefined
    const started = credentialOf(this.#plugin, this.#timeoutMs)
    started.then(
      (credential) => (this.#printed = credential),
      () => (this.#kept = undefined),
    )
    return started
  }
}

async function credentialOf(plugin: ExecPlugin, timeoutMs: number): Promise<ExecCredential> {
  const { command, apiVersion } = plugin
  const spec = { interactive: false, ...(plugin.cluster && { cluster: await clusterInfo(plugin.cluster) }) }
  const output = await outputOf(plugin, { KUBERNETES_EXEC_INFO: JSON.stringify({ apiVersion, kind: 'ExecCredential', spec }) }, timeoutMs)
  const status = new KubeFields(jsonOf(output, command), `the output of ${command}:`).mapping('status')
  if (status === undefined) throw new Error(`${command} printed no credential`)
  const token = status.text('token')?.trim()
  const certificate = status.text('clientCertificateData')
  const key = status.text('clientKeyData')
  if ((token ?? '') === '' && certificate === undefined) throw new Error(`${command} printed neither a token nor a certificate`)
  if ((certificate === undefined) !== (key === undefined)) throw new Error(`${command} printed a certificate without its key, or a key alone`)
  return { token: token === '' ? undefined : token, certificate, key, expiresAt: expiryOf(status) }
}

/** Runs a plugin and returns what it prints. Its errors have neither its arguments nor its output, which may have secrets. */
async function outputOf({ command, args, env, installHint }: ExecPlugin, info: ExecPlugin['env'], timeoutMs: number): Promise<string> {
  try {
    const options = { env: { ...env, ...info }, timeout: timeoutMs, killSignal: 'SIGKILL', maxBuffer: outputLimit } as const
    const running = run(command, args, options)
    running.child.stdin?.end()
    return (await running).stdout
  } catch (error) {
    // The error of the run is no cause of this one: it has the arguments and what the program wrote to stderr.
    throw new Error(`the exec plugin ${command} ${failureOf({ ...(error as object) }, installHint)}`)
  }
}

function failureOf({ code, killed, signal }: { code?: unknown; killed?: unknown; signal?: unknown }, installHint = ''): string {
  if (code === 'ENOENT') return `was not found. ${stripVTControlCharacters(installHint).replaceAll(/\s+/g, ' ')}`.trim()
  if (code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') return `printed more than ${outputLimit / 1024} KiB`
  if (typeof code === 'number') return `failed with exit code ${code}`
  if (killed === true) return 'took too long'
  return typeof signal === 'string' ? `was ended by ${signal}` : `did not start (${String(code)})`
}

function jsonOf(text: string, command: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // The parser's error has a part of the text, which may be a secret.
    throw new Error(`${command} printed no JSON`)
  }
}

/** The form of RFC 3339. */
const timeForm = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$/

function expiryOf(status: KubeFields): number {
  const time = status.text('expirationTimestamp')
  if (time === undefined) return Number.POSITIVE_INFINITY
  const expiresAt = timeForm.test(time) ? Date.parse(time) : Number.NaN
  if (Number.isNaN(expiresAt)) throw status.refusal('expirationTimestamp', 'is not a time of RFC 3339')
  return expiresAt
}

async function clusterInfo(cluster: KubeCluster): Promise<object> {
  const ca = await textFrom(cluster.ca)
  return {
    server: cluster.server,
    ...(ca !== undefined && { 'certificate-authority-data': Buffer.from(ca).toString('base64') }),
    ...(cluster.tlsServerName !== undefined && { 'tls-server-name': cluster.tlsServerName }),
    ...(cluster.skipTlsVerify && { 'insecure-skip-tls-verify': true }),
    ...(cluster.proxyUrl !== undefined && { 'proxy-url': cluster.proxyUrl }),
    ...(cluster.pluginConfig !== undefined && { config: cluster.pluginConfig }),
  }
}
