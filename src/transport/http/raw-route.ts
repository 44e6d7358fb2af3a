import type { DomainError } from '../../base/errors.ts'

/** A request to a route that is not an API method: discovery, keys, pages. */
export interface RawRequest {
  readonly method: string
  readonly path: string
  readonly query: URLSearchParams
  /** The template's variables, decoded. */
  readonly params: Readonly<Record<string, string>>
  readonly requestId: string
  readonly remoteAddress: string
  readonly signal: AbortSignal
  /** Returns a header by its lower-case name. */
  header(name: string): string | undefined
  /** Reads the body as text, at most `maxBytes`, by default 8 KiB. Throws code 3, HTTP 413, if it is larger. */
  text(maxBytes?: number): Promise<string>
}

/** The answer of a raw route. `Cache-Control: no-store` and `X-Content-Type-Options: nosniff` are sent unless it sets them. */
export interface RawAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | Uint8Array
}

/**
 * A route in addition to the API methods; `path` is a template as in `google.api.http`. A thrown DomainError is answered as for a method, or in the ErrorForm
 * of its path.
 */
export interface RawRoute {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  readonly path: string
  handler(request: RawRequest): Promise<RawAnswer>
}

/** The error format at the path `below` and below it, for a protocol with its own format. Also applies to refusals before a route is found. */
export interface ErrorForm {
  readonly below: string
  answer(error: DomainError): RawAnswer
}
