import type { DomainError } from '../../../base/errors.ts'
import { httpStatusOfCode } from '../../../transport/errors-http.ts'
import type { RawAnswer } from '../../../transport/http/raw-route.ts'

/** An answer in SCIM's media type. */
export function scimAnswer(status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): RawAnswer {
  return { status, headers: { 'Content-Type': 'application/scim+json', ...headers }, body: JSON.stringify(body) }
}

/** An answer without a body. */
export function emptyAnswer(status: 204 | 304, headers: Readonly<Record<string, string>> = {}): RawAnswer {
  return { status, headers, body: '' }
}

/** Where clients of SCIM read another status than those of the API: a precondition that failed (RFC 7644 3.14), and what passes by itself. */
function statusOf({ code, reason, httpStatus }: DomainError): number {
  if (httpStatus !== undefined) return httpStatus
  if (reason === 'ETAG_MISMATCH') return 412
  if (code === 10 || code === 2) return 503
  return httpStatusOfCode[code]
}

/** An error as RFC 7644 3.12 has it. */
export function scimErrorAnswer(error: DomainError): RawAnswer {
  const status = statusOf(error)
  const scimType = error.code === 6 ? 'uniqueness' : error.details.metadata?.['scimType']
  const allow = error.details.metadata?.['allow']
  const body = {
    schemas: ['urn:ietf:params:scim:api:messages:2.0:Error'],
    status: String(status),
    ...(scimType === undefined ? {} : { scimType }),
    detail: error.message,
  }
  const retryAfterMs = error.details.retryAfterMs ?? (status === 503 ? 1000 : undefined)
  return scimAnswer(status, body, {
    ...(status === 401 ? { 'WWW-Authenticate': 'Bearer' } : {}),
    ...(allow === undefined ? {} : { Allow: allow }),
    ...(retryAfterMs === undefined ? {} : { 'Retry-After': String(Math.max(1, Math.ceil(retryAfterMs / 1000))) }),
  })
}
