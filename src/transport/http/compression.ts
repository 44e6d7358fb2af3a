import { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { brotliCompress, constants, createBrotliCompress, createGzip, gzip } from 'node:zlib'
import type { Context } from 'koa'

/** A content coding that answers can have, for the headers `Accept-Encoding` and `Content-Encoding`. */
export type Coding = 'br' | 'gzip'

/** The smallest body to compress, in bytes. */
const leastBytes = 1024
/** The most bodies that are compressed at the same time. While there are as many, others are sent as they are. */
const maxRunning = 4
/** The most streams that are compressed at the same time. A slow client holds one for long, so bodies have places of their own. */
const maxStreams = 16
/** Media types of text. HTML is not among them: a page has secrets together with text of others, and its compressed length would tell them. */
const compressible = /^(?:application\/(?:[\w.-]+\+)?json|application\/(?:yaml|x-protobuf)|text\/(?:plain|css|javascript))(?:;|$)/

// Low levels: JSON becomes 5 to 10 times smaller, and higher ones cost more time than they save.
const brotliOptions = { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } }
const gzipOptions = { level: 4 }
const compressors = { br: promisify(brotliCompress), gzip: promisify(gzip) }

/** The codings of bodies that do not change, such as documents. */
const known = new WeakMap<Uint8Array, Partial<Record<Coding, Promise<Buffer>>>>()
let running = 0
let streams = 0

/**
 * Returns the coding for a body of this media type that the client accepts: Brotli before gzip. Undefined for none, for a body below 1 KiB, and for HTML. Adds
 * `Vary` to the answer if the coding depends on the request.
 */
export function codingFor(context: Context, { type, bytes }: { readonly type: string | undefined; readonly bytes: number }): Coding | undefined {
  if (bytes < leastBytes || type === undefined || !compressible.test(type)) return undefined
  context.vary('Accept-Encoding')
  if (context.method === 'HEAD' || context.req.headers['accept-encoding'] === undefined) return undefined
  if (context.acceptsEncodings('br') === 'br') return 'br'
  return context.acceptsEncodings('gzip') === 'gzip' ? 'gzip' : undefined
}

/** Resolves with the compressed body; undefined if too many are compressed already. */
export async function compressed(body: string | Uint8Array | readonly Uint8Array[], coding: Coding): Promise<Buffer | undefined> {
  const made = body instanceof Uint8Array ? (known.get(body) ?? {}) : {}
  if (made[coding] !== undefined) return made[coding]
  if (running >= maxRunning) return undefined
  running++
  try {
    const whole = body instanceof Array ? Buffer.concat(body) : body
    const result = coding === 'br' ? compressors.br(whole, brotliOptions) : compressors.gzip(whole, gzipOptions)
    made[coding] = result
    if (body instanceof Uint8Array) known.set(body, made)
    return await result
  } finally {
    running--
  }
}

/** True if one more stream may be compressed. */
export function hasRoomForStream(): boolean {
  return streams < maxStreams
}

/** Compresses pieces of a body while they are sent. Returning it also closes the pieces. */
export async function* compressedPieces(pieces: AsyncIterable<Uint8Array> | Iterable<Uint8Array>, coding: Coding): AsyncGenerator<Uint8Array, void> {
  const stream = coding === 'br' ? createBrotliCompress(brotliOptions) : createGzip(gzipOptions)
  streams++
  try {
    yield* Readable.from(pieces).compose(stream) as AsyncIterable<Uint8Array> // bytes go in and out
  } finally {
    streams--
  }
}
