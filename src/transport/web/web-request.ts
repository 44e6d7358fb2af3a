import { DomainError } from '../../base/errors.ts'

/** A request to a web route. */
export interface WebRequest {
  readonly path: string
  readonly query: URLSearchParams
  /** The variables of the route's path, decoded. A variable that may be empty is then absent. */
  readonly params: Readonly<Partial<Record<string, string>>>
  readonly requestId: string
  /** The client's address, see ClientAddress. */
  readonly remoteAddress: string
  /** Aborts if the client disconnects, and at the deadline that it set. */
  readonly signal: AbortSignal
  /** Returns a header by its lower-case name. */
  header(name: string): string | undefined
  /** Reads the body as text, at most `maxBytes`, by default 8 KiB. Throws code 3 with HTTP 413 above that, and with HTTP 415 for an unknown encoding. */
  text(maxBytes?: number): Promise<string>
}

/** Returns the media type of the body in lower case, without its parameters; empty if the client names none. */
export function mediaType(request: WebRequest): string {
  return (request.header('content-type') ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? ''
}

/** Returns the token of `Authorization: Bearer <token>`; empty for another form. */
export function bearerToken(request: WebRequest): string {
  return /^bearer +(\S+)$/i.exec(request.header('authorization')?.trim() ?? '')?.[1] ?? ''
}

/**
 * Reads the named fields of a form of at most 8 KiB; empty fields are absent. Throws code 3 for another content type, and for a field with two different values:
 * readers would differ in which one counts.
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

/** Returns the value of a cookie. Koa's reader is not used: it keeps a pattern for each name ever asked for, and names of sign-ins come from requests. */
export function cookieOf(request: WebRequest, name: string): string | undefined {
  const pairs = (request.header('cookie') ?? '').split(';').map((pair) => pair.trim().split('='))
  return pairs.find(([key]) => key === name)?.[1]
}

/** A cookie that scripts can not read. */
export interface WebCookie {
  readonly name: string
  readonly value: string
  /** 0 removes the cookie. */
  readonly maxAgeSeconds: number
  readonly sameSite: 'Strict' | 'Lax'
  /** True behind https. */
  readonly secure: boolean
}

/** Returns the `Set-Cookie` header of a cookie for the whole site. */
export function setCookie({ name, value, maxAgeSeconds, sameSite, secure }: WebCookie): string {
  return `${name}=${value}; Path=/; Max-Age=${maxAgeSeconds}; HttpOnly; SameSite=${sameSite}${secure ? '; Secure' : ''}`
}
