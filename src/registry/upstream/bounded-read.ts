import type { Readable } from 'node:stream'

/** Bytes of a body, and why there are no more of them: it ended, it has more than was wanted (and was destroyed), or it broke off. */
export type BoundedBytes =
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
