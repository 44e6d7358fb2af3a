import type { ServerResponse } from 'node:http'
import type { Readable } from 'node:stream'
import { untilAborted } from '../../../base/until-aborted.ts'
import { release } from '../../release.ts'
import type { ByteRange } from '../../upstream/upstream.ts'
import type { LentBlob } from './blob-cache.ts'

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

/** Bytes of a blob in memory that are sent at a time. */
const hotPieceBytes = 1024 * 1024

/**
 * Sends these bytes of a blob in memory as fast as the client takes them and they come. Resolves once what it sent has left the memory: with the first byte that it
 * did not send, since the memory is wanted for something else; or with undefined, the response ended, where it sent all. Rejects with what broke the blob, or with the
 * reason of the signal, which says that the client went away.
 */
export async function sendHotBlob(
  response: ServerResponse,
  { blob, isRecalled }: LentBlob,
  { first, last, signal }: ByteRange & { readonly signal: AbortSignal },
): Promise<number | undefined> {
  for (let at = first; at <= last;) {
    if (isRecalled()) return at
    const piece = await blob.bytes(at, Math.min(at + hotPieceBytes, last + 1), signal)
    at += piece.length
    if (!response.write(piece)) await untilAborted(new Promise<void>((resolve) => void response.once('drain', resolve)), signal)
  }
  await untilAborted(new Promise<void>((resolve) => void response.end(resolve)), signal)
  return undefined
}
