import type { ServerResponse } from 'node:http'
import type { Readable } from 'node:stream'
import { release } from '../release.ts'

/**
 * Sends `body` as fast as the client takes it, and ends the response. What it reads belongs to it: pieces are given back once they are sent. Rejects with the
 * error of the body, or where the client goes away; the body is destroyed then.
 */
export async function sendBody(response: ServerResponse, body: Readable): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const onDrain = (): void => void body.resume()
  const onGone = (): void => {
    body.destroy()
    reject(new Error('the client went away'))
  }
  body.on('end', resolve)
  body.on('error', reject)
  body.on('close', () => reject(body.errored ?? new Error('the body was destroyed before its end')))
  response.on('drain', onDrain)
  response.on('close', onGone)
  if (response.closed) onGone()
  else if (body.closed) reject(body.errored ?? new Error('the body was destroyed before its end'))
  body.on('data', (piece: Uint8Array) => {
    if (response.destroyed) body.destroy()
    else if (!response.write(piece, () => release(piece))) body.pause()
  })
  try {
    await promise
    response.end()
  } finally {
    response.off('drain', onDrain)
    response.off('close', onGone)
    body.destroy()
  }
}
