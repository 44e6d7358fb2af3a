import { readFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { fieldsOfFile, type KubeFields } from './kube-fields.ts'

/** A text, or the absolute path of the file that has it. */
type TextSource = { readonly text: string } | { readonly file: string }

/** An API server. */
export interface KubeCluster {
  /** An https URL, without a slash at its end. */
  readonly server: string
  /** The certificate authority as PEM; undefined for those of the system. */
  readonly ca?: TextSource | undefined
  /** True if the certificate of the server is not verified. */
  readonly skipTlsVerify: boolean
  /** The name that the certificate must have, if it is not that of the URL. */
  readonly tlsServerName?: string | undefined
  readonly proxyUrl?: string | undefined
  /** JSON that the cluster has for exec plugins. */
  readonly pluginConfig?: unknown
}

/** A program that prints a credential, as an exec plugin of a kubeconfig. */
export interface ExecPlugin {
  readonly command: string
  readonly args: readonly string[]
  readonly env: ExecVariables
  /** The version of `ExecCredential`, such as `client.authentication.k8s.io/v1`. */
  readonly apiVersion: string
  /** The API server, if the program is to know it. */
  readonly cluster: KubeCluster | undefined
  /** How to install the program. */
  readonly installHint?: string | undefined
}

/** The user to act as. */
export interface Impersonation {
  readonly user: string
  readonly uid: string | undefined
  readonly groups: readonly string[]
  /** Values by key, such as scopes. */
  readonly extra: ReadonlyMap<string, readonly string[]>
}

/** The credentials of a caller. */
interface KubeUser {
  readonly token?: TextSource | undefined
  /** Client certificate and key as PEM. */
  readonly certificate?: TextSource | undefined
  readonly key?: TextSource | undefined
  /** User name and password of basic authentication, separated by a colon. */
  readonly basic?: string | undefined
  readonly actAs?: Impersonation | undefined
  /** Undefined if the user has credentials of its own, which go first. */
  readonly exec?: ExecPlugin | undefined
}

/** An API server, and the credentials to use there. */
export interface KubeAccess {
  readonly cluster: KubeCluster
  readonly user: KubeUser
}

/** Variables of a process. */
export type ExecVariables = Readonly<Record<string, string | undefined>>

/** The extension of a cluster that exec plugins get. */
const pluginExtension = 'client.authentication.k8s.io/exec'

/** Reads a context of a kubeconfig file; the current one if none is named. Throws if it cannot be read, or has no such context with cluster and user. */
export function readKubeconfig({ file, context, environment }: { file: string; context?: string; environment: ExecVariables }): KubeAccess {
  const config = fieldsOfFile(file)
  const chosen = namedIn(config, 'context', context ?? config.text('current-context'))
  const cluster = namedIn(config, 'cluster', chosen?.text('cluster'))
  const user = namedIn(config, 'user', chosen?.text('user'))
  if (cluster === undefined || user === undefined) throw new Error('the kubeconfig has no such context, or one without cluster or user')
  const folder = dirname(resolve(file))
  const access = clusterOf(cluster, folder)
  const found = userOf(user, folder, access)
  return { cluster: access, user: found.exec === undefined ? found : { ...found, exec: { ...found.exec, env: { ...environment, ...found.exec.env } } } }
}

/** Reads a text, or the file that has it. */
export async function textFrom(source: TextSource | undefined): Promise<string | undefined> {
  return source === undefined ? undefined : 'text' in source ? source.text : await readFile(source.file, 'utf8')
}

/** Reads a token. Rejects if it is empty, because an empty one says that the caller is anonymous. */
export async function tokenFrom(source: TextSource | undefined): Promise<string | undefined> {
  const token = (await textFrom(source))?.trim()
  if (source !== undefined && token === '') throw new Error('file' in source ? `the token file ${source.file} is empty` : 'the token is empty')
  return token
}

/** Returns the entry with a name in the list of contexts, clusters or users. */
function namedIn(config: KubeFields, kind: 'context' | 'cluster' | 'user', name: string | undefined): KubeFields | undefined {
  const entries = name === undefined ? [] : config.mappings(`${kind}s`)
  return entries.find((one) => one.text('name') === name)?.mapping(kind)
}

function clusterOf(fields: KubeFields, folder: string): KubeCluster {
  const ca = sourceOf(fields, 'certificate-authority', folder)
  const skipTlsVerify = fields.flag('insecure-skip-tls-verify')
  if (skipTlsVerify && ca !== undefined) throw fields.refusal('insecure-skip-tls-verify', 'must not be true with a certificate-authority: remove one of them')
  const extension = fields.mappings('extensions').find((one) => one.text('name') === pluginExtension)
  return {
    server: (fields.text('server') ?? '').replace(/\/+$/, ''),
    ca,
    skipTlsVerify,
    tlsServerName: fields.text('tls-server-name'),
    proxyUrl: fields.text('proxy-url'),
    pluginConfig: extension?.value('extension'),
  }
}

function userOf(fields: KubeFields, folder: string, cluster: KubeCluster): KubeUser {
  if (fields.value('auth-provider') !== undefined) throw fields.refusal('auth-provider', 'is not supported by Taproot: use exec')
  const exec = fields.mapping('exec')
  const plugin = exec && pluginOf(exec, folder, cluster)
  const own = { ...passwordOrToken(fields, folder), ...certificateOf(fields, folder) }
  // As in client-go: the plugin does not run if the user has a credential of its own.
  return { ...own, actAs: impersonationOf(fields), exec: Object.keys(own).length === 0 ? plugin : undefined }
}

function passwordOrToken(fields: KubeFields, folder: string): Pick<KubeUser, 'token' | 'basic'> {
  const tokenFile = fields.text('tokenFile')
  const text = fields.text('token')
  const username = fields.text('username')
  const password = fields.text('password') ?? ''
  const token = tokenFile !== undefined ? { file: resolve(folder, tokenFile) } : text === undefined ? undefined : { text }
  if (token !== undefined && username !== undefined) throw fields.refusal('username', 'must not be set with a token: remove one of them')
  return { ...(token !== undefined && { token }), ...(username !== undefined && { basic: `${username}:${password}` }) }
}

function certificateOf(fields: KubeFields, folder: string): Pick<KubeUser, 'certificate' | 'key'> {
  const certificate = sourceOf(fields, 'client-certificate', folder)
  const key = sourceOf(fields, 'client-key', folder)
  if (certificate === undefined) return {}
  if (key === undefined) throw fields.refusal('client-key', 'is missing: the client certificate needs one')
  return { certificate, key }
}

function impersonationOf(fields: KubeFields): Impersonation | undefined {
  const user = fields.text('as')
  const uid = fields.text('as-uid')
  const groups = fields.texts('as-groups')
  const values = fields.mapping('as-user-extra')
  const extra = new Map(values?.names().map((name) => [name, values.texts(name)]))
  if (user !== undefined) return { user, uid, groups, extra }
  if (uid !== undefined || groups.length > 0 || extra.size > 0) throw fields.refusal('as', 'is missing: as-uid, as-groups and as-user-extra need it')
  return undefined
}

function pluginOf(fields: KubeFields, folder: string, cluster: KubeCluster): ExecPlugin {
  const command = fields.text('command')
  if (command === undefined) throw fields.refusal('command', 'is missing')
  const mode = fields.text('interactiveMode') ?? 'IfAvailable'
  if (mode === 'Always') throw fields.refusal('interactiveMode', 'must not be Always: Taproot has no terminal')
  if (mode !== 'Never' && mode !== 'IfAvailable') throw fields.refusal('interactiveMode', 'must be Never or IfAvailable')
  return {
    // A path is relative to the kubeconfig. A bare name is looked up on the search path.
    command: command.includes('/') ? resolve(folder, command) : command,
    args: fields.texts('args'),
    env: Object.fromEntries(fields.mappings('env').map(variableOf)),
    apiVersion: fields.text('apiVersion') ?? 'client.authentication.k8s.io/v1',
    cluster: fields.flag('provideClusterInfo') ? cluster : undefined,
    installHint: fields.text('installHint'),
  }
}

function variableOf(fields: KubeFields): [name: string, value: string] {
  const name = fields.text('name')
  if (name === undefined) throw fields.refusal('name', 'is missing')
  return [name, fields.text('value') ?? '']
}

/** Base64 with its padding. */
const base64Form = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** Returns the text of `<name>-data`, which is in base64, or the file that `<name>` names. */
function sourceOf(fields: KubeFields, name: string, folder: string): TextSource | undefined {
  const data = fields.text(`${name}-data`)?.replaceAll(/[\r\n]/g, '')
  const file = fields.text(name)
  if (data === undefined) return file === undefined ? undefined : { file: resolve(folder, file) }
  if (!base64Form.test(data)) throw fields.refusal(`${name}-data`, 'is not valid base64')
  return { text: Buffer.from(data, 'base64').toString() }
}
