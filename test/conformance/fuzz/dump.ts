import { bytesOf } from './requests/http-draft.ts'
import { frame } from './requests/grpc-draft.ts'
import type { Made } from './requests/make-request.ts'

/** Maximum number of printed bytes of a request: seed and number reproduce all of it. */
const shownBytes = 3000

/** Quotes a text for a shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}

function isPlain(text: string): boolean {
  return /^[\x20-\x7e]*$/.test(text)
}

function hex(bytes: Buffer): string {
  return `${bytes.subarray(0, shownBytes).toString('hex')}${bytes.length > shownBytes ? `... (${bytes.length} bytes)` : ''}`
}

/** Returns the request as a curl command if possible, otherwise its bytes in hex. */
export function dumpOf(made: Made): string {
  if (made.transport === 'grpc') {
    const { path, headers, message, body, connection, ending } = made.draft
    if (connection !== undefined) return `bytes in hex: ${hex(connection.bytes)}`
    return `gRPC ${JSON.stringify(path.slice(0, 500))} ${JSON.stringify(headers).slice(0, 3000)} then ${ending}, body in hex: ${hex(Buffer.concat(body ?? [frame(message)]))}`
  }
  const { draft } = made
  if (draft.wire !== undefined) return `bytes in hex, then ${draft.wire.ending}: ${hex(Buffer.concat(draft.wire.chunks))}`
  const body = draft.body?.toString('utf8') ?? ''
  const parts = [draft.verb, draft.path, ...draft.query, ...draft.headers.flat(), body]
  if (!parts.every(isPlain) || bytesOf(draft).length > shownBytes) return `bytes in hex: ${hex(bytesOf(draft))}`
  const target = `http://localhost:<${draft.port} port>${draft.path}${draft.query.length === 0 ? '' : `?${draft.query.join('&')}`}`
  const headers = draft.headers.map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`).join(' ')
  return `curl --path-as-is -X ${quoted(draft.verb)} ${headers} ${draft.body === undefined ? '' : `--data-binary ${quoted(body)} `}${quoted(target)}`
}
