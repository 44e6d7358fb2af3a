import { isIP } from 'node:net'
import type { LookupFunction } from 'node:net'
import { rootCertificates } from 'node:tls'
import { Agent, buildConnector, errors } from 'undici'
import { isMetadataHost } from './safe-address.ts'

/**
 * Why a fetch failed:
 * - `refused_url`: the URL is invalid, contains a user name, or is not https (or http, if allowed).
 * - `refused_address`: the name has an address that is not public.
 * - `unresolved`: the name does not exist.
 * - `unreachable`: no connection could be made, or it broke.
 * - `untrusted`: the server's certificate is not valid for its name, or its TLS settings are not acceptable.
 * - `timeout`: the whole answer did not arrive in time.
 * - `redirect`: the server answered with a redirect.
 * - `status`: the server answered with another status than 2xx; see `status`.
 * - `too_large`: the body exceeds the limit.
 * - `unreadable`: the body is not JSON.
 */
export type FetchErrorReason =
  'refused_url' | 'refused_address' | 'unresolved' | 'unreachable' | 'untrusted' | 'timeout' | 'redirect' | 'status' | 'too_large' | 'unreadable'

/** The error of a failed fetch. Of the server's answer, it contains only the status. */
export class FetchError extends Error {
  override readonly name = 'FetchError'
  readonly reason: FetchErrorReason
  readonly status: number | undefined
  /** The wait that the server asked for with `Retry-After` or `Refresh-After`, in milliseconds. */
  readonly retryAfterMs: number | undefined
  /** The `WWW-Authenticate` header of a download that failed with status 401. */
  readonly challenge: string | undefined
  constructor(
    errorReason: FetchErrorReason,
    options: { readonly status?: number; readonly retryAfterMs?: number | undefined; readonly challenge?: string | undefined; readonly cause?: unknown } = {},
  ) {
    super(`fetch: ${errorReason}`, options.cause === undefined ? undefined : { cause: options.cause })
    this.reason = errorReason
    this.status = options.status
    this.retryAfterMs = options.retryAfterMs
    this.challenge = options.challenge
  }

  /** True if the same fetch may succeed later without any change. */
  get transient(): boolean {
    if (this.reason === 'status') return this.status === 429 || (this.status ?? 0) >= 500
    return this.reason === 'timeout' || this.reason === 'unreachable'
  }
}

/** Exceptions that the configuration allows for one destination. */
export interface FetchPolicy {
  /** True if addresses that are not public, and http, are allowed. */
  readonly allowPrivate?: boolean
  /** PEM certificates to trust instead of the system's. */
  readonly ca?: string
}

class RefusedAddress extends Error {}

/** Returns a policy that trusts these PEM certificates in addition to the system's. */
export function trusting(extraCa: string | undefined): FetchPolicy {
  return extraCa === undefined ? {} : { ca: [...rootCertificates, extraCa].join('\n') }
}

/** Returns the URL to connect to. Throws FetchError if the policy does not allow it. */
export function parseUrl(input: FetchPolicy & { readonly url: string }): URL {
  const url = URL.parse(input.url)
  const schemes = input.allowPrivate === true ? ['https:', 'http:'] : ['https:']
  if (url === null || !schemes.includes(url.protocol) || url.username !== '' || url.password !== '') throw new FetchError('refused_url')
  return url
}

/** Maximum delay of a `Retry-After` header in seconds: about 30 years. */
const maxRetryAfterSeconds = 1e9

/** Returns the delay of a `Retry-After` header, in milliseconds: seconds or an HTTP date. Undefined for other values. */
export function retryAfterOf(header: string | string[] | undefined): number | undefined {
  if (typeof header !== 'string') return undefined
  if (/^\d+$/.test(header)) return Math.min(Number(header), maxRetryAfterSeconds) * 1000
  // HTTP dates start with a weekday. The parser also accepts other texts: it reads `-3600` as a year.
  const atMs = /^[a-z]{3,9},? /i.test(header) ? Date.parse(header) : NaN
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - Date.now())
}

/** Translates an error of the HTTP client into a FetchError, by its class and code. */
export function translate(error: unknown): FetchError {
  if (error instanceof FetchError) return error
  if (error instanceof errors.ConnectTimeoutError || error instanceof errors.HeadersTimeoutError || error instanceof errors.BodyTimeoutError) {
    return new FetchError('timeout', { cause: error })
  }
  if (error instanceof RefusedAddress) return new FetchError('refused_address', { cause: error })
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return new FetchError(reasonOf(code), { cause: error })
}

/**
 * Node's error codes for failed certificate checks (X509_V_ERR_* without the prefix) and for failed handshakes. A handshake fails if the TLS settings of both
 * sides do not match.
 */
const untrustedCodes =
  /^(?:.*CERT(?:_|$)|UNABLE_TO_|HOSTNAME_MISMATCH$|INVALID_(?:CA|PURPOSE)$|PATH_LENGTH_EXCEEDED$|ERR_TLS_(?!HANDSHAKE_TIMEOUT)|ERR_OSSL_|ERR_SSL_(?:WRONG_VERSION_NUMBER|UNSUPPORTED_PROTOCOL|TLSV1_ALERT_PROTOCOL_VERSION|SSL\/TLS_ALERT_HANDSHAKE_FAILURE))/

function reasonOf(code: unknown): FetchErrorReason {
  if (code === 'ENOTFOUND') return 'unresolved'
  return typeof code === 'string' && untrustedCodes.test(code) ? 'untrusted' : 'unreachable'
}

/** What all connections of a client share. */
export interface AgentLimits {
  readonly lookup: LookupFunction
  readonly timeoutMs: number
  readonly isAllowed: (address: string) => boolean
}

/** Creates an HTTP client that checks addresses when it connects. */
export function createAgent(limits: AgentLimits, policy: FetchPolicy): Agent {
  const connect = buildConnector({
    timeout: limits.timeoutMs,
    allowH2: false,
    lookup: policy.allowPrivate === true ? limits.lookup : allowedOnly(limits),
    ...(policy.ca === undefined ? {} : { ca: policy.ca }),
  })
  return new Agent({
    headersTimeout: limits.timeoutMs,
    bodyTimeout: limits.timeoutMs,
    maxHeaderSize: 16 * 1024,
    connect(options, callback) {
      // A literal address needs no look-up, so it is checked here.
      const host = options.hostname.replace(/^\[|\]$/g, '')
      const isRefused = isIP(host) === 0 ? isMetadataHost(host) : !limits.isAllowed(host)
      if (policy.allowPrivate !== true && isRefused) callback(new RefusedAddress('literal address or metadata host'), null)
      else connect(options, callback)
    },
  })
}

/** Returns a lookup function that fails if any address of the name is not allowed, because Node chooses later to which one it connects. */
function allowedOnly({ lookup, isAllowed }: AgentLimits): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, options, (error, address, family) => {
      const addresses = typeof address === 'string' ? [address] : (address ?? []).map((entry) => entry.address)
      if (error === null && !addresses.every(isAllowed)) callback(new RefusedAddress('resolved address'), address, family)
      else callback(error, address, family)
    })
  }
}
