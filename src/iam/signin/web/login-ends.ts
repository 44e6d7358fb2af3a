import type { ExternalSignIn } from '../../../auth/oidc/external-sign-in.ts'
import type { OidcLogin } from '../../../auth/oidc/oidc-client.ts'
import { errorText } from '../../../base/error-text.ts'
import { DomainError } from '../../../base/errors.ts'
import type { AuditTrail } from '../../../base/audit-line.ts'
import type { Uid } from '../../../base/uid.ts'
import { fromStore } from '../../../engine/errors.ts'
import type { Services } from '../../../engine/services.ts'
import type { TokenExchange, TokenIssue, RequestedToken } from '../exchange.ts'
import type { LoginEnd } from '../login-state.ts'
import { messagePage } from './login-pages.js'
import { toDomainError } from '../../../transport/errors-details.ts'
import { httpStatusOfCode } from '../../../transport/errors-http.ts'
import type { HttpAnswer } from '../../../transport/http/http-context.ts'
import { errorAnswer, redirect, type ErrorForm } from '../../../transport/web/web-answers.ts'
import type { WebRequest } from '../../../transport/web/web-request.ts'
import type { WebRoute } from '../../../transport/web/web-routes.ts'

/** The dependencies and options of browser sign-in. */
export interface LoginOptions {
  readonly services: Services
  readonly signIn: ExternalSignIn
  readonly exchange: TokenExchange
  readonly tokenIssue: TokenIssue
  readonly oidc: OidcLogin
  readonly auditLog: AuditTrail
  /** The public URL of this platform for browsers. */
  readonly baseUrl: string
  /**
   * Rate limit for anonymous requests of an address, most of which cause a request to an identity provider. Absent if requests are not
   * limited.
   */
  readonly limit?: WebRoute['limit']
  /** Allowed redirect targets in addition to loopback addresses: configuration `login.redirects`. */
  readonly redirects: readonly string[]
}

/** Throws code 3 if the requested token may not be issued. `audienceField` is the name of the audience parameter, for errors. */
export function assertIssued({ tokenIssue }: Pick<LoginOptions, 'tokenIssue'>, requested: RequestedToken, audienceField: 'audience' | 'client_id'): void {
  try {
    tokenIssue.check(requested)
  } catch (error) {
    const violation = error instanceof DomainError ? error.details.badRequest?.[0] : undefined
    if (violation === undefined) throw error
    throw DomainError.invalid(violation.field === 'aud' ? audienceField : 'scope', violation.description, { cause: error })
  }
}

/** Returns the public URL of a path of this platform. */
export function loginUrl(baseUrl: string, path: string): string {
  return `${baseUrl.replace(/\/$/, '')}${path}`
}

/**
 * The path to which identity providers redirect browsers. Each provider has its own path below it, so that none receives responses of
 * another (mix-up, RFC 9700, 4.4).
 */
export const callbackPath = '/oauth/callback'

/** Returns the URL to which an identity provider redirects browsers. */
export function callbackUrl(baseUrl: string, provider: Uid): string {
  return loginUrl(baseUrl, `${callbackPath}/${provider}`)
}

/** The path to which the form is posted that confirms the sign-in of another device. */
export const confirmPath = '/oauth/confirm'

/** Redirects the browser to the client, with the values in the query (docs/spec/tokens.md#browser-sign-in). */
export function sendBack(target: string, values: Readonly<Record<string, string>>): HttpAnswer {
  const url = new URL(target)
  for (const name of ['token', 'refresh_token', 'error', 'status_code']) url.searchParams.delete(name)
  for (const [name, value] of Object.entries(values)) url.searchParams.set(name, value)
  return redirect(302, url.href)
}

/** Shows errors as pages to clients that accept HTML, as browsers do. Other clients get the errors of the API. */
export const pageErrors: ErrorForm = (error, requestId, accept = '') => {
  const answer = errorAnswer(error, requestId)
  if (!/\btext\/html\b/i.test(accept)) return answer
  const page = messagePage(answer.status, `You are not signed in: ${error.message}`, `Request ${requestId}`)
  return { ...page, headers: { ...answer.headers, ...page.headers } }
}

/** Runs a step of a sign-in. If it fails, redirects with the error to the client, or shows a page if no client waits for this browser. */
export async function answerFailure(
  services: Services,
  { end, request }: { end: LoginEnd; request: WebRequest },
  work: () => Promise<HttpAnswer>,
): Promise<HttpAnswer> {
  try {
    return await work()
  } catch (thrown) {
    const { requestId, signal } = request
    const error = toDomainError(fromStore(thrown), { requestId, method: request.path, signal, log: services.log })
    const { code, reason } = error
    if (code !== 13) services.log.info('a sign-in failed', { requestId, code, reason, error: errorText(error) })
    const status = error.httpStatus ?? httpStatusOfCode[code]
    if (end.kind === 'redirect') return sendBack(end.redirect, { error: error.message, status_code: String(status) })
    return messagePage(status, `You are not signed in: ${error.message}`, `Request ${requestId}`)
  }
}
