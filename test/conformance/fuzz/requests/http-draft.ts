import type { Ports } from '../protocol.ts'

/** An HTTP/1.1 request under construction. Mutations change it in place. Texts are bytes as latin1, sent unchanged. */
export interface HttpDraft {
  readonly port: keyof Ports
  verb: string
  /** From the slash to before the question mark. */
  path: string
  /** `name=value` parts. */
  query: string[]
  headers: [name: string, value: string][]
  body: Buffer | undefined
  /** Bytes that replace those of the parts above. */
  wire: Wire | undefined
}

/** Bytes that may be no request, or several. */
export interface Wire {
  readonly chunks: readonly Buffer[]
  /** The action after they are sent: the client half-closes, or resets the connection. */
  readonly ending: 'end' | 'reset'
  /** HEAD if answers have no body. */
  readonly verb: string
}

/** Verbs that are sent with an explicit length even without a body. */
const lengthVerbs: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH'])

/** Returns the head of the request up to the empty line, without headers about the length of the body. */
export function headOf(draft: HttpDraft, more: readonly string[] = []): Buffer {
  const target = draft.query.length === 0 ? draft.path : `${draft.path}?${draft.query.join('&')}`
  const lines = [`${draft.verb} ${target} HTTP/1.1`, ...draft.headers.map(([name, value]) => `${name}: ${value}`), ...more]
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1')
}

/** The whole request, with the length of its body. */
export function bytesOf(draft: HttpDraft): Buffer {
  const length = draft.body?.length ?? (lengthVerbs.has(draft.verb) ? 0 : undefined)
  return Buffer.concat([headOf(draft, length === undefined ? [] : [`Content-Length: ${length}`]), draft.body ?? Buffer.alloc(0)])
}

/** Sets a header, and replaces one of the same name. */
export function setHeader(draft: HttpDraft, name: string, value: string): void {
  removeHeader(draft, name)
  draft.headers.push([name, value])
}

export function removeHeader(draft: HttpDraft, name: string): void {
  draft.headers = draft.headers.filter(([other]) => other.toLowerCase() !== name.toLowerCase())
}

/** Returns the values of a header, or an empty list. */
export function headerValues(draft: HttpDraft, name: string): string[] {
  return draft.headers.filter(([other]) => other.toLowerCase() === name.toLowerCase()).map(([, value]) => value)
}
