import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { parse } from 'yaml'

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
}

/** The credentials of a caller. */
interface KubeUser {
  readonly token?: TextSource | undefined
  /** Client certificate and key as PEM. */
  readonly certificate?: TextSource | undefined
  readonly key?: TextSource | undefined
  /** User name and password of basic authentication, separated by a colon. */
  readonly basic?: string | undefined
  /** The user to act as. */
  readonly actAs?: string | undefined
  readonly exec?: ExecPlugin | undefined
}

/** An API server, and the credentials to use there. */
export interface KubeAccess {
  readonly cluster: KubeCluster
  readonly user: KubeUser
}

type Fields = Readonly<Record<string, unknown>>

/** Variables of a process. */
export type ExecVariables = Readonly<Record<string, string | undefined>>

/** Reads a context of a kubeconfig file; the current one if none is named. Throws if it cannot be read, or has no such context with cluster and user. */
export function readKubeconfig({ file, context, environment }: { file: string; context?: string; environment: ExecVariables }): KubeAccess {
  const config = fieldsOf(parse(readFileSync(file, 'utf8')))
  const chosen = namedIn(config, 'context', context ?? textIn(config, 'current-context'))
  const cluster = namedIn(config, 'cluster', textIn(chosen, 'cluster'))
  const user = namedIn(config, 'user', textIn(chosen, 'user'))
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

/** Returns the entry with a name in the list of contexts, clusters or users. */
function namedIn(config: Fields, kind: 'context' | 'cluster' | 'user', name: string | undefined): Fields | undefined {
  const list = config[`${kind}s`]
  const entry = Array.isArray(list) && name !== undefined ? list.map(fieldsOf).find((one) => one['name'] === name) : undefined
  return entry && fieldsOf(entry[kind])
}

function clusterOf(fields: Fields, folder: string): KubeCluster {
  return {
    server: (textIn(fields, 'server') ?? '').replace(/\/+$/, ''),
    ca: sourceOf(fields, 'certificate-authority', folder),
    skipTlsVerify: fields['insecure-skip-tls-verify'] === true,
    tlsServerName: textIn(fields, 'tls-server-name'),
    proxyUrl: textIn(fields, 'proxy-url'),
  }
}

function userOf(fields: Fields, folder: string, cluster: KubeCluster): KubeUser {
  if (fields['auth-provider'] !== undefined) throw new Error('the kubeconfig has an auth-provider, which Kubernetes does not support any more: use exec')
  const tokenFile = textIn(fields, 'tokenFile')
  const token = textIn(fields, 'token')
  const username = textIn(fields, 'username')
  return {
    token: tokenFile !== undefined ? { file: resolve(folder, tokenFile) } : token === undefined ? undefined : { text: token },
    certificate: sourceOf(fields, 'client-certificate', folder),
    key: sourceOf(fields, 'client-key', folder),
    basic: username === undefined ? undefined : `${username}:${textIn(fields, 'password') ?? ''}`,
    actAs: textIn(fields, 'as'),
    exec: fields['exec'] === undefined ? undefined : pluginOf(fieldsOf(fields['exec']), folder, cluster),
  }
}

function pluginOf(fields: Fields, folder: string, cluster: KubeCluster): ExecPlugin {
  const command = textIn(fields, 'command')
  if (command === undefined) throw new Error('the kubeconfig has an exec plugin without a command')
  const env = Array.isArray(fields['env']) ? fields['env'].map(fieldsOf) : []
  return {
    // A path is relative to the kubeconfig. A bare name is looked up on the search path.
    command: command.includes('/') ? resolve(folder, command) : command,
    args: Array.isArray(fields['args']) ? fields['args'].map(String) : [],
    env: Object.fromEntries(env.map((one) => [textIn(one, 'name') ?? '', textIn(one, 'value') ?? ''])),
    apiVersion: textIn(fields, 'apiVersion') ?? 'client.authentication.k8s.io/v1',
    cluster: fields['provideClusterInfo'] === true ? cluster : undefined,
  }
}

/** Returns the text of `<name>-data`, which is in base64, or the file that `<name>` names. */
function sourceOf(fields: Fields, name: string, folder: string): TextSource | undefined {
  const data = textIn(fields, `${name}-data`)
  if (data !== undefined) return { text: Buffer.from(data, 'base64').toString() }
  const file = textIn(fields, name)
  return file === undefined ? undefined : { file: resolve(folder, file) }
}

function fieldsOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? { ...value } : {}
}

/** Returns a field that is not empty. */
function textIn(fields: Fields | undefined, name: string): string | undefined {
  const value = fields?.[name]
  return typeof value === 'string' && value !== '' ? value : undefined
}
