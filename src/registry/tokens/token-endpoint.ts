import type { IncomingMessage, ServerResponse } from 'node:http'
import { maxTokenLength } from '../../auth/access-tokens/decoded-token.ts'
import type { ClientAddress } from '../../base/client-address.ts'
import { errorText } from '../../base/error-text.ts'
import { auditedCaller, type AuditTrail } from '../../base/audit-line.ts'
import type { Log } from '../../base/log.ts'
import { maxOpenRequestBytes } from '../../base/schema/method.ts'
import type { Caller, Services } from '../../engine/services.ts'
import { noteSignIn } from '../../iam/index.ts'
import type { Presented } from '../gate.ts'
import { beginDrain } from '../oci/blobs/idle-limit.ts'
import { readBody } from '../oci/blobs/request-body.ts'
import { RegistryExchange } from '../oci/exchange.ts'
import { tracedRequest } from '../oci/traced-request.ts'
import { errorBody, isServerError } from '../oci/oci-errors.ts'
import { requestTarget } from '../oci/request-target.ts'
import { findRepository } from '../records/repo-paths.ts'
import { RegistryError } from '../registry-error.ts'
import type { Challenger } from './challenge.ts'
import { auditDenial } from './denial.ts'
import { bearerOf, type RegistryAuthenticator } from './registry-authenticator.ts'
import type { TokenAccess } from './registry-claims.ts'
import { registryTokenSeconds, type MintedToken } from './registry-minter.ts'
import type { RegistryTokens } from './registry-tokens.ts'
import { holds, isPublic } from './rights.ts'
import { parseScopes, type RepositoryScope } from './scope.ts'

/** A request for a registry token, from either form of the protocol. */
interface TokenRequest {
  /** The credential, as an `Authorization` header. */
  readonly authorization: string | undefined
  /** The `scope` parameters, not parsed. */
  readonly scopes: readonly string[]
}

/** How long a client may send nothing of its form, in milliseconds. */
const idleMs = 10_000

/**
 * Reads a GET request: the credential from the header, the scopes from the query. Ignores `service`, `account`, `client_id` and
 * `offline_token`.
 */
function readQuery(request: IncomingMessage): TokenRequest {
  const query = new URLSearchParams(requestTarget(request).search)
  return { authorization: request.headers.authorization, scopes: query.getAll('scope') }
}

/**
 * Reads a POST request in the OAuth2 form. `grant_type=password` has `username` and `password`. `refresh_token` has an access token or
 * external token as `refresh_token`. Throws RegistryError: 400 for another form, 413 for one over 8 KiB, 408 for one that arrives too
 * slowly.
 */
async function readForm(request: IncomingMessage): Promise<TokenRequest> {
  const type = request.headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase()
  if (type !== 'application/x-www-form-urlencoded') throw badForm('the body must be application/x-www-form-urlencoded')
  const form = new URLSearchParams(Buffer.from(await readBody(request, { idleMs, maxBytes: maxOpenRequestBytes })).toString('utf8'))
  return { authorization: authorizationOf(form), scopes: form.getAll('scope') }
}

/** Returns the form's credential as an `Authorization` header. */
function authorizationOf(form: URLSearchParams): string {
  const grant = form.get('grant_type')
  if (grant === 'password') return `Basic ${Buffer.from(`${form.get('username') ?? ''}:${form.get('password') ?? ''}`).toString('base64')}`
  if (grant === 'refresh_token' && !/\s/.test(form.get('refresh_token') ?? ' ')) return `Bearer ${form.get('refresh_token') ?? ''}`
  throw badForm('grant_type must be password, or refresh_token with a refresh_token')
}

function badForm(message: string): RegistryError {
  return new RegistryError('UNSUPPORTED', message, { status: 400 })
}

/** Dependencies of the token endpoint. */
export interface TokenEndpointOptions {
  readonly services: Services
  readonly endpoint: RegistryAuthenticator
  readonly tokens: RegistryTokens
  readonly challenger: Challenger
  readonly publicOrganization: string | undefined
  readonly log: Log
  readonly auditLog: AuditTrail
  readonly newRequestId: () => string
  readonly clientAddress: ClientAddress
}

interface Noting extends TokenEndpointOptions {
  /** Records the sign-in of a caller. */
  readonly note: (caller: Caller) => void
}

const headers = ['Content-Type', 'application/json', 'Cache-Control', 'no-store', 'X-Content-Type-Options', 'nosniff']

/**
 * Creates the handler of `/token`, the distribution token protocol (docs/spec/registry.md#registry-token-endpoint): GET, and POST in the
 * OAuth2 form. The token grants those requested actions that the caller may do now. That may be none; then requests with the token are
 * refused. Without a scope, only checks the credential.
 */
export function createTokenEndpoint(options: TokenEndpointOptions): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  const noting: Noting = { ...options, note: createNotes(options) }
  const bodyOf = createBodies()
  const { tracing } = options.services
  const handle = async (exchange: RegistryExchange): Promise<'token'> => {
    const { request, response } = exchange
    let asked: TokenRequest | undefined
    try {
      asked = await read(request)
      const body = bodyOf(await answer(noting, exchange, asked))
      exchange.send(200, ['Content-Length', body.length, ...headers], body)
    } catch (thrown) {
      const error = options.challenger.refusal(thrown)
      if ((asked ?? request.headers).authorization !== undefined) auditDenial(options.auditLog, exchange, { method: 'token', caller: undefined, error })
      if (isServerError(error)) options.log.error('a token request failed', { requestId: exchange.requestId, error: errorText(error.cause ?? error) })
      const body = errorBody(error)
      const lines = ['Content-Length', Buffer.byteLength(body), ...headers, ...Object.entries(error.headers).flat()]
      if (!response.headersSent) exchange.send(error.status, lines, body)
      beginDrain(request)
    }
    return 'token'
  }
  return async (request, response) => {
    const exchange = new RegistryExchange(request, response, options)
    await (tracing === undefined ? handle(exchange) : tracedRequest(tracing, exchange, () => handle(exchange)))
  }
}

async function answer(options: Noting, exchange: RegistryExchange, asked: TokenRequest): Promise<MintedToken> {
  const { endpoint, tokens, services } = options
  const { repositories, catalog, asked: isScoped } = parseScopes(asked.scopes)
  const credential = await endpoint.platformCredential(new Asking(exchange, asked))
  const caller = endpoint.callerOf(credential)
  const access = repositories.flatMap((scope) => grant(options, caller, scope))
  if (credential.kind === 'none' && (!isScoped || access.length === 0 || access.length < repositories.length)) {
    endpoint.refused(exchange)
    throw options.challenger.unauthorized('sign in first', repositories.slice(0, 1))
  }
  if (caller !== undefined) options.note(caller)
  const bearer = credential.kind === 'none' ? undefined : bearerOf(services, credential.token)
  const minted = tokens.mint({ bearer, access, catalog: catalog && bearer !== undefined })
  if (minted.token.length > maxTokenLength) throw new RegistryError('UNSUPPORTED', 'the token would be too large: request fewer scopes', { status: 400 })
  if (caller !== undefined) auditSignIn(options.auditLog, exchange, caller)
  return minted
}

function auditSignIn(trail: AuditTrail, { requestId, remoteAddress, userAgent }: RegistryExchange, caller: Caller): void {
  trail.record({ outcome: 'done', method: 'registry/token', transport: 'http', requestId, ...auditedCaller(caller), remoteAddress, userAgent })
}

/** Creates a function that formats responses as JSON in ASCII. Keeps the last response of each token. */
function createBodies(): (minted: MintedToken) => string {
  const bodies = new WeakMap<MintedToken, string>()
  return (minted) => {
    const known = bodies.get(minted)
    if (known !== undefined) return known
    const { token, issuedAtMs } = minted
    const body = JSON.stringify({ token, access_token: token, expires_in: registryTokenSeconds, issued_at: new Date(issuedAtMs).toISOString() })
    bodies.set(minted, body)
    return body
  }
}

/** A token request with its credential, which may come from a form instead of a header. */
class Asking implements Presented {
  readonly authorization: string | undefined
  readonly #exchange: RegistryExchange

  constructor(exchange: RegistryExchange, { authorization }: TokenRequest) {
    this.#exchange = exchange
    this.authorization = authorization
  }

  get identity(): string | undefined {
    return this.#exchange.identity
  }

  get remoteAddress(): string {
    return this.#exchange.remoteAddress
  }

  get signal(): AbortSignal {
    return this.#exchange.signal
  }

  onceAnswered(listener: (sentBytes: number) => void): void {
    this.#exchange.onceAnswered(listener)
  }
}

function read(request: IncomingMessage): TokenRequest | Promise<TokenRequest> {
  if (request.method === 'GET') return readQuery(request)
  if (request.method === 'POST') return readForm(request)
  throw new RegistryError('UNSUPPORTED', 'use GET or POST', { headers: { Allow: 'GET, POST' } })
}

/** Returns the requested access that the caller has; undefined if the caller has none. */
function grant({ services, publicOrganization }: TokenEndpointOptions, caller: Caller | undefined, { path, actions }: RepositoryScope): TokenAccess[] {
  const { tables } = services.cache
  const target = findRepository(tables, path)
  if (target === undefined) return []
  const permissions = caller?.permissions()
  const granted = actions.filter(
    (action) =>
      (action === 'pull' && isPublic(tables, publicOrganization, target)) || (permissions !== undefined && holds(tables, permissions, { target, action })),
  )
  if (granted.length === 0) return []
  return [{ path, actions: granted, place: target.kind === 'repo' ? { uid: target.uid } : { parent: target.parent } }]
}

/** Creates a function that records sign-ins, one at a time for each identity. No request waits for it. */
function createNotes({ services, log }: TokenEndpointOptions): (caller: Caller) => void {
  const running = new Set<string>()
  return ({ identity }) => {
    if (running.has(identity)) return
    running.add(identity)
    noteSignIn(services, identity)
      .catch((error: unknown) => log.warn('could not write lastSeenTime of an identity', { uid: identity, error: errorText(error) }))
      .finally(() => running.delete(identity))
  }
}
