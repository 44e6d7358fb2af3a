import type { DomainError } from '../../base/errors.ts'
import { platformDomain } from '../errors-details.ts'
import { httpError } from '../errors-http.ts'
import type { HttpAnswer } from '../http/http-context.ts'

/** The format of the errors on a path. `accept` is the header `Accept` of the request. */
export type ErrorForm = (error: DomainError, requestId: string, accept: string | undefined) => HttpAnswer

type Headers = Readonly<Record<string, string>>

/** Returns an answer in JSON. `headers` may name another media type. */
export function jsonAnswer(status: number, body: unknown, headers: Headers = {}): HttpAnswer {
  return { status, headers: { 'Content-Type': 'application/json', ...headers }, body: JSON.stringify(body) }
}

/** Returns an answer in plain text. */
export function textAnswer(status: number, body: string, headers: Headers = {}): HttpAnswer {
  return { status, headers: { 'Content-Type': 'text/plain; charset=utf-8', ...headers }, body }
}

/** Returns an answer without a body. */
export function emptyAnswer(status: 200 | 204 | 304, headers: Headers = {}): HttpAnswer {
  return { status, headers, body: '' }
}

/**
 * Returns a redirect. Status 303 follows a form with a GET. The header `Referrer-Policy` hides the current address, which may contain secrets, from the next
 * site.
 */
export function redirect(status: 302 | 303, location: string, headers: Headers = {}): HttpAnswer {
  return { status, headers: { Location: location, 'Referrer-Policy': 'no-referrer', ...headers }, body: '' }
}

/** Returns an error in the format of the API, `{code, message, details}`. The members of `first` come before these. */
export function errorAnswer(error: DomainError, requestId: string, first: object = {}): HttpAnswer {
  const { status, headers, body } = httpError(error, { requestId, domain: platformDomain })
  return jsonAnswer(status, { ...first, ...body }, headers)
}
