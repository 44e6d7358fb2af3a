import {
  allowInsecureRequests,
  AuthorizationResponseError,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  calculatePKCECodeChallenge,
  ClientSecretBasic,
  ClientSecretPost,
  customFetch,
  discovery,
  None,
  randomNonce,
  randomPKCECodeVerifier,
  Configuration,
  type ClientAuth,
  type CustomFetch,
  type ServerMetadata,
} from 'openid-client'
import { DomainError } from '../../base/errors.ts'
import { TenantSlots } from './tenant-slots.ts'
import { untilAborted } from '../../base/timing.ts'
import { policyOf, type ConfiguredIssuer } from './issuer-source.ts'
import { normalizeIssuer } from './issuer-name.ts'
import { FetchError, type FetchErrorReason, type FetchPolicy, type SafeFetch } from '../safe-fetch.ts'

/** Maximum number of concurrent requests: for documents, per issuer and in total; for tokens, per organisation, per issuer of an organisation, and in total. */
const maxPending = { documents: { each: 10, all: 100 }, tokens: { each: 30, all: 100 }, tokensOfIssuer: { each: 10, all: 1000 } }

function tooMany(): DomainError {
  return new DomainError(14, 'too many sign-ins are waiting for their identity provider; try again')
}

/** The platform as a client of an OpenID provider. */
export interface OidcClient {
  /** Uid of the organisation that the provider belongs to. */
  readonly tenant: string
  readonly issuer: string
  readonly clientId: string
  /** Undefined for a public client, which must use PKCE. */
  readonly clientSecret: string | undefined
  readonly pkce: boolean
  /** Scopes to request in addition to `openid`. */
  readonly additionalScopes: readonly string[]
}

/** Values that an answer to an authorization request must match. */
export interface LoginChecks {
  readonly nonce: string
  /** The PKCE code verifier; absent without PKCE. */
  readonly verifier?: string
}

/**
 * The OpenID authorization code flow with any provider (OpenID Connect Core 3.1, RFC 7636). It makes requests through SafeFetch, because tenants name the
 * URLs.
 */
export interface OidcLogin {
  /** Creates fresh check values for one sign-in. */
  newChecks(client: OidcClient): LoginChecks
  /** Returns the provider's URL to which the browser is redirected. Throws DomainError 14 if the provider does not answer, and 9 if it cannot be used. */
  authorizationUrl(client: OidcClient, request: { state: string; redirectUri: string; checks: LoginChecks }, signal: AbortSignal): Promise<URL>
  /**
   * Exchanges the code in the browser's answer for an id token, whose signature the caller must still verify. Throws DomainError 7 if the provider or the
   * person refused, and 14 and 9 as `authorizationUrl`.
   */
  idToken(client: OidcClient, answer: { url: URL; state: string; checks: LoginChecks }, signal: AbortSignal): Promise<string>
}

/** Creates an OidcLogin. `configured` names the issuers that may have private addresses, and the certificates to trust for them. */
export function createOidcLogin(fetch: SafeFetch, configured: readonly ConfiguredIssuer[]): OidcLogin {
  const rows = new Map(configured.map((row) => [normalizeIssuer(row.issuer), row]))
  const policyAt = (issuer: string): FetchPolicy => policyOf(rows.get(normalizeIssuer(issuer)) ?? { issuer })

  async function ask({ issuer, clientId }: OidcClient): Promise<ServerMetadata> {
    const policy = policyAt(issuer)
    // Several callers may share the request, so none of them can abort it. It has its own timeout.
    const options = { [customFetch]: fetchWith(fetch, policy, new AbortController().signal), execute: executeOf(policy) }
    const server = (await discovery(new URL(issuer), clientId, {}, None(), options)).serverMetadata()
    // For some forms of URLs, the library accepts another issuer in the document.
    if (server.issuer !== issuer) throw new DomainError(9, 'the identity provider cannot be used: its discovery document names another issuer')
    return server
  }

  const asking = new TenantSlots(maxPending.documents)
  const flights = new Map<string, Promise<ServerMetadata>>()
  /**
   * Returns the issuer's discovery document. Everyone can start a sign-in at an issuer that does not answer, so concurrent callers share one request per
   * issuer.
   */
  async function discovered(client: OidcClient, signal: AbortSignal): Promise<ServerMetadata> {
    const { issuer } = client
    const running = flights.get(issuer)
    if (running !== undefined) return untilAborted(running, signal)
    const release = asking.take([client.tenant])
    if (release === undefined) throw tooMany()
    const flight = ask(client).finally(() => {
      flights.delete(issuer)
      release()
    })
    flights.set(issuer, flight)
    return untilAborted(flight, signal)
  }

  async function configure(client: OidcClient, signal: AbortSignal): Promise<Configuration> {
    const policy = policyAt(client.issuer)
    const server = await discovered(client, signal)
    const configuration = new Configuration(server, client.clientId, {}, authenticationOf(client, server))
    configuration[customFetch] = fetchWith(fetch, policy, signal)
    for (const apply of executeOf(policy)) apply(configuration)
    return configuration
  }

  const bounded = createBound()
  return {
    newChecks: ({ pkce }) => ({ nonce: randomNonce(), ...(pkce ? { verifier: randomPKCECodeVerifier() } : {}) }),
    authorizationUrl: (client, { state, redirectUri, checks }, signal) =>
      translated(signal, async () => {
        const configuration = await configure(client, signal)
        const scope = [...new Set(['openid', ...client.additionalScopes])].join(' ')
        const challenge =
          checks.verifier === undefined ? {} : { code_challenge: await calculatePKCECodeChallenge(checks.verifier), code_challenge_method: 'S256' }
        return buildAuthorizationUrl(configuration, { redirect_uri: redirectUri, scope, state, nonce: checks.nonce, response_type: 'code', ...challenge })
      }),
    idToken: (client, { url, state, checks }, signal) =>
      translated(signal, async () => {
        const verifier = checks.verifier === undefined ? {} : { pkceCodeVerifier: checks.verifier }
        const expected = { expectedNonce: checks.nonce, expectedState: state, idTokenExpected: true, ...verifier }
        const configuration = await configure(client, signal)
        const grant = await bounded(client, () => authorizationCodeGrant(configuration, url, expected))
        if (grant.id_token === undefined) throw new DomainError(9, 'the identity provider sent no id token')
        return grant.id_token
      }),
  }
}

/**
 * Returns a function that limits concurrent token requests per organisation, per issuer and in total. Everyone can cause such a request, even with an invalid
 * code.
 */
function createBound(): <T>(client: OidcClient, work: () => Promise<T>) => Promise<T> {
  const [ofTenants, ofIssuers] = [new TenantSlots(maxPending.tokens), new TenantSlots(maxPending.tokensOfIssuer)]
  return async ({ tenant, issuer }, work) => {
    const releaseIssuer = ofIssuers.take([`${tenant} ${issuer}`])
    const releaseTenant = releaseIssuer && ofTenants.take([tenant])
    try {
      if (releaseTenant === undefined) throw tooMany()
      return await work()
    } finally {
      releaseTenant?.()
      releaseIssuer?.()
    }
  }
}

/** Returns how the client authenticates, as the provider's metadata demands. By default it uses HTTP Basic (OpenID Connect Discovery 3). */
function authenticationOf({ clientSecret }: OidcClient, server: ServerMetadata): ClientAuth {
  if (clientSecret === undefined) return None()
  const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic']
  return methods.includes('client_secret_basic') ? ClientSecretBasic(clientSecret) : ClientSecretPost(clientSecret)
}

function executeOf({ allowPrivate }: FetchPolicy): ((configuration: Configuration) => void)[] {
  return allowPrivate === true ? [allowInsecureRequests] : []
}

function fetchWith(fetch: SafeFetch, policy: FetchPolicy, signal: AbortSignal): CustomFetch {
  return async (url, { method, headers, body }) => {
    const text = body instanceof URLSearchParams ? body.toString() : body
    const request = { url, method: method === 'POST' ? 'POST' : 'GET', headers: { ...headers }, ...policy } as const
    const answer = await fetch.send({ ...request, ...(typeof text === 'string' ? { body: text } : {}) }, signal)
    // The library requires this content type, and checks by itself whether the body is JSON.
    return new Response(Buffer.from(answer.body), { status: answer.status, headers: { 'content-type': 'application/json' } })
  }
}

const unreachable = 'the host of the issuer does not exist, or has no public address'

/** The reason why a provider's configuration is wrong, in words for its owner. */
const reasons: Readonly<Partial<Record<FetchErrorReason, string>>> = {
  refused_url: 'the issuer uses a URL that is not https',
  // The same text as for a name that does not exist, so that it does not reveal which names exist in the platform's network.
  refused_address: unreachable,
  unresolved: unreachable,
  untrusted: 'the certificate of the issuer is not trusted',
  redirect: 'the issuer redirects requests',
}

/** Translates a failure into an error for the person who signs in. What the provider answered goes to the log only. */
async function translated<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    signal.throwIfAborted()
    if (error instanceof DomainError) throw error
    const fetchError = fetchErrorIn(error)
    if (fetchError?.transient === true) throw new DomainError(14, 'the identity provider does not answer; try again', { cause: error })
    if (error instanceof AuthorizationResponseError)
      throw new DomainError(7, `the identity provider refused the sign-in: ${error.error.slice(0, 64)}`, { cause: error })
    if (fetchError?.status === 400 || fetchError?.status === 401) throw new DomainError(7, 'the identity provider refused the sign-in', { cause: error })
    const why = (fetchError && reasons[fetchError.reason]) ?? 'the responses of the issuer do not follow OpenID Connect'
    throw new DomainError(9, `the identity provider cannot be used: ${why}`, { cause: error })
  }
}

function fetchErrorIn(error: unknown): FetchError | undefined {
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) if (cause instanceof FetchError) return cause
  return undefined
}
