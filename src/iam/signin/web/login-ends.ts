import type { ExternalSignIn } from '../../../auth/oidc/external-sign-in.ts'
import type { OidcLogin } from '../../../auth/oidc/oidc-client.ts'
import { errorText } from '../../../base/error-text.ts'
import { DomainError } from '../../../base/errors.ts'
import type { Log } from '../../../base/log.ts'
import type { Uid } from '../../../base/uid.ts'
import { fromStore } from '../../../engine/errors.ts'
import type { Services } from '../../../engine/services.ts'
import type { TokenExchange, TokenIssue, RequestedToken } from '../exchange.ts'
import type { LoginEnd } from '../login-state.ts'
import { loginPage } from './login-page.ts'
import { toDomainError } from '../../../transport/errors-details.ts'
import { httpStatusOfCode } from '../../../transport/errors-http.ts'
import type { RawAnswer, RawRequest } from '../../../transport/http/raw-route.ts'

/** What signing in by a browser is made of. */
export interface LoginOptions {
  readonly services: Services
  readonly signIn: ExternalSignIn
  readonly exchange: TokenExchange
  readonly tokenIssue: TokenIssue
  readonly oidc: OidcLogin
  readonly auditLog: Log
  /** The URL under which browsers reach us. */
  readonly baseUrl: string
  /** Counts a request of this address: nobody has signed in yet, and each one asks an identity provider. Throws code 8. Absent where requests are not limited. */
  readonly limit?: (remoteAddress: string) => void
  /** Where browsers may be sent besides loopback addresses, configuration `login.redirects`. */
  readonly redirects: readonly string[]
}

/** Throws what the wishes break, in the words of who asks: `audienceField` is what they call the audience. */
export function assertIssued({ tokenIssue }: Pick<LoginOptions, 'tokenIssue'>, requested: RequestedToken, audienceField: 'audience' | 'client_id'): void {
  try {
    tokenIssue.check(requested)
  } catch (error) {
    const fault = error instanceof DomainError ? error.details.badRequest?.[0] : undefined
    if (fault === undefined) throw error
    throw DomainError.invalid(fault.field === 'aud' ? audienceField : 'scope', fault.description, { cause: error })
  }
}

/** An address of ours for browsers, below the URL under which they reach us. */
export function loginUrl(baseUrl: string, path: string): string {
  return `${baseUrl.replace(/\/$/, '')}${path}`
}

/** The path that an identity provider sends browsers back to: each its own, so that none can have answers of another (mix-up, RFC 9700 4.4). */
export const callbackPath = '/oauth/callback'

/** See callbackPath. */
export function callbackUrl(baseUrl: string, provider: Uid): string {
  return loginUrl(baseUrl, `${callbackPath}/${provider}`)
}

/** Where a form of ours is sent in which a person says that another device's sign-in is theirs. */
export const confirmPath = '/oauth/confirm'

/** Sends the browser back to who asked, with the values in its query replaced (docs/spec/tokens.md#browser-sign-in). */
export function sendBack(redirect: string, values: Readonly<Record<string, string>>): RawAnswer {
  const url = new URL(redirect)
  for (const name of ['token', 'refresh_token', 'error', 'status_code']) url.searchParams.delete(name)
  for (const [name, value] of Object.entries(values)) url.searchParams.set(name, value)
  return { status: 302, headers: { Location: url.href, 'Referrer-Policy': 'no-referrer' }, body: '' }
}

/** Runs a step of a login; a failure goes to who asked, or is shown where nobody waits for this browser; never further. */
export async function toldTo(services: Services, { end, request }: { end: LoginEnd; request: RawRequest }, work: () => Promise<RawAnswer>): Promise<RawAnswer> {
  try {
    return await work()
  } catch (thrown) {
    const { requestId, signal } = request
    const error = toDomainError(fromStore(thrown), { requestId, method: request.path, signal, log: services.log })
    const { code, reason } = error
    if (code !== 13) services.log.info('a login failed', { requestId, code, reason, error: errorText(error) })
    const status = error.httpStatus ?? httpStatusOfCode[code]
    if (end.kind === 'redirect') return sendBack(end.redirect, { error: error.message, status_code: String(status) })
    return loginPage(status, `You are not signed in: ${error.message}`, `Request ${requestId}`)
  }
}
