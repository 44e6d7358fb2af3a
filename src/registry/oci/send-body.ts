import type { ServerResponse } from 'node:http'
import type { Readable } from 'node:stream'
import { release } from '../release.ts'

/** Resolves when the response takes more, or takes nothing any more. */
async function drained(response: ServerResponse): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  response.once('drain', resolve)
  response.once('close', resolve)
  await promise
  response.off('drain', resolve)
  response.off('close', resolve)
}

/**
 * Sends `body` as fast as the client takes it, and ends the response. What it reads belongs to it: pieces are given back once they are sent. Rejects with the
 * error of the body, or where the client goes away; the body is destroyed then.
 */
export async function sendBody(response: ServerResponse, body: Readable): Promise<void> {
  const stop = (): void => void body.destroy()
  response.once('close', stop)
  try {
    if (response.closed) stop()
    for await (const piece of body as AsyncIterable<Uint8Array>) {
      if (!response.write(piece, () => release(piece))) await drained(response)
    }
    response.end()
  } finally {
    response.off('close', stop)
    body.destroy()
  }
}
