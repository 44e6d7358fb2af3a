import { RecentMap } from '../../../base/recent-map.ts'
import { decodeToken } from '../../../auth/access-tokens/decoded-token.ts'
import { deviceGrant, oauthPaths } from '../../../auth/oidc/discovery-document.ts'
import { loginLifeMs } from '../login-state.ts'
import { TokenError } from '../../../auth/access-tokens/token-error.ts'
import { DomainError, type Code } from '../../../base/errors.ts'
import { isUid } from '../../../base/uid.ts'
import { beginDeviceLogin, shownUserCode, takeDeviceLogin, userCodeOf, type RequestedDeviceLogin } from '../pending-logins.ts'
import { revokeRefreshToken } from '../refresh-tokens.ts'
import type { HttpAnswer } from '../../../transport/http/http-context.ts'
import { auditRequest } from '../../../transport/calls/audit.ts'
import { emptyAnswer, errorAnswer, jsonAnswer, type ErrorForm } from '../../../transport/web/web-answers.ts'
import { readFields, type WebRequest } from '../../../transport/web/web-request.ts'
import type { WebRoute } from '../../../transport/web/web-routes.ts'
import { loginUrl, assertIssued, pageErrors, type LoginOptions } from './login-ends.ts'
import { devicePage } from './login-pages.js'
import { listedIn } from './login-request.ts'
import { refreshed } from './people-endpoints.ts'
import { addressKey, RateLimiter } from '../../../transport/rate-limit.ts'

const pagePath = '/oauth/device'

/** Minimum time between two token requests of a device, in seconds. */
const intervalSeconds = 5
/** Maximum number of devices whose last token request is remembered. */
const maxPolling = 100_000

/**
 * Rate limits for starting device sign-ins, for one address and in total. Each sign-in takes space in the store, and its caller is
 * anonymous.
 */
const startLimits = { address: { requestsPerSecond: 0.5, burst: 30 }, all: { requestsPerSecond: 10, burst: 200 } } as const

/** Scopes of OpenID Connect. They have no effect, except that `offline_access` requests a refresh token. */
const openidScopes = new Set(['openid', 'email', 'profile', 'groups', 'offline_access'])
/** Maximum number of groups in one request. */
const maxScopes = 8

/** OAuth error names by the name of the invalid form field. */
const namesOfFields: Readonly<Record<string, string>> = {
  client_id: 'invalid_client',
  audience: 'invalid_target',
  scope: 'invalid_scope',
  grant_type: 'unsupported_grant_type',
  device_code: 'invalid_grant',
}
/** OAuth error names by reason. */
const namesOfReasons: Readonly<Record<string, string>> = {
  AUTHORIZATION_PENDING: 'authorization_pending',
  LOGIN_REFUSED: 'access_denied',
  LOGIN_EXPIRED: 'expired_token',
  // The client id is the audience of the token (RFC 8707, 2).
  AUDIENCE_NOT_GRANTED: 'invalid_target',
  SCOPE_NOT_GRANTED: 'invalid_scope',
  TOKEN_NOT_REVOCABLE: 'unsupported_token_type',
}
/** OAuth error names by code, for all other errors (RFC 6749, 4.1.2.1 and 5.2; RFC 7009, 2.2.1). */
const namesOfCodes: Readonly<Partial<Record<Code, string>>> = { 3: 'invalid_request', 8: 'slow_down', 14: 'temporarily_unavailable', 16: 'invalid_grant' }

function oauthName({ code, reason, details }: DomainError): string {
  const field = details.badRequest?.[0]?.field
  return namesOfReasons[reason] ?? (field === undefined ? undefined : namesOfFields[field]) ?? namesOfCodes[code] ?? 'server_error'
}

/** Changes the error to HTTP 400, which OAuth requires for a refused grant (RFC 6749, 5.2). */
function asBadRequest({ code, message, reason, details, cause }: DomainError): DomainError {
  return new DomainError(code, message, { reason, details, cause, httpStatus: 400 })
}

/** Formats an error for OAuth clients, which read `error`. The other members are those of every API error. */
const oauthErrors: ErrorForm = (thrown, requestId) => {
  const error = thrown.code === 7 || thrown.code === 16 ? asBadRequest(thrown) : thrown
  return errorAnswer(error, requestId, { error: oauthName(error), error_description: error.message })
}

const fields = ['client_id', 'audience', 'scope', 'grant_type', 'device_code', 'refresh_token', 'token'] as const
type DeviceForm = Readonly<Partial<Record<(typeof fields)[number], string>>>

/** Returns the group uids among the scopes. Throws code 3. */
function groupsIn(scope: string): string[] {
  const groups = scope.split(' ').filter((text) => text !== '' && !openidScopes.has(text))
  if (!groups.every(isUid)) throw DomainError.invalid('scope', `must contain only group uids and ${[...openidScopes].join(', ')}`)
  if (groups.length > maxScopes) throw DomainError.invalid('scope', `must name at most ${maxScopes} groups`)
  return groups
}

/** Returns the token that a device requests. Its audiences are the client id and those of `audience`. */
function requestedIn(options: LoginOptions, { client_id: clientId, audience = '', scope = '' }: DeviceForm, remoteAddress: string): RequestedDeviceLogin {
  if (clientId === undefined) throw DomainError.invalid('client_id', 'is required: set it to the audience of the token, such as the URL of this platform')
  const scopes = groupsIn(scope)
  assertIssued(options, { aud: [clientId], scopes, cap: [] }, 'client_id')
  const audiences = [...new Set([clientId, ...listedIn(audience)])]
  assertIssued(options, { aud: audiences, scopes, cap: [] }, 'audience')
  return { clientId, audiences, scopes, refresh: scope.split(' ').includes('offline_access'), remoteAddress }
}

/** Handles a form that an OAuth client posts. */
type DeviceEndpoint = (options: LoginOptions, request: WebRequest, form: DeviceForm) => Promise<HttpAnswer>

/** POST /oauth/device_authorization: a device starts a sign-in (RFC 8628, 3.1). */
function authorization({ services: { clock } }: LoginOptions): DeviceEndpoint {
  const limits = { address: new RateLimiter(startLimits.address, clock), all: new RateLimiter(startLimits.all, clock) }
  return async (options, request, form) => {
    const requested = requestedIn(options, form, request.remoteAddress)
    limits.address.take(addressKey(request.remoteAddress))
    limits.all.take('')
    const { deviceCode, userCode } = await beginDeviceLogin(options.services, requested, request.signal)
    const shown = shownUserCode(userCode)
    const uri = loginUrl(options.baseUrl, pagePath)
    return jsonAnswer(200, {
      device_code: deviceCode,
      user_code: shown,
      verification_uri: uri,
      verification_uri_complete: `${uri}?user_code=${shown}`,
      expires_in: loginLifeMs / 1000,
      interval: intervalSeconds,
    })
  }
}

/** Returns the response of a token endpoint (RFC 6749, 5.1). */
function tokenAnswer({ services }: LoginOptions, tokens: { token: string; expiryMs: number; refreshToken: string }): HttpAnswer {
  const { token, expiryMs, refreshToken } = tokens
  return jsonAnswer(200, {
    access_token: token,
    // The access token also serves as id token: it names the person, and its audience is the client.
    id_token: token,
    token_type: 'Bearer',
    expires_in: Math.max(0, Math.floor((expiryMs - services.clock.now()) / 1000)),
    ...(refreshToken === '' ? {} : { refresh_token: refreshToken }),
  })
}

/**
 * Returns a check that throws code 8 for the third request within the interval. It allows two, since some clients send each request in two
 * forms.
 */
function createPace({ services: { clock } }: LoginOptions): (deviceCode: string) => void {
  const polls = new RecentMap<string, readonly [number, number]>(maxPolling)
  return (deviceCode) => {
    const now = clock.now()
    const [earlier, last] = polls.get(deviceCode) ?? [-Infinity, -Infinity]
    polls.set(deviceCode, [last, now])
    // Requires only 90 % of the announced interval, since clients do not count the time of the response.
    if (Math.abs(now - earlier) >= intervalSeconds * 900) return
    throw new DomainError(8, `wait ${intervalSeconds} seconds before the next request`, {
      reason: 'RATE_LIMITED',
      httpStatus: 400,
      details: { retryAfterMs: intervalSeconds * 1000 },
    })
  }
}

/** Handles a device's request for the result of its sign-in (RFC 8628, 3.4). */
function deviceGrantOf(options: LoginOptions): DeviceEndpoint {
  const pace = createPace(options)
  return async ({ services, auditLog }, request, { device_code: deviceCode = '', client_id: clientId }) => {
    if (!/^[0-9a-f]{64}$/.test(deviceCode)) throw DomainError.invalid('device_code', 'must be the device_code of a /oauth/device_authorization answer')
    const login = await takeDeviceLogin(services, { deviceCode, clientId }, request.signal)
    if (login === undefined) throw new DomainError(9, 'the sign-in expired. Start again', { reason: 'LOGIN_EXPIRED' })
    const { outcome } = login
    if (outcome?.kind === 'refused') throw new DomainError(7, 'the sign-in was refused', { reason: 'LOGIN_REFUSED' })
    if (outcome === undefined) {
      pace(deviceCode)
      throw new DomainError(9, 'the sign-in is not complete yet: finish it in the browser', { reason: 'AUTHORIZATION_PENDING' })
    }
    auditRequest({ auditLog }, request, { method: 'login/device-token', outcome: 'done', identity: outcome.identity })
    return tokenAnswer(options, outcome)
  }
}

/** Exchanges a refresh token for an access token and a new refresh token (RFC 6749, 6). */
const refreshGrant: DeviceEndpoint = async (options, request, { refresh_token: text = '', client_id: clientId, scope = '' }) => {
  const requested = { aud: clientId === undefined ? [] : [clientId], scopes: groupsIn(scope), cap: [] }
  assertIssued(options, requested, 'client_id')
  const { person, access, next } = await refreshed(options, { text, requested }, request.signal)
  auditRequest(options, request, { method: 'login/refresh-token', outcome: 'done', identity: person })
  return tokenAnswer(options, { ...access, refreshToken: next.text })
}

/** Returns an endpoint that records refused codes and tokens. Their holder is not known. A code that waits for its sign-in is not refused. */
function recorded(method: string, endpoint: DeviceEndpoint): DeviceEndpoint {
  return async (options, request, form) => {
    try {
      return await endpoint(options, request, form)
    } catch (error) {
      const { code, reason } = error instanceof DomainError ? error : new DomainError(13, '')
      if (code === 7 || code === 16 || reason === 'LOGIN_EXPIRED') auditRequest(options, request, { method, outcome: 'denied', code, reason })
      throw error
    }
  }
}

/** POST /oauth/token: handles two kinds of grant. */
function token(options: LoginOptions): DeviceEndpoint {
  const grants = new Map<string, DeviceEndpoint>([
    [deviceGrant, recorded('login/device-token', deviceGrantOf(options))],
    ['refresh_token', recorded('login/refresh-token', refreshGrant)],
  ])
  return async (_options, request, form) => {
    const grant = grants.get(form.grant_type ?? '')
    if (grant === undefined) throw DomainError.invalid('grant_type', `must be ${[...grants.keys()].join(' or ')}; exchange other tokens at /sts/exchange`)
    return grant(options, request, form)
  }
}

/** Runs `work`; returns undefined if the text is not a valid token. */
async function ifToken<T>(work: () => Promise<T> | T): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof TokenError) return undefined
    throw error
  }
}

/** POST /oauth/revoke: a client signs out (RFC 7009, 2). The token is the only credential. An invalid token is not an error. */
const revocation: DeviceEndpoint = async (options, request, { token: text }) => {
  const { services } = options
  if (text === undefined) throw DomainError.invalid('token', 'is required')
  const issuer = await ifToken(() => decodeToken(text).issuer)
  if (issuer === services.settings.ownIssuer) {
    throw DomainError.invalid('token', 'access tokens cannot be revoked: they expire within an hour. Revoke the refresh token', {
      reason: 'TOKEN_NOT_REVOCABLE',
    })
  }
  const person = await ifToken(() => revokeRefreshToken(services, text, request.signal))
  if (person !== undefined) auditRequest(options, request, { method: 'login/revoke', outcome: 'done', identity: person })
  return emptyAnswer(200)
}

/** GET /oauth/device: shows the page on which a person types the code of a device. */
function page({ baseUrl }: LoginOptions, request: WebRequest): HttpAnswer {
  const userCode = userCodeOf(request.query.get('user_code') ?? '')
  return devicePage({ userCode: userCode === undefined ? '' : shownUserCode(userCode), action: loginUrl(baseUrl, '/oauth') })
}

/** Returns the routes of sign-in on devices without a browser (RFC 8628), of refresh tokens and of their revocation (RFC 7009). */
export function deviceRoutes(options: LoginOptions): WebRoute[] {
  const post = (path: string, endpoint: DeviceEndpoint): WebRoute => ({
    method: 'POST',
    path,
    limit: options.limit,
    errors: oauthErrors,
    handle: async (request) => endpoint(options, request, await readFields(request, fields)),
  })
  return [
    post(oauthPaths.deviceAuthorization, authorization(options)),
    post(oauthPaths.token, token(options)),
    post(oauthPaths.revocation, revocation),
    { method: 'GET', path: pagePath, errors: pageErrors, handle: (request) => page(options, request) },
  ]
}
