import { isHeadlessCode } from '../headless-session.ts'
import type { LoginEnd, RequestedLogin } from '../login-state.ts'
import { DomainError } from '../../../base/errors.ts'
import type { Random } from '../../../base/runtime.ts'
import { isUid, type Uid } from '../../../base/uid.ts'
import { userCodeOf } from '../pending-logins.ts'

/** The parameters of `GET /oauth` (docs/spec/tokens.md#browser-sign-in). */
export interface LoginRequest {
  /** The requested token and its target, which is valid. */
  readonly requested: RequestedLogin
  /** Uid of an identity provider, or the name of a verified organisation that has one. */
  readonly provider: { readonly uid: Uid } | { readonly organization: string }
  /** Throws code 3 if another parameter is invalid. The client gets this error by redirect. */
  assertValid(): void
}

const maxRedirectLength = 1024
const maxValueLength = 4096

/** Returns true if tokens may be sent to this URL: a loopback address, or a configured URL with any query. */
function isAllowed(url: URL, redirects: readonly string[]): boolean {
  if (url.username !== '' || url.password !== '' || url.hash !== '') return false
  if (url.protocol === 'http:' && ['localhost', '127.0.0.1', '[::1]'].includes(url.hostname)) return true
  return redirects.some((allowed) => {
    const other = new URL(allowed)
    return other.origin === url.origin && other.pathname === url.pathname
  })
}

/** Options that decide which targets are valid. */
export interface LoginEndOptions {
  /** Redirect targets in addition to loopback addresses. */
  readonly redirects: readonly string[]
  readonly random: Random
}

/** Parsers by name of the parameter that selects the target of the tokens. They return undefined for an invalid value. */
const ends: Readonly<Record<string, (text: string, options: LoginEndOptions) => LoginEnd | undefined>> = {
  redirect(text, { redirects }) {
    const url = text.length > maxRedirectLength ? null : URL.parse(text)
    return url !== null && isAllowed(url, redirects) ? { kind: 'redirect', redirect: url.href } : undefined
  },
  headless_code: (code, { random }) => (isHeadlessCode(code, random) ? { kind: 'headless', code } : undefined),
  user_code(text) {
    const userCode = userCodeOf(text)
    return userCode === undefined ? undefined : { kind: 'device', userCode }
  },
}

const errors: Readonly<Record<string, string>> = {
  redirect: 'must be an address on this machine (http://localhost:<port>/...), or one of the setting login.redirects',
  headless_code: 'must be an X25519 public key, in base64url without padding',
  user_code: 'must be the code that a device shows',
}

function endOf(query: URLSearchParams, options: LoginEndOptions): LoginEnd | DomainError {
  const named = Object.keys(ends).filter((name) => (query.get(name) ?? '') !== '')
  const [name = 'redirect'] = named
  if (named.length > 1) return DomainError.invalid(named[1] ?? '', `cannot be combined with ${name}`)
  return ends[name]?.(query.get(name) ?? '', options) ?? DomainError.invalid(name, errors[name] ?? '')
}

/** Returns true for `true` and `1`. */
function isTrue(text: string | null): boolean {
  return text === 'true' || text === '1'
}

/** Returns the values of a comma-separated list. */
export function listedIn(list: string): string[] {
  return list
    .split(',')
    .map((text) => text.trim())
    .filter((text) => text !== '')
}

/** Returns the values of a parameter that is comma-separated, repeated, or both. */
function listOf(query: URLSearchParams, name: string): string[] {
  return query.getAll(name).flatMap(listedIn)
}

function assertKnown(query: URLSearchParams): void {
  if ((query.get('client_id') ?? '') !== '') throw DomainError.invalid('client_id', 'is not used on this platform: name an identity provider with idp_id')
  if ((query.get('idp_id') ?? '') === '') throw DomainError.invalid('idp_id', 'is required: the uid of an identity provider, or the name of an organisation')
  if (!['', 'redirect'].includes(query.get('exit') ?? '')) throw DomainError.invalid('exit', 'must be redirect')
  for (const [name, value] of query) if (value.length > maxValueLength) throw DomainError.invalid(name, `must be at most ${maxValueLength} characters`)
}

/** Parses the query. Returns an error if the target is invalid, since then the error cannot be sent to the client. */
export function loginRequest(query: URLSearchParams, options: LoginEndOptions): LoginRequest | DomainError {
  const end = endOf(query, options)
  if (end instanceof DomainError) return end
  const named = query.get('idp_id') ?? ''
  return {
    requested: {
      end,
      identity: query.get('identity') ?? '',
      audiences: listOf(query, 'audience'),
      scopes: listOf(query, 'scope'),
      refresh: isTrue(query.get('create_refresh_token')),
      invite: query.get('invite') ?? '',
      register: !isTrue(query.get('skip_registration')),
    },
    provider: isUid(named) ? { uid: named } : { organization: named },
    assertValid: () => assertKnown(query),
  }
}
