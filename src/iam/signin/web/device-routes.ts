import { createBoundedMap } from '../../../auth/bounded-map.ts'
import { decodeToken } from '../../../auth/tokens/decoded-token.ts'
import { deviceGrant, oauthPaths } from '../../../auth/oidc/discovery-document.ts'
import { loginLifeMs } from '../login-state.ts'
import { TokenError } from '../../../auth/tokens/token-error.ts'
import { DomainError, type Code } from '../../../base/errors.ts'
import { isUid } from '../../../base/uid.ts'
import { fromStore } from '../../../engine/errors.ts'
import { beginDeviceLogin, shownUserCode, takeDeviceLogin, userCodeOf, type RequestedDeviceLogin } from '../pending-logins.ts'
import { revokeRefreshToken } from '../refresh-tokens.ts'
import { auditRequest } from '../../../transport/audit.ts'
import { platformDomain, toDomainError } from '../../../transport/errors-details.ts'
import { httpError } from '../../../transport/errors-http.ts'
import type { RawAnswer, RawRequest, RawRoute } from '../../../transport/http/raw-route.ts'
import { loginUrl, assertIssued, type LoginOptions } from './login-ends.ts'
import { devicePage } from './login-page.ts'
import { refreshed } from './people-endpoints.ts'
import { addressKey, RateLimiter } from '../../../transport/rate-limit.ts'

const pagePath = '/oauth/device'

/** How often a device may ask, in seconds. */
const intervalSeconds = 5
/** Devices whose last questions are remembered. */
const maxAsking = 100_000

/** Sign-ins that may be begun, by an address and by all: each takes room in the store, and nobody is known yet. */
const beginLimits = { address: { requestsPerSecond: 0.5, burst: 30 }, all: { requestsPerSecond: 10, burst: 200 } } as const

/** Scopes of OpenID Connect that say nothing here, or what `refresh` says. */
const openidScopes = new Set(['openid', 'email', 'profile', 'groups', 'offline_access'])
/** Groups that a device may ask for. */
const maxScopes = 8

/** What OAuth calls a fault of one field of the form. */
const namesOfFields: Readonly<Record<string, string>> = {
  client_id: 'invalid_client',
  scope: 'invalid_scope',
  grant_type: 'unsupported_grant_type',
  device_code: 'invalid_grant',
}
/** What it calls our reasons. */
const namesOfReasons: Readonly<Record<string, string>> = {
  AUTHORIZATION_PENDING: 'authorization_pending',
  LOGIN_REFUSED: 'access_denied',
  LOGIN_EXPIRED: 'expired_token',
  // The client id is the audience (RFC 8707 2).
  AUDIENCE_NOT_GRANTED: 'invalid_target',
  SCOPE_NOT_GRANTED: 'invalid_scope',
  TOKEN_NOT_REVOCABLE: 'unsupported_token_type',
}
/** What it calls the rest (RFC 6749 4.1.2.1, 5.2, RFC 7009 2.2.1). */
const namesOfCodes: Readonly<Partial<Record<Code, string>>> = { 3: 'invalid_request', 8: 'slow_down', 14: 'temporarily_unavailable', 16: 'invalid_grant' }

function oauthName({ code, reason, details }: DomainError): string {
  const field = details.badRequest?.[0]?.field
  return namesOfReasons[reason] ?? (field === undefined ? undefined : namesOfFields[field]) ?? namesOfCodes[code] ?? 'server_error'
}

function json(status: number, body: object, headers: Readonly<Record<string, string>> = {}): RawAnswer {
  return { status, headers: { 'Content-Type': 'application/json', ...headers }, body: JSON.stringify(body) }
}

/** What a grant lacks is a bad request to OAuth (RFC 6749 5.2). */
function ofGrant({ code, message, reason, details, cause }: DomainError): DomainError {
  return new DomainError(code, message, { reason, details, cause, httpStatus: 400 })
}

/** A client of OAuth reads `error`, one of ours what every error has. */
function errorAnswer({ services }: LoginOptions, request: RawRequest, thrown: unknown): RawAnswer {
  const { requestId, signal, path: method } = request
  const told = toDomainError(fromStore(thrown), { requestId, method, signal, log: services.log })
  const error = told.code === 7 || told.code === 16 ? ofGrant(told) : told
  const { status, headers, body } = httpError(error, { requestId, domain: platformDomain })
  return json(status, { error: oauthName(error), error_description: error.message, ...body }, headers)
}

/** What of the forms is read; each at most once. */
const fields = ['client_id', 'scope', 'grant_type', 'device_code', 'refresh_token', 'token'] as const
type DeviceForm = Readonly<Partial<Record<(typeof fields)[number], string>>>

async function formOf(request: RawRequest): Promise<DeviceForm> {
  const type = (request.header('content-type') ?? '').split(';')[0]?.trim().toLowerCase()
  if (type !== 'application/x-www-form-urlencoded') throw DomainError.invalid('body', 'the content type must be application/x-www-form-urlencoded')
  const form = new URLSearchParams(await request.text())
  const given = fields.flatMap((name) => {
    const values = [...new Set(form.getAll(name))]
    if (values.length > 1) throw DomainError.invalid(name, 'must be there once')
    return values[0] === undefined || values[0] === '' ? [] : [[name, values[0]] as const]
  })
  return Object.fromEntries(given)
}

/** The uids among the scopes. Throws code 3. */
function groupsIn(scope: string): string[] {
  const groups = scope.split(' ').filter((text) => text !== '' && !openidScopes.has(text))
  if (!groups.every(isUid)) throw DomainError.invalid('scope', `must be uids of groups, or of ${[...openidScopes].join(', ')}`)
  if (groups.length > maxScopes) throw DomainError.invalid('scope', `must name at most ${maxScopes} groups`)
  return groups
}

/** What the device wants: its client id is the audience of the token. */
function requestedIn(options: LoginOptions, { client_id: clientId, scope = '' }: DeviceForm, remoteAddress: string): RequestedDeviceLogin {
  if (clientId === undefined) throw DomainError.invalid('client_id', 'is required: the audience of the token, such as the URL of this platform')
  const scopes = groupsIn(scope)
  assertIssued(options, { aud: [clientId], scopes, cap: [] }, 'client_id')
  return { clientId, audiences: [clientId], scopes, refresh: scope.split(' ').includes('offline_access'), remoteAddress }
}

/** Answers of the addresses that OAuth clients ask. */
type DeviceEndpoint = (options: LoginOptions, request: RawRequest) => Promise<RawAnswer>

/** POST /oauth/device_authorization: a device asks to be signed in (RFC 8628 3.1). */
function authorization({ services: { clock } }: LoginOptions): DeviceEndpoint {
  const limits = { address: new RateLimiter(beginLimits.address, clock), all: new RateLimiter(beginLimits.all, clock) }
  return async (options, request) => {
    const requested = requestedIn(options, await formOf(request), request.remoteAddress)
    limits.address.take(addressKey(request.remoteAddress))
    limits.all.take('')
    const { deviceCode, userCode } = await beginDeviceLogin(options.services, requested, request.signal)
    const shown = shownUserCode(userCode)
    const uri = loginUrl(options.baseUrl, pagePath)
    return json(200, {
      device_code: deviceCode,
      user_code: shown,
      verification_uri: uri,
      verification_uri_complete: `${uri}?user_code=${shown}`,
      expires_in: loginLifeMs / 1000,
      interval: intervalSeconds,
    })
  }
}

/** What a token endpoint answers (RFC 6749 5.1). */
function tokenAnswer({ services }: LoginOptions, tokens: { token: string; expiryMs: number; refreshToken: string }): RawAnswer {
  const { token, expiryMs, refreshToken } = tokens
  return json(200, {
    access_token: token,
    // The same: it says who signed in, to the client as its audience.
    id_token: token,
    token_type: 'Bearer',
    expires_in: Math.max(0, Math.floor((expiryMs - services.clock.now()) / 1000)),
    ...(refreshToken === '' ? {} : { refresh_token: refreshToken }),
  })
}

/** Throws code 8 where a device asks more than twice within the interval: some clients send each question in two forms. */
function createPace({ services: { clock } }: LoginOptions): (deviceCode: string) => void {
  const asked = createBoundedMap<readonly [number, number]>(maxAsking)
  return (deviceCode) => {
    const now = clock.now()
    const [earlier, last] = asked.get(deviceCode) ?? [-Infinity, -Infinity]
    asked.set(deviceCode, [last, now])
    // A little less than was said: answers take their time, too.
    if (Math.abs(now - earlier) >= intervalSeconds * 900) return
    throw new DomainError(8, 'ask less often', { reason: 'RATE_LIMITED', httpStatus: 400, details: { retryAfterMs: intervalSeconds * 1000 } })
  }
}

type DeviceGrant = (options: LoginOptions, request: RawRequest, form: DeviceForm) => Promise<RawAnswer>

/** The device asks whether it is signed in (RFC 8628 3.4). */
function deviceGrantOf(options: LoginOptions): DeviceGrant {
  const pace = createPace(options)
  return async ({ services, auditLog }, request, { device_code: deviceCode = '', client_id: clientId }) => {
    if (!/^[0-9a-f]{64}$/.test(deviceCode)) throw DomainError.invalid('device_code', 'is none that was given out')
    const login = await takeDeviceLogin(services, { deviceCode, clientId }, request.signal)
    if (login === undefined) throw new DomainError(9, 'the sign-in has run out, or was never begun: begin again', { reason: 'LOGIN_EXPIRED' })
    const { outcome } = login
    if (outcome?.kind === 'refused') throw new DomainError(7, 'the sign-in was refused', { reason: 'LOGIN_REFUSED' })
    if (outcome === undefined) {
      pace(deviceCode)
      throw new DomainError(9, 'nobody has signed in yet', { reason: 'AUTHORIZATION_PENDING' })
    }
    auditRequest({ auditLog }, request, { method: 'login/device-token', outcome: 'done', identity: outcome.identity })
    return tokenAnswer(options, outcome)
  }
}

/** A refresh token is used up for an access token and its successor (RFC 6749 6). */
const refreshGrant: DeviceGrant = async (options, request, { refresh_token: text = '', client_id: clientId, scope = '' }) => {
  const requested = { aud: clientId === undefined ? [] : [clientId], scopes: groupsIn(scope), cap: [] }
  assertIssued(options, requested, 'client_id')
  const { person, access, next } = await refreshed(options, { text, requested }, request.signal)
  auditRequest(options, request, { method: 'login/refresh-token', outcome: 'done', identity: person })
  return tokenAnswer(options, { ...access, refreshToken: next.text })
}

/** POST /oauth/token: the two grants of who signed in on another device. */
function token(options: LoginOptions): DeviceEndpoint {
  const grants = new Map<string, DeviceGrant>([
    [deviceGrant, deviceGrantOf(options)],
    ['refresh_token', refreshGrant],
  ])
  return async (_options, request) => {
    const form = await formOf(request)
    const grant = grants.get(form.grant_type ?? '')
    if (grant === undefined) throw DomainError.invalid('grant_type', `must be ${[...grants.keys()].join(' or ')}; other tokens are exchanged at /sts/exchange`)
    return grant(options, request, form)
  }
}

/** Of what is no token: undefined. */
async function ofToken<T>(work: () => Promise<T> | T): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof TokenError) return undefined
    throw error
  }
}

/** POST /oauth/revoke: a client signs out (RFC 7009 2). Having the token is enough, and one that is none, or none any more, is no error. */
const revocation: DeviceEndpoint = async (options, request) => {
  const { services } = options
  const { token: text } = await formOf(request)
  if (text === undefined) throw DomainError.invalid('token', 'is required')
  const issuer = await ofToken(() => decodeToken(text).issuer)
  if (issuer === services.settings.ownIssuer) {
    throw DomainError.invalid('token', 'an access token can not be revoked, it ends within the hour: revoke the refresh token', {
      reason: 'TOKEN_NOT_REVOCABLE',
    })
  }
  const person = await ofToken(() => revokeRefreshToken(services, text, request.signal))
  if (person !== undefined) auditRequest(options, request, { method: 'login/revoke', outcome: 'done', identity: person })
  return { status: 200, headers: {}, body: '' }
}

/** GET /oauth/device: where a person types the code that a device shows. */
function page({ baseUrl }: LoginOptions, request: RawRequest): RawAnswer {
  const userCode = userCodeOf(request.query.get('user_code') ?? '')
  return devicePage({ userCode: userCode === undefined ? '' : shownUserCode(userCode), action: loginUrl(baseUrl, '/oauth') })
}

/** Sign-in of devices without a browser (RFC 8628), and how it ends (RFC 7009). */
export function deviceRoutes(options: LoginOptions): RawRoute[] {
  const post = (path: string, step: DeviceEndpoint): RawRoute => ({
    method: 'POST',
    path,
    async handler(request) {
      try {
        options.limit?.(request.remoteAddress)
        return await step(options, request)
      } catch (error) {
        return errorAnswer(options, request, error)
      }
    },
  })
  return [
    post(oauthPaths.deviceAuthorization, authorization(options)),
    post(oauthPaths.token, token(options)),
    post(oauthPaths.revocation, revocation),
    { method: 'GET', path: pagePath, handler: (request) => Promise.resolve(page(options, request)) },
  ]
}
