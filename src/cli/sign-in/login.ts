import { resolve } from 'node:path'
import { oauthPaths } from '../../auth/oidc/discovery-document.ts'
import type { Clock, Random } from '../../base/runtime.ts'
import { isUid } from '../../base/uid.ts'
import type { Environment } from '../../config/environment.ts'
import { clientVariables } from '../../config/variables.ts'
import { ClientError, textOf } from '../client/client-error.ts'
import { printable } from '../client/columns.ts'
import type { Reported } from '../client/client-command.ts'
import { serverOf, trustAlso } from '../client/connection.ts'
import { createPlatformClient } from '../client/platform-client.ts'
import { UsageError } from '../exit-codes.ts'
import { browserLogin, hasBrowser, openBrowser, type SignedIn } from './browser-login.ts'
import { claimsOf, exchangeToken, refreshTokenEnd, storedToken } from './context-token.ts'
import { changeContexts, contextFolder, contextNamed, readContexts, withContext, type ExternalSource, type LoginContext } from './contexts.ts'
import { deviceLogin } from './device-login.ts'
import { externalToken } from './external-token.ts'

/** Options of `taproot login`. */
export interface LoginArguments {
  readonly context?: string
  readonly organisation?: string
  readonly device?: true
  readonly identity?: string
  readonly tokenFile?: string
  readonly tokenEnv?: string
  readonly github?: true
  readonly caFile?: string
}

/** What the commands of sign-in need of the machine. */
export interface SignInTools extends Reported {
  readonly env: Environment
  readonly platform: NodeJS.Platform
  readonly clock: Clock
  readonly random: Random
  /** Asks the person a question at the terminal. Undefined without one. */
  readonly ask: ((question: string) => Promise<string>) | undefined
  /** Waits some milliseconds. */
  readonly wait: (ms: number) => Promise<unknown>
}

/**
 * Returns the registry host of a server; empty if it issues no tokens for one. The issuer in its discovery document must be this URL
 * (RFC 8414, 3.3). Rejects with ClientError.
 */
async function discoverRegistry(server: string): Promise<string> {
  const found = await createPlatformClient({ baseUrl: server, token: undefined }).call({ method: 'GET', path: '/.well-known/openid-configuration' })
  const issuer = textOf(found['issuer'])
  if (issuer.replace(/\/+$/, '') !== server) throw new ClientError(`the server at ${server} calls itself ${issuer || 'nothing'}: sign in with that URL`)
  return textOf(found['registry_host'])
}

/** Signs in at a server, stores the sign-in as a context, and makes it the current one. Rejects with UsageError and ClientError. */
export async function login(tools: SignInTools, server: string, options: LoginArguments): Promise<void> {
  const { output } = tools
  assertOptions(options)
  const empty = await emptyContext(tools, serverOf(server), options)
  const { name } = empty
  const source = externalSource(options)
  const context =
    source === undefined ? await personSignedIn(tools, empty, options) : await externalSignedIn(tools, { ...empty, source, identity: options.identity ?? '' })
  const replaced = await changeContexts(contextFolder(tools.env), (contexts) =>
    Promise.resolve({ contexts: { ...withContext(contexts, context), current: name }, result: contextNamed(contexts, name) }),
  )
  await revokeReplaced(tools, replaced)
  await output.write(`${signedInLine(context)}\n`)
}

function assertOptions(options: LoginArguments): void {
  const { identity } = options
  if (identity === undefined) return
  if (!isUid(identity)) throw new UsageError(`--identity needs a uid, not "${identity}"`)
  if (externalSource(options) === undefined) throw new UsageError('--identity needs --token-file, --token-env or --github')
}

/** A context before its sign-in. */
type EmptyContext = Pick<LoginContext, 'name' | 'server' | 'registry' | 'organisation' | 'caFile'>

/** Returns the context of a sign-in, with what an earlier one left. Throws UsageError if the context is of another server. */
async function emptyContext({ env }: SignInTools, server: string, options: LoginArguments): Promise<EmptyContext> {
  const name = options.context ?? new URL(server).host
  const before = contextNamed(await readContexts(contextFolder(env)), name)
  if (before !== undefined && before.server !== server) throw new UsageError(`the context ${name} is of ${before.server}: choose another name with --context`)
  const file = options.caFile ?? env[clientVariables.caFile]?.trim() ?? ''
  const caFile = file === '' ? (before?.caFile ?? '') : resolve(file)
  if (caFile !== '') trustAlso(caFile)
  return { name, server, registry: await discoverRegistry(server), organisation: before?.organisation ?? '', caFile }
}

function externalSource({ tokenFile, tokenEnv, github }: LoginArguments): ExternalSource | undefined {
  if (tokenFile !== undefined) return { tokenFile: resolve(tokenFile) }
  if (tokenEnv !== undefined) return { tokenEnv }
  return github === undefined ? undefined : { github }
}

function audiencesOf({ server, registry }: Pick<LoginContext, 'server' | 'registry'>): string[] {
  return registry === '' ? [server] : [server, registry]
}

async function personSignedIn(tools: SignInTools, empty: EmptyContext, options: LoginArguments): Promise<LoginContext> {
  const { clock, note, wait } = tools
  const { server, registry } = empty
  const audiences = audiencesOf(empty)
  const isDevice = options.device === true || !hasBrowser(tools)
  const known = options.organisation ?? empty.organisation
  const organisation = isDevice ? known : await organisationOf(tools, known)
  const signedIn: SignedIn = isDevice
    ? await deviceLogin({ server, organisation, audiences, clock, note, wait })
    : await browserLogin({ server, organisation, audiences, random: tools.random, openUrl: (url) => show(tools, url) })
  const { accessToken, refreshToken } = signedIn
  // A sign-in without a refresh token has only this token, for all audiences.
  const stored = (refreshToken === '' && registry !== '' ? audiences : [server]).map((audience) => storedToken(accessToken, audience, clock))
  return { ...empty, organisation, identity: '', refreshToken, accessTokens: stored }
}

function show(tools: SignInTools, url: string): void {
  tools.note(`Sign in with the browser. If none opens, open this address:\n  ${url}`)
  openBrowser(url, tools, () => tools.note('no browser could be opened: open the address by hand, or use --device'))
}

async function organisationOf({ ask }: SignInTools, known: string): Promise<string> {
  const name = known === '' && ask !== undefined ? (await ask('Organisation, or uid of its identity provider: ')).trim() : known
  if (name !== '') return name
  throw new UsageError('a browser needs --organisation, a name or the uid of its identity provider; with --device, you type it in the browser')
}

async function externalSignedIn(
  { env, clock }: SignInTools,
  context: EmptyContext & { readonly source: ExternalSource; readonly identity: string },
): Promise<LoginContext> {
  const { server, source, identity } = context
  const token = await externalToken(source, { env, audience: server })
  const accessToken = await exchangeToken(createPlatformClient({ baseUrl: server, token }), { identity, audience: server })
  return { ...context, refreshToken: '', accessTokens: [storedToken(accessToken, server, clock)] }
}

/** Revokes the refresh token that a new sign-in replaced. A failure is only noted, since the new sign-in is stored. */
async function revokeReplaced({ note }: SignInTools, replaced: LoginContext | undefined): Promise<void> {
  if (replaced === undefined) return
  try {
    await revoke(replaced)
  } catch (error) {
    if (!(error instanceof ClientError)) throw error
    note(`the sign-in before this one could not be revoked: ${printable(error.line)}`)
  }
}

/** Revokes the refresh token of a context. Rejects with ClientError. */
async function revoke({ server, refreshToken }: LoginContext): Promise<void> {
  if (refreshToken === '') return
  const form = { token: refreshToken, token_type_hint: 'refresh_token' }
  await createPlatformClient({ baseUrl: server, token: undefined }).call({ method: 'POST', path: oauthPaths.revocation, form })
}

/** Returns when a sign-in ends without use; undefined for one that is repeated by itself. */
export function signInEnd({ source, refreshToken, accessTokens }: LoginContext): string | undefined {
  if (source !== undefined) return undefined
  return refreshToken === '' ? accessTokens[0]?.expires : refreshTokenEnd(refreshToken)?.toISOString()
}

function signedInLine(context: LoginContext): string {
  const { sub, email } = claimsOf(context.accessTokens[0]?.token ?? '')
  const end = signInEnd(context)
  const who = [textOf(email) || textOf(sub), `at ${context.server}`, `(context ${context.name})`].join(' ')
  return printable(`Signed in as ${who}${end === undefined ? '' : context.refreshToken === '' ? ` until ${end}` : ''}.`)
}

/** Options of `taproot logout`. */
export interface LogoutOptions {
  readonly context?: string
  readonly local?: true
}

/**
 * Revokes the sign-in of a context and removes it from this machine. With `local`, only removes it. Rejects with UsageError without such a
 * context, and with ClientError if the server does not answer; the sign-in is then kept.
 */
export async function logout({ env, output }: SignInTools, options: LogoutOptions): Promise<void> {
  const folder = contextFolder(env)
  const name = await changeContexts(folder, async (contexts) => {
    const wanted = options.context ?? ((env[clientVariables.context]?.trim() ?? '') || contexts.current)
    const context = contextNamed(contexts, wanted)
    if (context === undefined) throw new UsageError(wanted === '' ? 'there is no current context' : `there is no context ${wanted}`)
    if (options.local !== true) await revokeNow(context)
    const { source: _source, ...rest } = context
    return { contexts: withContext(contexts, { ...rest, identity: '', refreshToken: '', accessTokens: [] }), result: wanted }
  })
  await output.write(`Signed out of the context ${name}.\n`)
}

/** Revokes the refresh token of a context. Rejects with ClientError that explains how to go on. */
export async function revokeNow(context: LoginContext): Promise<void> {
  if (context.caFile !== '') trustAlso(context.caFile)
  try {
    await revoke(context)
  } catch (error) {
    if (!(error instanceof ClientError)) throw error
    throw new ClientError(`not signed out, because the sign-in cannot be revoked; --local only removes it here. ${error.line}`, {}, error)
  }
}
