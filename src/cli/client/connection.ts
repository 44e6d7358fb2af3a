import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { Option } from 'commander'
import { isUid } from '../../base/uid.ts'
import type { Environment } from '../../config/environment.ts'
import { createPlatformClient, type PlatformClient } from './platform-client.ts'
import { UsageError } from '../exit-codes.ts'
import { clientVariables } from '../../config/variables.ts'

/** Command-line options that select the API server and the credential. */
export interface ConnectionOptions {
  readonly server?: string
  readonly token?: string
  readonly tokenFile?: string
  readonly identity?: string
  readonly caFile?: string
}

/** The options of every client command. */
export function connectionOptions(): Option[] {
  const option = (flags: string, words: string, variable: string): Option => new Option(flags, `${words} (${variable})`)
  return [
    option('--server <url>', 'URL of the API; default: the "taproot dev" server of this folder, if it left a token', clientVariables.server),
    option('--token <token>', 'access token; other users of the machine can see options, so prefer a variable or a file', clientVariables.token),
    option('--token-file <file>', 'file with an access token', clientVariables.tokenFile),
    option('--identity <uid>', 'uid of the identity to assume with a token of another issuer', clientVariables.identity),
    option('--ca-file <file>', 'extra CA certificates to trust (PEM)', clientVariables.caFile),
  ]
}

/** A connection to an API server: its URL and the credential. */
export interface ServerConnection {
  readonly client: PlatformClient
  /** Returns the token of the next request. A file is read again each time. Throws UsageError. */
  readonly token: () => string
  /** True if the token comes from a file, so that it may be replaced. */
  readonly renewsToken: boolean
}

/**
 * Returns the connection. Options take precedence over environment variables, and these over the files of `taproot dev` in this folder,
 * whose token is sent only to that server. Throws UsageError if server or token is missing or invalid.
 */
export async function openConnection(options: ConnectionOptions, env: Environment): Promise<ServerConnection> {
  if (options.token !== undefined && options.tokenFile !== undefined) throw new UsageError('--token and --token-file cannot be combined: use one of them')
  const given = withVariables(options, env)
  const development = given.server === undefined || (given.token ?? given.tokenFile) === undefined ? await developmentServer(env) : undefined
  const server = serverOf(given.server ?? development?.server)
  const token = (): string => tokenOf(given, development?.server === server ? development.tokenFile : undefined)
  // Reports an unusable token before the first request.
  token()
  const { identity, caFile } = given
  if (identity !== undefined && !isUid(identity)) throw new UsageError(`--identity needs a uid, not "${identity}"`)
  if (caFile !== undefined) trustAlso(caFile)
  return { client: createPlatformClient({ baseUrl: server, token, identity }), token, renewsToken: given.token === undefined }
}

/** Adds values of environment variables. An option for the token replaces both variables for it. */
function withVariables(options: ConnectionOptions, env: Environment): ConnectionOptions {
  const tokenGiven = (options.token ?? options.tokenFile) !== undefined
  const entries = Object.entries(clientVariables).flatMap(([name, variable]) => {
    const value = env[variable]?.trim() ?? ''
    return value === '' || (tokenGiven && name.startsWith('token')) ? [] : [[name, value] as const]
  })
  return { ...Object.fromEntries(entries), ...options }
}

/** Returns the server and token file of `taproot dev` in the current folder; undefined if there is no token file. */
async function developmentServer(env: Environment): Promise<{ readonly server: string; readonly tokenFile: string } | undefined> {
  // Loaded only if needed, since settings and their validation are a large part of the program.
  const { loadConfig } = await import('../../config/load-config.ts')
  const { config } = loadConfig({ env, role: 'dev' })
  const tokenFile = join(config.dataDir, 'token')
  return existsSync(tokenFile) ? { server: config.baseUrl, tokenFile } : undefined
}

function serverOf(text: string | undefined): string {
  if (text === undefined) throw new UsageError(`no server: set --server or ${clientVariables.server}`)
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !/^https?:$/.test(url.protocol)) throw new UsageError(`--server needs a URL such as https://taproot.example.com, not "${text}"`)
  return `${url.origin}${url.pathname}`.replace(/\/+$/, '')
}

function tokenOf({ token, tokenFile }: ConnectionOptions, developmentFile: string | undefined): string {
  const file = token === undefined ? (tokenFile ?? developmentFile) : undefined
  const text = file === undefined ? token : readFile(file, '--token-file').trim()
  if (text === undefined) throw new UsageError(`no access token: set --token-file, ${clientVariables.tokenFile} or ${clientVariables.token}`)
  if (!/^[\x21-\x7e]+$/.test(text)) throw new UsageError(`${file ?? 'the given value'} contains no token`)
  return text
}

/** Trusts these CA certificates in addition, for all later connections of this process. */
function trustAlso(caFile: string): void {
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
