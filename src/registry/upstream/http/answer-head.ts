/** Status and headers of an answer over HTTP/1.1. */
export interface AnswerHead {
  readonly statusCode: number
  /** By name in lower case; those of one name are joined by a comma. */
  readonly headers: Readonly<Record<string, string>>
  /** Bytes of the body; undefined where something else than a plain `Content-Length` says where it ends. */
  readonly length: number | undefined
  /** True where another request may follow on the connection. */
  readonly keepsConnection: boolean
}

const statusLine = /^HTTP\/1\.1 (\d{3})(?: [\t\x20-\x7e\x80-\xff]*)?$/
const headerLine = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t ]*([\t\x20-\x7e\x80-\xff]*?)[\t ]*$/

/**
 * Reads the head of an answer (RFC 9112), without the empty line at its end; undefined where it is not exactly as the standard has it: whoever understands more
 * may ask again.
 */
export function parseAnswerHead(text: string): AnswerHead | undefined {
  const [first = '', ...lines] = text.split('\r\n')
  const status = statusLine.exec(first)?.[1]
  if (status === undefined) return undefined
  const headers: Record<string, string> = Object.create(null) as Record<string, string> // a cast: names are the server's
  for (const line of lines) {
    const [, name, value] = headerLine.exec(line) ?? []
    if (name === undefined || value === undefined) return undefined
    const key = name.toLowerCase()
    headers[key] = key in headers ? `${headers[key]}, ${value}` : value
  }
  return { statusCode: Number(status), headers, length: lengthOf(headers), keepsConnection: !/\bclose\b/i.test(headers['connection'] ?? '') }
}

function lengthOf(headers: Readonly<Record<string, string>>): number | undefined {
  const isPlain = !('transfer-encoding' in headers) && ['', 'identity'].includes(headers['content-encoding'] ?? '')
  const length = headers['content-length'] ?? ''
  return isPlain && /^\d{1,15}$/.test(length) ? Number(length) : undefined
}
