import type { DomainError } from '../../base/errors.ts'
import { platformDomain } from '../errors-details.ts'
import { httpError } from '../errors-http.ts'
import type { HttpAnswer } from '../http/http-context.ts'

/** The format of the errors on a path. */
export type ErrorForm = (error: DomainError, requestId: string) => HttpAnswer

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

/** Sends the browser on. 303 follows a form with a GET. The next site does not learn the address of this one, which may contain secrets. */
export function redirect(status: 302 | 303, location: string, headers: Headers = {}): HttpAnswer {
  return { status, headers: { Location: location, 'Referrer-Policy': 'no-referrer', ...headers }, body: '' }
}

/** Returns an error as the API does: `{code, message, details}`, after the members of `first`. */
export function errorAnswer(error: DomainError, requestId: string, first: object = {}): HttpAnswer {
  const { status, headers, body } = httpError(error, { requestId, domain: platformDomain })
  return jsonAnswer(status, { ...first, ...body }, headers)
}
