import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { textFrom, type ExecPlugin, type KubeCluster } from './kubeconfig.ts'

/** What a plugin printed: a token, or a client certificate and its key as PEM. */
interface ExecCredential {
  readonly token?: string
  readonly clientCertificateData?: string
  readonly clientKeyData?: string
  /** RFC 3339; without it, the credential does not expire. */
  readonly expirationTimestamp?: string
}

const run = promisify(execFile)
/** How long a plugin may take, in milliseconds. */
const pluginMs = 60_000

/** Runs a plugin, and keeps its credential until that expires. */
export class ExecCredentials {
  readonly #plugin: ExecPlugin
  #kept: Promise<ExecCredential> | undefined

  constructor(plugin: ExecPlugin) {
    this.#plugin = plugin
  }

  /** Returns a credential that has not expired. Rejects if the plugin fails or prints none; then the next call runs it again. */
  async get(): Promise<ExecCredential> {
    const kept = this.#kept
    if (kept !== undefined && isValid(await kept)) return await kept
    // Others that waited for the same credential may have started the plugin meanwhile.
    if (this.#kept === kept) this.#kept = this.#start()
    return await (this.#kept ?? this.#start())
  }

  #start(): Promise<ExecCredential> {
    const started = credentialOf(this.#plugin)
    started.catch(() => (this.#kept = undefined))
    return started
  }
}

function isValid({ expirationTimestamp }: ExecCredential): boolean {
  return expirationTimestamp === undefined || Date.parse(expirationTimestamp) > Date.now()
}

async function credentialOf(plugin: ExecPlugin): Promise<ExecCredential> {
  const { command, args, apiVersion } = plugin
  const spec = { interactive: false, ...(plugin.cluster && { cluster: await clusterInfo(plugin.cluster) }) }
  const KUBERNETES_EXEC_INFO = JSON.stringify({ apiVersion, kind: 'ExecCredential', spec })
  const { stdout } = await run(command, args, { env: { ...plugin.env, KUBERNETES_EXEC_INFO }, timeout: pluginMs })
  const { status }: { status?: unknown } = JSON.parse(stdout) ?? {}
  if (typeof status !== 'object' || status === null) throw new Error(`${command} printed no credential`)
  const credential: ExecCredential = status
  if (credential.token === undefined && credential.clientCertificateData === undefined) throw new Error(`${command} printed neither a token nor a certificate`)
  return credential
}

async function clusterInfo(cluster: KubeCluster): Promise<object> {
  const ca = await textFrom(cluster.ca)
  return {
    server: cluster.server,
    ...(ca !== undefined && { 'certificate-authority-data': Buffer.from(ca).toString('base64') }),
    ...(cluster.tlsServerName !== undefined && { 'tls-server-name': cluster.tlsServerName }),
    ...(cluster.skipTlsVerify && { 'insecure-skip-tls-verify': true }),
    ...(cluster.proxyUrl !== undefined && { 'proxy-url': cluster.proxyUrl }),
  }
}
