import type { Readable } from 'node:stream'
import type { Chunk } from './upstream.ts'

/** The first bytes of a body, and how reading ended. The body ended, exceeded the limit (and was destroyed), or failed. */
type BoundedBytes =
  { readonly kind: 'whole' | 'too_large'; readonly bytes: Buffer } | { readonly kind: 'broken'; readonly bytes: Buffer; readonly cause: unknown }

/** Reads a body into memory, up to `maxBytes` and the rest of the last piece. Never rejects. */
export async function readBounded(body: Readable, maxBytes: number): Promise<BoundedBytes> {
  const pieces: Buffer[] = []
  let size = 0
  try {
    for await (const piece of body as AsyncIterable<Buffer>) {
      pieces.push(piece)
      size += piece.length
      if (size > maxBytes) break
    }
  } catch (cause) {
    return { kind: 'broken', bytes: Buffer.concat(pieces), cause }
  }
  return { kind: size > maxBytes ? 'too_large' : 'whole', bytes: Buffer.concat(pieces) }
}

/** An error of a chunk's body, as distinct from errors of the upstream. */
export class BodyError extends Error {
  override readonly name = 'BodyError'
  readonly reason: unknown
  constructor(reason: unknown) {
    super('the body of a chunk ended early')
    this.reason = reason
  }
}

/** Yields the pieces of a body. Its errors are thrown as BodyError. Destroys the body if the reader stops or the signal aborts. */
export async function* piecesOf(body: Readable, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const onAbort = (): void => void body.destroy(signal.reason as Error) // a cast: destroy accepts any reason
  if (signal.aborted) onAbort()
  signal.addEventListener('abort', onAbort, { once: true })
  const pieces = (body as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]() // a cast: bodies are streams of bytes
  try {
    for (;;) {
      const next = await pieces.next().catch((error: unknown) => {
        throw new BodyError(error)
      })
      if (next.done === true) return
      yield next.value
    }
  } finally {
    signal.removeEventListener('abort', onAbort)
    body.destroy()
  }
}

/** Runs `work`, which consumes a chunk. If it fails, destroys the chunk's body. */
export async function consuming<T>(chunk: Chunk | undefined, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    chunk?.body.destroy()
    throw error
  }
}
