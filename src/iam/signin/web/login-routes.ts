import type { Exchanged } from '../exchange.ts'
import { decodeToken } from '../../../auth/tokens/decoded-token.ts'
import { encryptForHeadless } from '../headless-session.ts'
import { openLogin, type ChosenLogin, type LoginEnd, type RequestedLogin, type PendingLogin } from '../login-state.ts'
import type { OidcClient } from '../../../auth/oidc/oidc-client.ts'
import { auditedCaller } from '../../../base/audit-line.ts'
import { DomainError } from '../../../base/errors.ts'
import { parentOf, type Uid } from '../../../base/uid.ts'
import type { Group } from '../../../gen/taproot/iam/v2/groups_pb.ts'
import { fromStore } from '../../../engine/errors.ts'
import { oidcClientOf, providersOfOrganization, unchangedProvider } from '../sign-in-providers.ts'
import { deviceAsking, endDeviceLogin, leaveHeadlessSession, shownUserCode, type RequestedDeviceLogin } from '../pending-logins.ts'
import { issueRefreshToken } from '../refresh-tokens.ts'
import { externalIdOf } from '../../scim/scim-admission.ts'
import type { Services } from '../../../engine/services.ts'
import { auditRequest } from '../../../transport/audit.ts'
import { deviceRoutes } from './device-routes.ts'
import type { RawAnswer, RawRequest, RawRoute } from '../../../transport/http/raw-route.ts'
import { bindLogin, browserOf, forgetLogin } from './login-cookie.ts'
import { callbackPath, callbackUrl, confirmPath, loginUrl, sendBack, toldTo, assertIssued, type LoginOptions } from './login-ends.ts'
import { confirmPage, loginPage, type Confirmation } from './login-page.ts'
import { loginRequest, type LoginRequest } from './login-request.ts'
import { noteExchanged, registerByToken, verifiedPerson } from './people-endpoints.ts'

function noProvider(): DomainError {
  return new DomainError(5, 'there is no such identity provider, or organisation with one')
}

/** The provider that the request means. Throws code 5 where there is none, 3 where there are several. */
async function chosenProvider({ services }: LoginOptions, { provider }: LoginRequest, signal: AbortSignal): Promise<Uid> {
  await services.replica.barrier(signal)
  const { snapshot } = services.replica
  const uids = 'uid' in provider ? [provider.uid] : providersOfOrganization(snapshot, provider.organization).map((row) => row.uid)
  if (uids.length > 1) throw DomainError.invalid('idp_id', 'must be the uid of an identity provider: the organisation has several')
  const [uid] = uids
  if (uid === undefined || snapshot.get('IdentityProvider', uid) === undefined) throw noProvider()
  return uid
}

/** Sends the browser to the identity provider. */
async function toProvider(options: LoginOptions, { requested, provider }: ChosenLogin, signal: AbortSignal): Promise<RawAnswer> {
  const { services, oidc, baseUrl } = options
  const client = oidcClientOf(services, provider)
  if (client === undefined) throw noProvider()
  const checks = oidc.newChecks(client)
  const { issuer, clientId } = client
  const { sealed: state, cookie } = bindLogin(services, baseUrl, { step: 'provider', pending: { requested, provider, issuer, clientId, checks } })
  const url = await oidc.authorizationUrl(client, { state, redirectUri: callbackUrl(baseUrl, provider), checks }, signal)
  // 303: from a form, too, the browser goes on by GET.
  return { status: 303, headers: { Location: url.href, 'Set-Cookie': cookie, 'Referrer-Policy': 'no-referrer' }, body: '' }
}

/** What a device waits for that shows this code. Throws code 5 where none does. */
async function deviceOf({ services }: LoginOptions, userCode: string, signal: AbortSignal): Promise<RequestedDeviceLogin> {
  const asked = await deviceAsking(services, userCode, signal)
  if (asked === undefined) throw new DomainError(5, 'no device waits with this code: it was used, or has run out')
  return asked
}

const lifetimes = { once: 'for an hour at most', lasting: 'again and again, by a refresh token' } as const

/** What a person has to know of what they are asked to allow. */
function factsOf({ services }: LoginOptions, { requested, provider }: ChosenLogin, device?: RequestedDeviceLogin): Confirmation['facts'] {
  const { snapshot } = services.replica
  // A row of kind Group holds a Group.
  const group = snapshot.get('Group', parentOf(provider))?.message as unknown as Group | undefined
  const facts: (readonly [string, string])[] = [
    ['People of', group?.name ?? parentOf(provider)],
    ['Signed in', requested.refresh ? lifetimes.lasting : lifetimes.once],
    ['For', requested.audiences.join(', ')],
    ['Only in the groups', requested.scopes.join(', ')],
    ['As the identity', requested.identity],
    ['With an invite', requested.invite],
    ['Asked from the address', device?.remoteAddress ?? ''],
  ]
  return facts.filter(([, value]) => value !== '')
}

/** The page on which a person says that another device's sign-in is theirs. What a device gets is what the device asked for, and nothing of the link. */
async function toConfirm(options: LoginOptions, { requested: linked, provider }: ChosenLogin, signal: AbortSignal): Promise<RawAnswer> {
  const { services, baseUrl } = options
  const { end } = linked
  const device = end.kind === 'device' ? await deviceOf(options, end.userCode, signal) : undefined
  const requested: RequestedLogin = device === undefined ? { ...linked, refresh: false } : { ...device, end, identity: '', invite: '', register: true }
  const { sealed: request, cookie } = bindLogin(services, baseUrl, { step: 'confirm', pending: { requested, provider } })
  const code = end.kind === 'device' ? shownUserCode(end.userCode) : end.kind === 'headless' ? end.code : ''
  return confirmPage({ code, facts: factsOf(options, { requested, provider }, device), action: loginUrl(baseUrl, confirmPath), request, cookie })
}

/** GET /oauth: sends the browser to the identity provider, or asks first where the tokens go to another device. */
async function begin(options: LoginOptions, request: RawRequest): Promise<RawAnswer> {
  const { services } = options
  const asked = loginRequest(request.query, { redirects: options.redirects, random: services.random })
  if (asked instanceof DomainError) return loginPage(400, asked.message)
  const { requested } = asked
  return toldTo(services, { end: requested.end, request }, async () => {
    asked.assertValid()
    // Before somebody is registered for a token that they can't have. What a device wishes for was looked at when it asked.
    if (requested.end.kind !== 'device') assertIssued(options, { aud: requested.audiences, scopes: requested.scopes, cap: [] }, 'audience')
    const chosen = { requested, provider: await chosenProvider(options, asked, request.signal) }
    return requested.end.kind === 'redirect' ? toProvider(options, chosen, request.signal) : toConfirm(options, chosen, request.signal)
  })
}

const lost = 'This sign-in was not begun in this browser, or more than ten minutes ago. Please begin again.'

/** What the audit log calls a sign-in, by where its tokens go. */
const auditNames = { redirect: 'login/browser', headless: 'login/headless', device: 'login/device' } as const satisfies Record<LoginEnd['kind'], string>

/** A person says that a sign-in is not theirs. */
async function refuse(options: LoginOptions, request: RawRequest, { requested: { end }, provider }: ChosenLogin): Promise<RawAnswer> {
  const isInTime = end.kind !== 'device' || (await endDeviceLogin(options.services, { userCode: end.userCode, outcome: { kind: 'refused' } }, request.signal))
  auditRequest(options, request, { method: auditNames[end.kind], outcome: 'denied', subject: provider, reason: 'LOGIN_REFUSED' })
  return loginPage(200, isInTime ? 'Nobody was signed in. You can close this page.' : 'This code was used before, or has run out. You can close this page.')
}

/** POST /oauth/confirm: the person's answer to our page. */
async function confirm(options: LoginOptions, request: RawRequest): Promise<RawAnswer> {
  const { services, baseUrl } = options
  const form = new URLSearchParams(await request.text())
  const sealed = form.get('request') ?? ''
  const chosen = openLogin(services.keyring, services.clock, { step: 'confirm', sealed, browser: browserOf(request, baseUrl, sealed) })
  if (chosen === undefined) return loginPage(400, lost)
  return toldTo(services, { end: chosen.requested.end, request }, () =>
    form.get('answer') === 'yes' ? toProvider(options, chosen, request.signal) : refuse(options, request, chosen),
  )
}

/** One sign-in that comes back. */
interface Returning {
  readonly request: RawRequest
  readonly login: PendingLogin
}

/** A sign-in is audited once it is over, also where it came to nothing. */
async function audited(options: LoginOptions, { request, login }: Returning, work: () => Promise<{ made: Exchanged; answer: RawAnswer }>): Promise<RawAnswer> {
  const of = { method: auditNames[login.requested.end.kind], subject: login.provider }
  try {
    const { made, answer } = await work()
    const { identityUid: identity, operator, act } = made.principal
    auditRequest(options, request, { ...of, outcome: 'done', ...auditedCaller({ identity, operator, actor: { iss: act.issuer, sub: act.subject } }) })
    return answer
  } catch (thrown) {
    const error = fromStore(thrown)
    const { code, reason } = error instanceof DomainError ? error : new DomainError(13, '')
    auditRequest(options, request, { ...of, outcome: code === 7 || code === 16 ? 'denied' : 'failed', code, reason })
    throw error
  }
}

/** A refresh token for whom it may be had: not for a session that mapped groups gave roles (docs/spec/tokens.md#refresh-tokens), nor for an assumed identity. */
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
  const externalId = externalIdOf(services.replica.snapshot, provider, decodeToken(idToken))
  return (await issueRefreshToken(services, { person: principal.identityUid, claims, provider, externalId, audiences }, signal)).text
}

/** The access token of whom the provider's id token stands for; they become known at their first sign-in. */
async function tokenFor(options: LoginOptions, { login, request }: Returning, idToken: string): Promise<Exchanged> {
  const { requestId, signal } = request
  const authorization = `Bearer ${idToken}`
  const as = { identityProvider: login.provider }
  const { audiences: aud, scopes, identity: assumed, invite, register } = login.requested
  if (register && assumed === '') {
    await registerByToken(options, { authorization, as, code: invite, requestId, validateOnly: false, signal })
  }
  // Who assumes an identity comes in by the provider all the same: its directory must let them.
  if (assumed !== '') await verifiedPerson(options.signIn, authorization, { as, signal })
  const made = await options.exchange({ authorization, identity: assumed, ...as, aud, scopes, cap: [] }, signal)
  await noteExchanged(options.services, made.principal, signal)
  return made
}

const done = 'You are signed in on the other device. You can close this page.'

/** Brings the tokens where they belong. Throws code 9 where nobody waits for them any more. */
async function handOver({ services }: LoginOptions, { login, request }: Returning, signedIn: { made: Exchanged; idToken: string }): Promise<RawAnswer> {
  const { end } = login.requested
  const { made } = signedIn
  const refreshToken = await refreshTokenFor(services, { login, ...signedIn }, request.signal)
  const { token, expiryMs } = made
  switch (end.kind) {
    case 'redirect':
      return sendBack(end.redirect, { token, refresh_token: refreshToken })
    case 'headless': {
      const session = encryptForHeadless(end.code, token, services.random)
      if (session === undefined) throw new TypeError('the code was looked at before')
      if (!(await leaveHeadlessSession(services, { code: end.code, ...session }, request.signal)))
        throw new DomainError(9, 'somebody has signed in by this link before')
      return loginPage(200, done)
    }
    case 'device': {
      const outcome = { kind: 'done', identity: made.principal.identityUid, token, expiryMs, refreshToken } as const
      if (!(await endDeviceLogin(services, { userCode: end.userCode, outcome }, request.signal))) throw new DomainError(9, 'the device does not wait any more')
      return loginPage(200, done)
    }
  }
}

/** The client at the provider, as it was when the browser was sent there. Throws code 9 where it is another now. */
async function sameClient({ services }: LoginOptions, { provider: uid, issuer, clientId }: PendingLogin, signal: AbortSignal): Promise<OidcClient> {
  await services.replica.barrier(signal)
  const client = unchangedProvider(services.replica.snapshot, { uid, issuer, clientId }) && oidcClientOf(services, uid)
  if (client === undefined) throw new DomainError(9, 'the identity provider was changed meanwhile: sign in again')
  return client
}

/** GET /oauth/callback/<provider>: the browser comes back from the identity provider. */
async function comeBack(options: LoginOptions, request: RawRequest): Promise<RawAnswer> {
  const { services, oidc, baseUrl } = options
  const state = request.query.get('state') ?? ''
  const login = openLogin(services.keyring, services.clock, { step: 'provider', sealed: state, browser: browserOf(request, baseUrl, state) })
  // One provider's answer at another's address: nothing of it is shown to either.
  const isAtHome = login?.provider === request.params['provider']
  if (login === undefined || !isAtHome) return loginPage(400, lost)
  const returning = { request, login }
  const { end } = login.requested
  const finish = async (): Promise<{ made: Exchanged; answer: RawAnswer }> => {
    const client = await sameClient(options, login, request.signal)
    // Before a token is made that nobody would get.
    if (end.kind === 'device') await deviceOf(options, end.userCode, request.signal)
    const url = new URL(`${callbackUrl(baseUrl, login.provider)}?${request.query.toString()}`)
    const idToken = await oidc.idToken(client, { url, state, checks: login.checks }, request.signal)
    const made = await tokenFor(options, returning, idToken)
    return { made, answer: await handOver(options, returning, { made, idToken }) }
  }
  const answer = await toldTo(services, { end, request }, () => audited(options, returning, finish))
  return { ...answer, headers: { ...answer.headers, 'Set-Cookie': forgetLogin('provider', baseUrl, state) } }
}

/** GET /orgcheck?name=: whether people of the organisation can sign in by its name. */
async function check({ services }: LoginOptions, request: RawRequest): Promise<RawAnswer> {
  await services.replica.barrier(request.signal)
  const found = providersOfOrganization(services.replica.snapshot, request.query.get('name') ?? '').length > 0
  return { status: 200, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(found) }
}

/** Login by a browser with an organisation's identity provider, for what runs beside the browser (docs/spec/tokens.md#browser-sign-in) and for other devices. */
export function loginRoutes(options: LoginOptions): RawRoute[] {
  const route = (method: RawRoute['method'], path: string, step: (options: LoginOptions, request: RawRequest) => Promise<RawAnswer>): RawRoute => ({
    method,
    path,
    async handler(request) {
      options.limit?.(request.remoteAddress)
      return step(options, request)
    },
  })
  return [
    route('GET', '/oauth', begin),
    route('POST', confirmPath, confirm),
    route('GET', `${callbackPath}/{provider=**}`, comeBack),
    route('GET', '/orgcheck', check),
    ...deviceRoutes(options),
  ]
}
