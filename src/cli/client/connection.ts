import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { Option } from 'commander'
import { isUid } from '../../base/uid.ts'
import type { Environment } from '../../config/environment.ts'
import { createPlatformClient, type PlatformClient } from './platform-client.ts'
import { UsageError } from '../exit-codes.ts'
import { clientVariables } from '../../config/variables.ts'
import { systemClock } from '../../server/runtime.ts'
import { contextToken } from '../sign-in/context-token.ts'
import { contextFolder, contextNamed, noContexts, readContexts, type Contexts, type LoginContext } from '../sign-in/contexts.ts'

/** Command-line options that select the API server and the credential. */
export interface ConnectionOptions {
  readonly server?: string
  readonly token?: string
  readonly tokenFile?: string
  readonly identity?: string
  readonly caFile?: string
  readonly context?: string
}

/** The options of every client command. */
export function connectionOptions(): Option[] {
  const option = (flags: string, words: string, variable: string): Option => new Option(flags, `${words} (${variable})`)
  return [
    option('--context <name>', 'sign-in to use; default: the "taproot dev" server of this folder, else the current context', clientVariables.context),
    option('--server <url>', 'URL of the API; default: that of the context', clientVariables.server),
    option('--token <token>', 'access token; other users of the machine can see options, so prefer a variable or a file', clientVariables.token),
    option('--token-file <file>', 'file with an access token', clientVariables.tokenFile),
    option('--identity <uid>', 'uid of the identity to assume with a token of another issuer', clientVariables.identity),
    caFileOption(),
  ]
}

/** The option for CA certificates. */
export function caFileOption(): Option {
  return new Option('--ca-file <file>', `extra CA certificates to trust (PEM) (${clientVariables.caFile})`)
}

/** Where the credential of a connection comes from. */
export type CredentialSource = 'token' | 'token file' | 'development server' | 'context'

/** A connection to an API server: its URL and the credential. */
export interface ServerConnection {
  readonly client: PlatformClient
  readonly server: string
  /** Returns the token of the next request. A file is read again each time, and an expired token of a context is renewed. Throws UsageError or ClientError. */
  readonly token: () => Promise<string>
  readonly source: CredentialSource
  /** The context that the credential is from. */
  readonly context?: LoginContext | undefined
}

/** What selects a connection: options with variables, the contexts, and the development server of this folder. */
interface Given {
  readonly options: ConnectionOptions
  readonly env: Environment
  readonly contexts: Contexts
  readonly development: { readonly server: string; readonly tokenFile: string } | undefined
}

/**
 * Returns the connection. Options take precedence over environment variables, and these over the files of `taproot dev` in this folder and
 * the current context. Their credentials are sent only to their own server. Throws UsageError if server or token is missing or invalid, and
 * ClientError if a sign-in cannot be renewed.
 */
export async function openConnection(options: ConnectionOptions, env: Environment): Promise<ServerConnection> {
  assertOptions(options)
  const all = withVariables(options, env)
  const { server, token, tokenFile, identity } = all
  if (identity !== undefined && !isUid(identity)) throw new UsageError(`--identity needs a uid, not "${identity}"`)
  const isComplete = server !== undefined && (token ?? tokenFile) !== undefined
  const contexts = isComplete ? noContexts : await readContexts(contextFolder(env))
  const development = isComplete || options.context !== undefined ? undefined : await developmentServer(env)
  const chosen = chooseCredential({ options: all, env, contexts, development })
  const caFile = all.caFile ?? chosen.context?.caFile ?? ''
  if (caFile !== '') trustAlso(caFile)
  // Reports an unusable token before the first request.
  await chosen.token()
  return { client: createPlatformClient({ baseUrl: chosen.server, token: chosen.token, identity }), ...chosen }
}

function assertOptions({ server, token, tokenFile, identity, context }: ConnectionOptions): void {
  if (token !== undefined && tokenFile !== undefined) throw new UsageError('--token and --token-file cannot be combined: use one of them')
  const hasOthers = [server, token, tokenFile, identity].some((value) => value !== undefined)
  if (context !== undefined && hasOthers) throw new UsageError('--context cannot be combined with --server, --token, --token-file or --identity')
}

/** Returns the server and the credential. The context is chosen by its name, else by the server, else it is the current one. */
function chooseCredential({ options, env, contexts, development }: Given): Omit<ServerConnection, 'client'> {
  const { token, tokenFile } = options
  const context = chooseContext(contexts, options)
  if (token !== undefined || tokenFile !== undefined) {
    const server = serverOf(options.server ?? (options.context === undefined ? (development ?? context) : context)?.server)
    return { server, token: () => Promise.resolve(tokenOf(options)), source: token === undefined ? 'token file' : 'token' }
  }
  const isDevelopment = development !== undefined && options.context === undefined && serverOf(options.server ?? development.server) === development.server
  if (isDevelopment) {
    return { server: development.server, token: () => Promise.resolve(tokenOf({ tokenFile: development.tokenFile })), source: 'development server' }
  }
  const server = serverOf(options.server ?? context?.server)
  if (context === undefined)
    throw new UsageError(`no access token: run "taproot login ${server}", or set --token-file, ${clientVariables.tokenFile} or ${clientVariables.token}`)
  const place = { folder: contextFolder(env), name: context.name, env, clock: systemClock }
  return { server, token: () => contextToken(place, (one) => one.server), source: 'context', context }
}

/**
 * Returns the client and context of a sign-in: the named one, else that of the environment, else the current one. Undefined without any.
 * Throws UsageError if there is no context with the name.
 */
export async function openContext(env: Environment, name?: string): Promise<{ client: PlatformClient; context: LoginContext } | undefined> {
  const folder = contextFolder(env)
  const context = chooseContext(
    await readContexts(folder),
    withVariables(name === undefined ? {} : { context: name }, { [clientVariables.context]: env[clientVariables.context] }),
  )
  if (context === undefined) return undefined
  if (context.caFile !== '') trustAlso(context.caFile)
  const place = { folder, name: context.name, env, clock: systemClock }
  const token = (): Promise<string> => contextToken(place, ({ server }) => server)
  return { client: createPlatformClient({ baseUrl: context.server, token }), context }
}

function chooseContext(contexts: Contexts, { server, context: name }: ConnectionOptions): LoginContext | undefined {
  const named = contextNamed(contexts, name ?? contexts.current)
  if (name !== undefined && named === undefined) throw new UsageError(`there is no context ${name}: "taproot context list" lists them`)
  if (server === undefined || named?.server === serverOf(server)) return named
  if (name !== undefined) throw new UsageError(`the context ${name} is of ${named?.server ?? ''}, not of ${server}`)
  return contexts.contexts.find((context) => context.server === serverOf(server))
}

/**
 * Adds values of environment variables. An option for the token replaces both variables for it. An option for the context replaces all
 * variables that select a server or a credential.
 */
function withVariables(options: ConnectionOptions, env: Environment): ConnectionOptions {
  const tokenGiven = (options.token ?? options.tokenFile) !== undefined
  const entries = Object.entries(clientVariables).flatMap(([name, variable]) => {
    const value = env[variable]?.trim() ?? ''
    const isReplaced = (tokenGiven && name.startsWith('token')) || (options.context !== undefined && name !== 'caFile')
    return value === '' || isReplaced ? [] : [[name, value] as const]
  })
  return { ...Object.fromEntries(entries), ...options }
}

/** Returns the server and token file of `taproot dev` in the current folder; undefined if there is no token file. */
async function developmentServer(env: Environment): Promise<Given['development']> {
  // Loaded only if needed, since settings and their validation are a large part of the program.
  const { loadConfig } = await import('../../config/load-config.ts')
  const { config } = loadConfig({ env, role: 'dev' })
  const tokenFile = join(config.dataDir, 'token')
  return existsSync(tokenFile) ? { server: config.baseUrl, tokenFile } : undefined
}

/** Returns the base URL of a server without a final slash. Throws UsageError if it is not a URL. */
export function serverOf(text: string | undefined): string {
  if (text === undefined) throw new UsageError(`no server: run "taproot login <server>", or set --server or ${clientVariables.server}`)
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !/^https?:$/.test(url.protocol)) throw new UsageError(`a server needs a URL such as https://taproot.example.com, not "${text}"`)
  return `${url.origin}${url.pathname}`.replace(/\/+$/, '')
}

function tokenOf({ token, tokenFile }: Pick<ConnectionOptions, 'token' | 'tokenFile'>): string {
  const text = token ?? readFile(tokenFile ?? '', '--token-file').trim()
  if (!/^[\x21-\x7e]+$/.test(text)) throw new UsageError(`${token === undefined ? (tokenFile ?? '') : 'the given value'} contains no token`)
  return text
}

/** Trusts these CA certificates in addition, for all later connections of this process. Throws UsageError. */
export function trustAlso(caFile: string): void {
  const pem = readFile(caFile, '--ca-file')
  if (!pem.includes('-----BEGIN CERTIFICATE-----')) throw new UsageError(`--ca-file: ${caFile} contains no certificate in PEM`)
  setDefaultCACertificates([...getCACertificates('default'), pem])
}

function readFile(file: string, option: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (cause) {
    const { code = 'no file' } = cause as NodeJS.ErrnoException // a cast: the file system throws no other errors
    throw new UsageError(`${option}: ${file} cannot be read (${code})`, { cause })
  }
}
