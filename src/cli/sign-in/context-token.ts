import type { Clock } from '../../base/runtime.ts'
import type { Environment } from '../../config/environment.ts'
import { ClientError, isJson, textOf, type Json } from '../client/client-error.ts'
import { createPlatformClient, type PlatformClient } from '../client/platform-client.ts'
import { UsageError } from '../exit-codes.ts'
import { changeContexts, contextNamed, readContexts, withContext, type Contexts, type LoginContext, type StoredToken } from './contexts.ts'
import { externalToken } from './external-token.ts'

/** Where the sign-in of a context is stored. */
export interface ContextPlace {
  readonly folder: string
  readonly name: string
  readonly env: Environment
  readonly clock: Clock
}

/** An access token is renewed this long before it expires, in milliseconds, since a request takes time. */
const earlyMs = 60_000

/** Returns the claims of a JWT without verification, since the server has verified it. Empty for other tokens. */
export function claimsOf(token: string): Json {
  try {
    const claims: unknown = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString())
    return isJson(claims) ? claims : {}
  } catch {
    // The token is not a JWT.
    return {}
  }
}

/** Returns the stored form of a new access token. Its end is counted from now, since the clocks of both machines may differ. */
export function storedToken(token: string, audience: string, clock: Clock): StoredToken {
  const { iat, exp } = claimsOf(token)
  const lifeMs = typeof iat === 'number' && typeof exp === 'number' ? Math.max(0, exp - iat) * 1000 : 0
  return { audience, token, expires: new Date(clock.now() + lifeMs).toISOString() }
}

/** Returns when a refresh token expires, if it is not used before; undefined for other texts. */
export function refreshTokenEnd(text: string): Date | undefined {
  try {
    const content: unknown = JSON.parse(Buffer.from(text, 'base64').toString())
    const exp = isJson(content) ? content['exp'] : undefined
    return typeof exp === 'number' ? new Date(exp * 1000) : undefined
  } catch {
    // The text is not a refresh token of this platform.
    return undefined
  }
}

/** Returns the stored access token for this audience; undefined if there is none that is valid for a while. */
function freshToken({ accessTokens }: LoginContext, audience: string, clock: Clock): string | undefined {
  return accessTokens.find((one) => one.audience === audience && Date.parse(one.expires) - clock.now() > earlyMs)?.token
}

/** The result of a renewal: the changed context, and the token or why there is none. */
interface Renewed {
  readonly context: LoginContext
  readonly token?: string
  readonly failure?: ClientError
}

/**
 * Returns an access token of a context for an audience: the stored one, or a new one. Only one command renews at a time, because a refresh
 * token works once. Rejects with UsageError without a sign-in, and with ClientError if the server refuses or does not answer.
 */
export async function contextToken(place: ContextPlace, audience: (context: LoginContext) => string): Promise<string> {
  const { folder, name, clock } = place
  const pick = (contexts: Contexts): LoginContext => {
    const context = contextNamed(contexts, name)
    if (context === undefined) throw new UsageError(`there is no context ${name}: "taproot context list" lists them`)
    return context
  }
  const known = pick(await readContexts(folder))
  const stored = freshToken(known, audience(known), clock)
  if (stored !== undefined) return stored
  const { token, failure } = await changeContexts(folder, async (contexts) => {
    const context = pick(contexts)
    // Another command may have renewed it meanwhile.
    const token = freshToken(context, audience(context), clock)
    if (token !== undefined) return { contexts, result: { token, failure: undefined } }
    const renewed = await renew(place, context, audience(context))
    return { contexts: withContext(contexts, renewed.context), result: { token: renewed.token, failure: renewed.failure } }
  })
  if (token === undefined) throw failure ?? new UsageError(`not signed in: run "${loginLine(known)}"`)
  return token
}

/** Returns the command that signs in again. */
export function loginLine({ name, server }: Pick<LoginContext, 'name' | 'server'>): string {
  return `taproot login ${server}${name === new URL(server).host ? '' : ` --context ${name}`}`
}

async function renew({ env, clock }: ContextPlace, context: LoginContext, audience: string): Promise<Renewed> {
  const { server, source, identity, refreshToken } = context
  const kept = (token: string): LoginContext => {
    const others = context.accessTokens.filter((one) => one.audience !== audience && Date.parse(one.expires) > clock.now())
    return { ...context, accessTokens: [...others, storedToken(token, audience, clock)] }
  }
  if (source !== undefined) {
    const external = await externalToken(source, { env, audience: server })
    const token = await exchangeToken(createPlatformClient({ baseUrl: server, token: external }), { identity, audience })
    return { context: kept(token), token }
  }
  if (refreshToken === '') return { context: { ...context, accessTokens: [] }, failure: ended(context) }
  try {
    const client = createPlatformClient({ baseUrl: server, token: refreshToken })
    const answer = await client.call({ method: 'POST', path: '/sts/exchange_refresh_token', query: { aud: audience } })
    const [access, next] = [textIn(answer['token']), textIn(answer['refreshToken'])]
    if (access === '' || next === '') throw new ClientError(`${server} answered without tokens: check the URL`)
    return { context: { ...kept(access), refreshToken: next }, token: access }
  } catch (error) {
    if (!(error instanceof ClientError)) throw error
    if (error.code === 16) return { context: { ...context, refreshToken: '', accessTokens: [] }, failure: ended(context, error) }
    if (error.reason !== 'AUDIENCE_NOT_GRANTED') throw error
    return { context, failure: refusedAs(`the sign-in is not for ${audience}: run "${loginLine(context)}"`, error) }
  }
}

/** Returns the error of a sign-in that ended. */
function ended(context: LoginContext, cause?: ClientError): ClientError {
  const message = `the sign-in at ${context.server} ended: run "${loginLine(context)}"`
  return cause === undefined ? new ClientError(message) : refusedAs(message, cause)
}

/** Returns the refusal with another message. */
function refusedAs(message: string, { code, reason, requestId }: ClientError): ClientError {
  return new ClientError(message, { ...(code === undefined ? {} : { code }), reason, requestId })
}

function textIn(answer: unknown): string {
  return isJson(answer) ? textOf(answer['token']) : ''
}

/** Exchanges the client's token of another issuer for an access token. Rejects with ClientError. */
export async function exchangeToken(client: PlatformClient, { identity, audience }: { identity: string; audience: string }): Promise<string> {
  const query = { aud: audience, ...(identity === '' ? {} : { identity }) }
  const token = textOf((await client.call({ method: 'POST', path: '/sts/exchange', query }))['token'])
  if (token === '') throw new ClientError('the server answered without a token: check the URL')
  return token
}
