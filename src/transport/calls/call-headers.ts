/** The headers of a call. They have the same names in HTTP and in gRPC metadata. */
export interface CallHeaders {
  /** The client's `x-request-id` if it is 1 to 128 characters of [A-Za-z0-9._:/=+-], otherwise a new uuid. */
  readonly requestId: string
  /** The W3C trace context, if the client sent a valid one. */
  readonly traceparent?: string
  /** The unparsed value of the header `authorization`. */
  readonly authorization?: string
  /** Value of `taproot-identity`: the uid of the identity that the caller assumes with an external token. */
  readonly identity?: string
  readonly ifMatch?: string
  readonly ifNoneMatch?: string
  readonly idempotencyKey?: string
  /** Value of `force-ownership`. If true, the call takes the record from the Kubernetes object that owns it. */
  readonly forceOwnership?: string
  readonly userAgent?: string
}

const requestIdPattern = /^[A-Za-z0-9._:/=+-]{1,128}$/
const traceparentPattern = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/
const entityTagPattern = /^(?:W\/)?"([^"]*)"$/

type HeaderReader = (text: string) => string | undefined

const asIs: HeaderReader = (text) => text
const traceparent: HeaderReader = (text) => (traceparentPattern.test(text) ? text : undefined)
const entityTag = (text: string): string => entityTagPattern.exec(text.trim())?.[1] ?? text.trim()
const entityTags: HeaderReader = (text) => text.split(',').map(entityTag).join(',')

const readers = [
  ['authorization', 'authorization', asIs],
  ['identity', 'taproot-identity', asIs],
  ['ifMatch', 'if-match', entityTags],
  ['ifNoneMatch', 'if-none-match', entityTags],
  ['idempotencyKey', 'idempotency-key', asIs],
  ['forceOwnership', 'force-ownership', asIs],
  ['traceparent', 'traceparent', traceparent],
  ['userAgent', 'user-agent', asIs],
] as const satisfies readonly (readonly [keyof CallHeaders, string, HeaderReader])[]

/**
 * Reads a call's headers with `get`, which takes lower-case names. Removes the quotes and weakness marks of entity tags; `*` and commas between them stay.
 * Ignores a malformed `traceparent`. Replaces a request id by `newRequestId()` unless it is 1 to 128 characters of [A-Za-z0-9._:/=+-].
 */
export function parseCallHeaders(get: (name: string) => string | undefined, newRequestId: () => string): CallHeaders {
  const given = get('x-request-id')
  const headers: { -readonly [Key in keyof CallHeaders]: CallHeaders[Key] } = {
    requestId: given !== undefined && requestIdPattern.test(given) ? given : newRequestId(),
  }
  for (const [key, name, read] of readers) {
    const text = get(name)
    const value = text === undefined || text === '' ? undefined : read(text)
    if (value !== undefined && value !== '') headers[key] = value
  }
  return headers
}
