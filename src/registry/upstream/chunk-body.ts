import type { Readable } from 'node:stream'
import type { Chunk } from './upstream.ts'

/** Bytes of a body, and why it has no more. It ended, it exceeded the limit (and was destroyed), or it broke off. */
type BoundedBytes =
  { readonly kind: 'whole' | 'too_large'; readonly bytes: Buffer } | { readonly kind: 'broken'; readonly bytes: Buffer; readonly cause: unknown }

/** Reads a body of which no more than `maxBytes`, and the rest of the last piece, is to be held. Never rejects. */
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

/** A body's pieces; its errors come as BodyError. It is destroyed where the reader stops, or the signal says so. */
export async function* piecesOf(body: Readable, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const onAbort = (): void => void body.destroy(signal.reason as Error) // a cast: destroy passes on what it gets
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

/** Runs `work`, which takes a chunk; where it fails the chunk's body is destroyed. */
export async function consuming<T>(chunk: Chunk | undefined, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    chunk?.body.destroy()
    throw error
  }
}
