/** One received answer. */
export interface HttpAnswer {
  readonly status: number
  /** Lower-case names. Repeated headers are joined by a comma. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: Buffer
}

/** Bytes that are not an HTTP/1.1 answer. */
export class MalformedAnswer extends Error {
  override readonly name = 'MalformedAnswer'
}

interface Read {
  readonly answer: HttpAnswer
  readonly rest: Buffer
}

const emptyLine = Buffer.from('\r\n\r\n')

/**
 * Parses the first answer and skips interim ones. Returns undefined if it is incomplete. `verb` is that of the request; `ended` says that no more bytes
 * follow. Throws MalformedAnswer.
 */
export function readAnswer(bytes: Buffer, verb: string, ended: boolean): Read | undefined {
  const end = bytes.indexOf(emptyLine)
  if (end < 0) return undefined
  const [statusLine = '', ...lines] = bytes.subarray(0, end).toString('latin1').split('\r\n')
  const match = /^HTTP\/1\.1 (\d{3}) /.exec(`${statusLine} `)
  if (match === null) throw new MalformedAnswer(`an answer begins with ${JSON.stringify(statusLine.slice(0, 100))}`)
  const status = Number(match[1])
  const rest = bytes.subarray(end + emptyLine.length)
  if (status < 200) return readAnswer(rest, verb, ended)
  const headers = headersOf(lines)
  const body = readBody({ status, headers, verb, ended }, rest)
  return body === undefined ? undefined : { answer: { status, headers, body: body.body }, rest: body.rest }
}

function headersOf(lines: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {}
  for (const line of lines) {
    const colon = line.indexOf(':')
    if (colon < 1) throw new MalformedAnswer(`a header is ${JSON.stringify(line.slice(0, 100))}`)
    const name = line.slice(0, colon).toLowerCase()
    const value = line.slice(colon + 1).trim()
    const earlier = headers[name]
    headers[name] = earlier === undefined ? value : `${earlier}, ${value}`
  }
  return headers
}

interface Head {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly verb: string
  readonly ended: boolean
}

type Body = { readonly body: Buffer; readonly rest: Buffer } | undefined

function readBody({ status, headers, verb, ended }: Head, bytes: Buffer): Body {
  // The answer to an unreadable request has a body, whatever the verb, and closes the connection.
  const isUnreadable = headers['connection'] === 'close' && bytes.length === Number(headers['content-length'])
  if ((verb === 'HEAD' && !isUnreadable) || status === 204 || status === 304) return { body: Buffer.alloc(0), rest: bytes }
  if (headers['transfer-encoding'] === 'chunked') return readChunks(bytes)
  const length = headers['content-length']
  if (length === undefined) return ended ? { body: bytes, rest: Buffer.alloc(0) } : undefined
  if (!/^\d+$/.test(length)) throw new MalformedAnswer(`the length is ${length}`)
  return bytes.length < Number(length) ? undefined : { body: bytes.subarray(0, Number(length)), rest: bytes.subarray(Number(length)) }
}

function readChunks(bytes: Buffer): Body {
  const parts: Buffer[] = []
  let at = 0
  for (;;) {
    const lineEnd = bytes.indexOf('\r\n', at)
    if (lineEnd < 0) return undefined
    const size = Number.parseInt(bytes.subarray(at, lineEnd).toString('latin1'), 16)
    if (Number.isNaN(size)) throw new MalformedAnswer('a chunk has no size')
    const start = lineEnd + 2
    if (bytes.length < start + size + 2) return undefined
    // The server sends no trailers.
    if (size === 0) return { body: Buffer.concat(parts), rest: bytes.subarray(start + 2) }
    parts.push(bytes.subarray(start, start + size))
    at = start + size + 2
  }
}
