import type { Exchanged } from '../exchange.ts'
import { decodeToken } from '../../../auth/access-tokens/decoded-token.ts'
import { encryptForHeadless } from '../headless-session.ts'
import { openLogin, type ChosenLogin, type LoginEnd, type RequestedLogin, type PendingLogin } from '../login-state.ts'
import type { OidcClient } from '../../../auth/oidc/oidc-client.ts'
import { auditedCaller } from '../../../base/audit-line.ts'
import { DomainError } from '../../../base/errors.ts'
import { parentOf, type Uid } from '../../../base/uid.ts'
import type { Group } from '../../../gen/taproot/iam/v2/groups_pb.ts'
import { oidcClientOf, providersOfOrganization, unchangedProvider } from '../sign-in-providers.ts'
import { deviceAsking, endDeviceLogin, leaveHeadlessSession, shownUserCode, type RequestedDeviceLogin } from '../pending-logins.ts'
import { issueRefreshToken } from '../refresh-tokens.ts'
import { externalIdOf } from '../../scim/scim-admission.ts'
import type { Services } from '../../../engine/services.ts'
import type { HttpAnswer } from '../../../transport/http/http-context.ts'
import { audited, auditRequest } from '../../../transport/calls/audit.ts'
import { jsonAnswer, redirect } from '../../../transport/web/web-answers.ts'
import { readFields, type WebRequest } from '../../../transport/web/web-request.ts'
import type { WebRoute } from '../../../transport/web/web-routes.ts'
import { deviceRoutes } from './device-routes.ts'
import { bindLogin, browserOf, forgetLogin } from './login-cookie.ts'
import { answerFailure, assertIssued, callbackPath, callbackUrl, confirmPath, loginUrl, pageErrors, sendBack, type LoginOptions } from './login-ends.ts'
import { confirmPage, messagePage, type Confirmation } from './login-pages.js'
import { loginRequest, type LoginRequest } from './login-request.ts'
import { noteExchanged, registerByToken, verifiedPerson } from './people-endpoints.ts'

function noProvider(): DomainError {
  return new DomainError(5, 'no such identity provider, and no organisation of this name has one')
}

/** Returns the provider that the request names. Throws code 5 if none matches, code 3 if several do. */
async function chosenProvider({ services }: LoginOptions, { provider }: LoginRequest, signal: AbortSignal): Promise<Uid> {
  await services.cache.barrier(signal)
  const { tables } = services.cache
  const uids = 'uid' in provider ? [provider.uid] : providersOfOrganization(tables, provider.organization).map((record) => record.uid)
  if (uids.length > 1) throw DomainError.invalid('idp_id', 'must be the uid of an identity provider, because the organisation has several')
  const [uid] = uids
  if (uid === undefined || tables.get('IdentityProvider', uid) === undefined) throw noProvider()
  return uid
}

/** Redirects the browser to the identity provider. */
async function toProvider(options: LoginOptions, { requested, provider }: ChosenLogin, signal: AbortSignal): Promise<HttpAnswer> {
  const { services, oidc, baseUrl } = options
  const client = oidcClientOf(services, provider)
  if (client === undefined) throw noProvider()
  const checks = oidc.newChecks(client)
  const { issuer, clientId } = client
  const { sealed: state, cookie } = bindLogin(services, baseUrl, { step: 'provider', pending: { requested, provider, issuer, clientId, checks } })
  const url = await oidc.authorizationUrl(client, { state, redirectUri: callbackUrl(baseUrl, provider), checks }, signal)
  return redirect(303, url.href, { 'Set-Cookie': cookie })
}

/** Returns the token that the device with this user code requests. Throws code 5 if no device has this code. */
async function deviceOf({ services }: LoginOptions, userCode: string, signal: AbortSignal): Promise<RequestedDeviceLogin> {
  const requested = await deviceAsking(services, userCode, signal)
  if (requested === undefined) throw new DomainError(5, 'this code was used or expired: start again on the device')
  return requested
}

const lifetimes = { once: 'for an hour at most', lasting: 'until signed out, with a refresh token' } as const

/** Returns the facts for the confirmation page, by which a person decides. */
function factsOf({ services }: LoginOptions, { requested, provider }: ChosenLogin, device?: RequestedDeviceLogin): Confirmation['facts'] {
  const { tables } = services.cache
  // a cast: a record of kind Group contains a Group
  const group = tables.get('Group', parentOf(provider))?.message as unknown as Group | undefined
  const facts: (readonly [string, string])[] = [
    ['People of', group?.name ?? parentOf(provider)],
    ['Signed in', requested.refresh ? lifetimes.lasting : lifetimes.once],
    ['For', requested.audiences.join(', ')],
    ['Only in the groups', requested.scopes.join(', ')],
    ['As the identity', requested.identity],
    ['With an invite', requested.invite],
    ['Requested from the address', device?.remoteAddress ?? ''],
  ]
  return facts.filter(([, value]) => value !== '')
}

/**
 * Shows the page on which a person confirms the sign-in of another device. The device gets the token that it requested; the link cannot
 * change this.
 */
async function toConfirm(options: LoginOptions, { requested: linked, provider }: ChosenLogin, signal: AbortSignal): Promise<HttpAnswer> {
  const { services, baseUrl } = options
  const { end } = linked
  const device = end.kind === 'device' ? await deviceOf(options, end.userCode, signal) : undefined
  const requested: RequestedLogin = device === undefined ? { ...linked, refresh: false } : { ...device, end, identity: '', invite: '', register: true }
  const { sealed: request, cookie } = bindLogin(services, baseUrl, { step: 'confirm', pending: { requested, provider } })
  const code = end.kind === 'device' ? shownUserCode(end.userCode) : end.kind === 'headless' ? end.code : ''
  return confirmPage({ code, facts: factsOf(options, { requested, provider }, device), action: loginUrl(baseUrl, confirmPath), request, cookie })
}

/** GET /oauth: redirects the browser to the identity provider. If the tokens go to another device, first asks the person to confirm. */
async function start(options: LoginOptions, request: WebRequest): Promise<HttpAnswer> {
  const { services } = options
  const parsed = loginRequest(request.query, { redirects: options.redirects, random: services.random })
  if (parsed instanceof DomainError) return messagePage(400, parsed.message)
  const { requested } = parsed
  return answerFailure(services, { end: requested.end, request }, async () => {
    parsed.assertValid()
    // Checked before the sign-in, so that no one is registered for a token that cannot be issued. The request of a device was checked when
    // it arrived.
    if (requested.end.kind !== 'device') assertIssued(options, { aud: requested.audiences, scopes: requested.scopes, cap: [] }, 'audience')
    const chosen = { requested, provider: await chosenProvider(options, parsed, request.signal) }
    return requested.end.kind === 'redirect' ? toProvider(options, chosen, request.signal) : toConfirm(options, chosen, request.signal)
  })
}

/** Returns the person of an issued token, for the audit log. */
function callerOf({ principal: { identityUid: identity, operator, act } }: Exchanged): ReturnType<typeof auditedCaller> {
  return auditedCaller({ identity, operator, actor: { iss: act.issuer, sub: act.subject } })
}

const lost = 'This sign-in was started in another browser, or more than ten minutes ago. Start again.'

/** Audit log names of sign-ins, by the target of the tokens. */
const auditNames = { redirect: 'login/browser', headless: 'login/headless', device: 'login/device' } as const satisfies Record<LoginEnd['kind'], string>

/** Handles a person's refusal of the sign-in of another device. */
async function refuse(options: LoginOptions, request: WebRequest, { requested: { end }, provider }: ChosenLogin): Promise<HttpAnswer> {
  const isInTime = end.kind !== 'device' || (await endDeviceLogin(options.services, { userCode: end.userCode, outcome: { kind: 'refused' } }, request.signal))
  auditRequest(options, request, { method: auditNames[end.kind], outcome: 'denied', subject: provider, reason: 'LOGIN_REFUSED' })
  return messagePage(200, isInTime ? 'No one was signed in. You can close this page.' : 'This code was used before, or it expired. You can close this page.')
}

/** POST /oauth/confirm: handles the person's answer on the confirmation page. */
async function confirm(options: LoginOptions, request: WebRequest): Promise<HttpAnswer> {
  const { services, baseUrl } = options
  const { request: sealed = '', answer } = await readFields(request, ['request', 'answer'])
  const chosen = openLogin(services.keyring, services.clock, { step: 'confirm', sealed, browser: browserOf(request, baseUrl, sealed) })
  if (chosen === undefined) return messagePage(400, lost)
  return answerFailure(services, { end: chosen.requested.end, request }, () =>
    answer === 'yes' ? toProvider(options, chosen, request.signal) : refuse(options, request, chosen),
  )
}

/** A sign-in whose browser returned from the identity provider. */
interface Returning {
  readonly request: WebRequest
  readonly login: PendingLogin
}

/**
 * Issues a refresh token if it was requested. Returns an empty text for sessions with roles of mapped groups
 * (docs/spec/tokens.md#refresh-tokens), and for assumed identities.
 */
async function refreshTokenFor(
  services: Services,
  { login, made, idToken }: { login: PendingLogin; made: Exchanged; idToken: string },
  signal: AbortSignal,
): Promise<string> {
  const { principal, restrictions, audiences } = made
  if (!login.requested.refresh || login.requested.identity !== '' || restrictions.roles !== undefined) return ''
  const issuedAtMs = Math.max(services.clock.now(), principal.createTimeMs ?? 0)
  const claims = { act: principal.act, restrictions, issuedAtMs }
  const { provider } = login
  const externalId = externalIdOf(services.cache.tables, provider, decodeToken(idToken))
  return (await issueRefreshToken(services, { person: principal.identityUid, claims, provider, externalId, audiences }, signal)).text
}

/** Exchanges the provider's id token for an access token. Registers the person at the first sign-in. */
async function tokenFor(options: LoginOptions, { login, request }: Returning, idToken: string): Promise<Exchanged> {
  const { requestId, signal } = request
  const authorization = `Bearer ${idToken}`
  const as = { identityProvider: login.provider }
  const { audiences: aud, scopes, identity: assumed, invite, register } = login.requested
  if (register && assumed === '') {
    await registerByToken(options, { authorization, as, code: invite, requestId, validateOnly: false, signal })
  }
  // The provider's directory must also admit a person who assumes an identity.
  if (assumed !== '') await verifiedPerson(options.signIn, authorization, { as, signal })
  const made = await options.exchange({ authorization, identity: assumed, ...as, aud, scopes, cap: [] }, signal)
  await noteExchanged(options.services, made.principal, signal)
  return made
}

const done = 'You are signed in on the other device. You can close this page.'

/** Sends the tokens to their target. Throws code 9 if the target no longer waits for them. */
async function handOver({ services }: LoginOptions, { login, request }: Returning, signedIn: { made: Exchanged; idToken: string }): Promise<HttpAnswer> {
  const { end } = login.requested
  const { made } = signedIn
  const refreshToken = await refreshTokenFor(services, { login, ...signedIn }, request.signal)
  const { token, expiryMs } = made
  switch (end.kind) {
    case 'redirect':
      return sendBack(end.redirect, { token, refresh_token: refreshToken })
    case 'headless': {
      const session = encryptForHeadless(end.code, token, services.random)
      if (session === undefined) throw new TypeError('the code was checked before')
      if (!(await leaveHeadlessSession(services, { code: end.code, ...session }, request.signal)))
        throw new DomainError(9, 'this link was used before: start again')
      return messagePage(200, done)
    }
    case 'device': {
      const outcome = { kind: 'done', identity: made.principal.identityUid, token, expiryMs, refreshToken } as const
      if (!(await endDeviceLogin(services, { userCode: end.userCode, outcome }, request.signal)))
        throw new DomainError(9, 'the device does not wait any more: start again on the device')
      return messagePage(200, done)
    }
  }
}

/** Returns the OIDC client of the provider. Throws code 9 if it changed since the browser was redirected there. */
async function sameClient({ services }: LoginOptions, { provider: uid, issuer, clientId }: PendingLogin, signal: AbortSignal): Promise<OidcClient> {
  await services.cache.barrier(signal)
  const client = unchangedProvider(services.cache.tables, { uid, issuer, clientId }) && oidcClientOf(services, uid)
  if (client === undefined) throw new DomainError(9, 'the identity provider was changed during the sign-in: start again')
  return client
}

/** GET /oauth/callback/<provider>: handles the browser's return from the identity provider. */
async function finishSignIn(options: LoginOptions, request: WebRequest): Promise<HttpAnswer> {
  const { services, oidc, baseUrl } = options
  const state = request.query.get('state') ?? ''
  const login = openLogin(services.keyring, services.clock, { step: 'provider', sealed: state, browser: browserOf(request, baseUrl, state) })
  // Ignores the response of a provider that is not the one of this sign-in.
  const isAtHome = login?.provider === request.params['provider']
  if (login === undefined || !isAtHome) return messagePage(400, lost)
  const returning = { request, login }
  const { end } = login.requested
  const work = async (): Promise<{ made: Exchanged; answer: HttpAnswer }> => {
    const client = await sameClient(options, login, request.signal)
    // Checked first, so that no token is issued that no device would get.
    if (end.kind === 'device') await deviceOf(options, end.userCode, request.signal)
    const url = new URL(`${callbackUrl(baseUrl, login.provider)}?${request.query.toString()}`)
    const idToken = await oidc.idToken(client, { url, state, checks: login.checks }, request.signal)
    const made = await tokenFor(options, returning, idToken)
    return { made, answer: await handOver(options, returning, { made, idToken }) }
  }
  const line = { method: auditNames[end.kind], subject: login.provider }
  const answer = await answerFailure(services, { end, request }, async () => {
    const finished = await audited(options, request, { work, done: ({ made }) => ({ ...line, ...callerOf(made) }), failed: line })
    return finished.answer
  })
  return { ...answer, headers: { ...answer.headers, 'Set-Cookie': forgetLogin('provider', baseUrl, state) } }
}

/** GET /orgcheck?name=: returns true if people can sign in with the name of this organisation. */
async function check({ services }: LoginOptions, request: WebRequest): Promise<HttpAnswer> {
  await services.cache.barrier(request.signal)
  const found = providersOfOrganization(services.cache.tables, request.query.get('name') ?? '').length > 0
  return jsonAnswer(200, found)
}

/**
 * Returns the routes for sign-in with an organisation's identity provider: for programs on the person's machine
 * (docs/spec/tokens.md#browser-sign-in), and for other devices.
 */
export function loginRoutes(options: LoginOptions): WebRoute[] {
  type Step = (options: LoginOptions, request: WebRequest) => Promise<HttpAnswer>
  const route = (method: WebRoute['method'], path: string, step: Step): WebRoute => ({
    method,
    path,
    limit: options.limit,
    handle: (request) => step(options, request),
  })
  const page = (...row: Parameters<typeof route>): WebRoute => ({ ...route(...row), errors: pageErrors })
  return [
    page('GET', '/oauth', start),
    page('POST', confirmPath, confirm),
    page('GET', `${callbackPath}/*provider`, finishSignIn),
    route('GET', '/orgcheck', check),
    ...deviceRoutes(options),
  ]
}
