import type { Code, DomainError } from '../base/errors.ts'
import { withFieldNames } from '../base/schema/field-names.ts'
import type { FieldNaming } from '../base/schema/field-names.ts'
import { errorDetails } from './errors-details.ts'
import type { ErrorContext, ErrorDetail } from './errors-details.ts'

/** The HTTP status of every gRPC code (docs/spec/errors.md#http-statuses). */
export const httpStatusOfCode = {
  1: 500,
  2: 500,
  3: 400,
  4: 504,
  5: 404,
  6: 409,
  7: 403,
  8: 429,
  9: 400,
  10: 409,
  11: 400,
  12: 501,
  13: 500,
  14: 503,
  15: 500,
  16: 401,
} as const satisfies Record<Code, number>

/** The HTTP answer for an error. */
export interface HttpError {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** The error as `{code, message, details}` for a JSON body (docs/spec/errors.md#error-shape). */
  readonly body: { readonly code: Code; readonly message: string; readonly details: readonly Readonly<Record<string, unknown>>[] }
}

/**
 * Returns the HTTP answer for an error. Status 401 has a Bearer challenge. RetryInfo is also sent as `Retry-After` in whole seconds. `naming` converts the
 * names of fields; without it they stay unchanged.
 */
export function httpError(error: DomainError, context: ErrorContext, naming?: FieldNaming): HttpError {
  const status = error.httpStatus ?? httpStatusOfCode[error.code]
  const headers: Record<string, string> = {}
  if (status === 401) headers['WWW-Authenticate'] = 'Bearer'
  const { retryAfterMs } = error.details
  if (retryAfterMs !== undefined) headers['Retry-After'] = String(Math.max(1, Math.ceil(retryAfterMs / 1000)))
  const named = naming === undefined ? error : withFieldNames(error, naming)
  return { status, headers, body: { code: error.code, message: named.message, details: errorDetails(named, context).map(jsonOf) } }
}

function jsonOf(detail: ErrorDetail): Record<string, unknown> {
  const { type, ...fields } = detail
  const typeUrl = { '@type': `type.googleapis.com/google.rpc.${type}` }
  if (detail.type === 'RetryInfo') return { ...typeUrl, retryDelay: `${(detail.retryAfterMs / 1000).toFixed(3)}s` }
  return { ...typeUrl, ...fields }
}
