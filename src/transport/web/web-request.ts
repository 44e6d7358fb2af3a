import { DomainError } from '../../base/errors.ts'

/** A request to a web route. */
export interface WebRequest {
  readonly path: string
  readonly query: URLSearchParams
  /** The decoded variables of the route's path. A variable that may be empty is then absent. */
  readonly params: Readonly<Partial<Record<string, string>>>
  readonly requestId: string
  /** The address of the client, see ClientAddress. */
  readonly remoteAddress: string
  /** Aborts if the client disconnects, and at the deadline that the client set. */
  readonly signal: AbortSignal
  /** Returns the value of a header by its lower-case name. */
  header(name: string): string | undefined
  /** Returns the media type that the client prefers of these, the first one if it has no preference. Undefined if it accepts none of them. */
  accepts(types: readonly string[]): string | undefined
  /** Reads the body as text, by default at most 8 KiB. Throws code 3 with HTTP 413 if it is larger than `maxBytes`, and with HTTP 415 for an unknown encoding. */
  text(maxBytes?: number): Promise<string>
}

/** Returns the media type of the body in lower case, without its parameters. Empty if the request has none. */
export function mediaType(request: WebRequest): string {
  return (request.header('content-type') ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? ''
}

/** Returns the token in the header `Authorization: Bearer <token>`; empty if the header has another form. */
export function bearerToken(request: WebRequest): string {
  return /^bearer +(\S+)$/i.exec(request.header('authorization')?.trim() ?? '')?.[1] ?? ''
}

/**
 * Reads the named fields of a form of at most 8 KiB. Empty fields are absent in the result. Throws code 3 for another content type, and for a field with two
 * different values, because readers would differ in which one they use.
 */
export async function readFields<Name extends string>(request: WebRequest, names: readonly Name[]): Promise<Readonly<Partial<Record<Name, string>>>> {
  if (mediaType(request) !== 'application/x-www-form-urlencoded') {
    throw DomainError.invalid('body', 'the content type must be application/x-www-form-urlencoded')
  }
  const form = new URLSearchParams(await request.text())
  const fields: Partial<Record<Name, string>> = {}
  for (const name of names) {
    const [value = '', ...others] = new Set(form.getAll(name))
    if (others.length > 0) throw DomainError.invalid(name, 'must occur once')
    if (value !== '') fields[name] = value
  }
  return fields
}

/**
 * Returns the value of a cookie. Koa's own reader is not used, because it keeps a pattern in memory for each name that it ever read. Names of sign-in cookies
 * come from requests.
 */
export function cookieOf(request: WebRequest, name: string): string | undefined {
  const pairs = (request.header('cookie') ?? '').split(';').map((pair) => pair.trim().split('='))
  return pairs.find(([key]) => key === name)?.[1]
}

/** A cookie that scripts cannot read. */
export interface WebCookie {
  readonly name: string
  readonly value: string
  /** Lifetime in seconds. 0 removes the cookie. */
  readonly maxAgeSeconds: number
  readonly sameSite: 'Strict' | 'Lax'
  /** True if the site uses https. */
  readonly secure: boolean
}

/** Returns the value of the `Set-Cookie` header for a cookie of the whole site. */
export function setCookie({ name, value, maxAgeSeconds, sameSite, secure }: WebCookie): string {
  return `${name}=${value}; Path=/; Max-Age=${maxAgeSeconds}; HttpOnly; SameSite=${sameSite}${secure ? '; Secure' : ''}`
}
