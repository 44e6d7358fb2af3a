import type { Ports } from '../protocol.ts'

/** A request over HTTP/1.1 that is being made: mutations change it in place. Texts are bytes as latin1, sent as they are. */
export interface HttpDraft {
  readonly port: keyof Ports
  verb: string
  /** From the slash to before the question mark. */
  path: string
  /** `name=value` parts. */
  query: string[]
  headers: [name: string, value: string][]
  body: Buffer | undefined
  /** Set where the bytes are not those that the parts above make. */
  wire: Wire | undefined
}

/** Bytes that may be no request, or several. */
export interface Wire {
  readonly chunks: readonly Buffer[]
  /** What happens once they are sent: our side is closed, or the connection is cut off. */
  readonly ending: 'end' | 'reset'
  /** HEAD where answers have no body. */
  readonly verb: string
}

/** The verbs that are sent with a body when there is none. */
const lengthVerbs: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH'])

/** The head of the request, up to the empty line, without any header that says how long the body is. */
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

/** Sets a header, in place of one of its name. */
export function setHeader(draft: HttpDraft, name: string, value: string): void {
  removeHeader(draft, name)
  draft.headers.push([name, value])
}

export function removeHeader(draft: HttpDraft, name: string): void {
  draft.headers = draft.headers.filter(([other]) => other.toLowerCase() !== name.toLowerCase())
}

/** The values of a header; empty where there is none. */
export function headerValues(draft: HttpDraft, name: string): string[] {
  return draft.headers.filter(([other]) => other.toLowerCase() === name.toLowerCase()).map(([, value]) => value)
}
