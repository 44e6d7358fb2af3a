import type { ServerResponse } from 'node:http'
import type { Readable } from 'node:stream'
import type { Digest } from '../../../base/digest.ts'
import { errorText } from '../../../base/error-text.ts'
import { DomainError } from '../../../base/errors.ts'
import { untilAborted } from '../../../base/timing.ts'
import { removeBlob } from '../../gc/blob-removal.ts'
import type { SizedBlob, AcquiredBlob } from './blob-cache.ts'
import { parseRange, type RangeRequest } from './byte-range.ts'
import { contentHeaders, type RegistryExchange, type HeaderLines } from '../exchange.ts'
import { isUnchanged } from '../manifests/manifest-routes.ts'
import { enterRepo, type BlobSource, type OciHost } from '../oci-host.ts'
import type { OciPath } from '../oci-path.ts'
import { reportPull } from '../reports.ts'
import { heldBlob, touchBlob } from '../../records/blobs.ts'
import { RegistryError } from '../../registry-error.ts'
import { release } from '../../release.ts'
import type { BlobStream, ByteRange } from '../../upstream/upstream.ts'

/**
 * Sends `body` as fast as the client reads it, and ends the response. Takes ownership of the pieces of `body`, and releases their memory
 * once they are sent. If the body fails or the client disconnects, rejects with that error and destroys the body.
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
  body.on('close', () => reject(body.errored ?? new Error('the body was closed before its end')))
  response.on('drain', onDrain)
  response.on('close', onGone)
  if (response.closed) onGone()
  else if (body.closed) reject(body.errored ?? new Error('the body was closed before its end'))
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

/** Number of bytes of a cached blob to send at a time. */
const cachedPieceBytes = 1024 * 1024

/**
 * Sends these bytes of a cached blob as fast as they arrive and the client reads them. Resolves once the sent bytes have left the memory.
 * If the memory is needed for something else, resolves with the position of the first byte that was not sent. If all was sent, ends the
 * response and resolves with undefined. Rejects with the error of the blob, or with the signal's reason if the client disconnected.
 */
async function sendCachedBlob(
  response: ServerResponse,
  { blob, isEvicted }: AcquiredBlob,
  { first, last, signal }: ByteRange & { readonly signal: AbortSignal },
): Promise<number | undefined> {
  for (let at = first; at <= last;) {
    if (isEvicted()) return at
    const piece = await blob.bytes(at, Math.min(at + cachedPieceBytes, last + 1), signal)
    at += piece.length
    if (!response.write(piece)) await untilAborted(new Promise<void>((resolve) => void response.once('drain', resolve)), signal)
  }
  await untilAborted(new Promise<void>((resolve) => void response.end(resolve)), signal)
  return undefined
}

type BlobPath = Extract<OciPath, { kind: 'blob' }>

function unknownBlob(): RegistryError {
  return new RegistryError('BLOB_UNKNOWN', 'there is no such blob')
}

function neededBlob(digest: string): RegistryError {
  return new RegistryError('UNSUPPORTED', `the manifest ${digest} needs the blob: delete that manifest first`, {
    headers: { Allow: 'GET, HEAD' },
    detail: { digest },
  })
}

/** Handles GET and HEAD of a blob, or of one range of it. */
export async function getBlob(host: OciHost, exchange: RegistryExchange, path: BlobPath): Promise<void> {
  const { repository, digest } = path
  const { entry, repo } = await enterRepo(host, exchange, { repository, action: 'pull', content: digest })
  const held = await heldBlob(host.services, { repo, digest }, exchange.signal)
  if (held === undefined) throw unknownBlob()
  const isHead = exchange.request.method === 'HEAD'
  // A client that may push skips the upload of a blob that it finds here. So the blob must stay.
  if (isHead && entry.may('push') && !(await touchBlob(host.services, { repo, digest }, exchange.signal))) throw unknownBlob()
  const size = Number(held.size)
  const etag = `"${digest}"`
  const common = ['Docker-Content-Digest', digest, 'ETag', etag, 'Accept-Ranges', 'bytes', ...contentHeaders]
  if (isUnchanged(exchange.header('if-none-match'), etag)) {
    exchange.send(304, common)
    return
  }
  const wanted = isHead ? whole : rangeOf(exchange, size, etag)
  if (wanted.kind === 'unsatisfiable') throw unsatisfiable(size)
  const headers: HeaderLines = [...common, 'Content-Type', 'application/octet-stream', ...extentOf(wanted, size)]
  if (isHead) {
    exchange.send(200, headers)
    return
  }
  const pulled = (source: BlobSource): void => {
    host.observeBlob?.(source)
    reportPull(host, exchange, { entry, repo, digest, type: 'blob', method: 'GET' })
  }
  const upstreamDigest = held.upstreamDigest as Digest // a cast: the record holds nothing else
  const location = await host.upstream.locateBlob(repo, upstreamDigest, exchange.signal)
  if (location !== undefined) {
    pulled('redirect')
    // The client sends its `Range` header to the storage itself. The URL is a credential.
    exchange.send(307, ['Docker-Content-Digest', digest, 'Location', location, 'Content-Length', 0, 'Cache-Control', 'no-store'])
    return
  }
  const range = wanted.kind === 'part' ? wanted.range : undefined
  const name = { repo, digest: upstreamDigest, size }
  const begin = (source: BlobSource): void => {
    pulled(source)
    exchange.open(range === undefined ? 200 : 206, headers)
  }
  const acquired = host.blobs.acquire(name, range)
  if (acquired === undefined) {
    const { body } = await readBlob(host, { ...name, range }, exchange.signal)
    begin('upstream')
    await sendBlob(host, exchange, sendBody(exchange.response, body))
  } else await sendAcquired(host, exchange, { name, acquired, range: range ?? { first: 0, last: size - 1 }, begin })
}

/** A cached blob, and what to send of it. */
interface AcquiredSend {
  readonly name: SizedBlob
  readonly acquired: AcquiredBlob
  readonly range: ByteRange
  /** Sends the status and headers. */
  readonly begin: (source: BlobSource) => void
}

async function sendAcquired(host: OciHost, exchange: RegistryExchange, { name, acquired, range, begin }: AcquiredSend): Promise<void> {
  const { response, signal } = exchange
  const send = async (): Promise<void> => {
    const next = await sendCachedBlob(response, acquired, { ...range, signal })
    if (next === undefined) return
    acquired.release()
    const { body } = await readBlob(host, { ...name, range: { first: next, last: range.last } }, signal)
    await sendBody(response, body)
  }
  try {
    // If the range has no bytes, reports a failed read by the status.
    await acquired.blob.bytes(range.first, range.last + 1, signal)
    begin('memory')
    await sendBlob(host, exchange, send())
  } finally {
    acquired.release()
  }
}

const whole: RangeRequest = { kind: 'whole' }

/** Parses `Range`. Ignored if `If-Range` does not match the ETag of the blob (RFC 9110, 13.1.5). */
function rangeOf(exchange: RegistryExchange, size: number, etag: string): RangeRequest {
  const condition = exchange.header('if-range')
  return condition === undefined || condition === etag ? parseRange(exchange.header('range'), size) : whole
}

function extentOf(wanted: RangeRequest, size: number): HeaderLines {
  if (wanted.kind !== 'part') return ['Content-Length', size]
  const { first, last } = wanted.range
  return ['Content-Length', last - first + 1, 'Content-Range', `bytes ${first}-${last}/${size}`]
}

function unsatisfiable(size: number): RegistryError {
  return new RegistryError('SIZE_INVALID', 'the range is outside the blob', { status: 416, headers: { 'Content-Range': `bytes */${size}` } })
}

/**
 * Starts to read a blob that a repo holds, or a range of it. Rejects with RegistryError if the upstream lacks it, with UpstreamError, or
 * with the signal's reason.
 */
export async function readBlob(
  { upstream, services }: Pick<OciHost, 'upstream' | 'services'>,
  { repo, digest, size, range }: SizedBlob & { readonly range?: ByteRange | undefined },
  signal: AbortSignal,
): Promise<BlobStream> {
  const stream = await upstream.readBlob(repo, { digest, ...(range && { range }) }, signal)
  if (stream === undefined || stream.size !== size) {
    stream?.body.destroy()
    services.log.error('the upstream lacks a blob that a repo holds', { repo, digest, size, found: stream?.size })
    throw unknownBlob()
  }
  return stream
}

/** Waits until all bytes are sent or the client disconnects. Does not reject; failures are logged. */
async function sendBlob(host: OciHost, { response, signal, requestId }: RegistryExchange, sending: Promise<void>): Promise<void> {
  try {
    await sending
  } catch (error) {
    // The status is already sent, so a failure can only end the connection.
    if (!signal.aborted) host.services.log.warn('a blob was not sent completely', { requestId, error: errorText(error) })
    response.destroy()
  }
}

/** Handles DELETE of a blob: removes it from the repo. Refused if a manifest needs the blob, since pulls of that manifest would fail. */
export async function deleteBlob(host: OciHost, exchange: RegistryExchange, path: BlobPath): Promise<void> {
  const { repository, digest } = path
  const { repo } = await enterRepo(host, exchange, { repository, action: 'delete' })
  try {
    const needing = await removeBlob(host.services, { repo, digest }, exchange.signal)
    if (needing !== undefined) throw neededBlob(needing)
  } catch (error) {
    if (error instanceof DomainError && error.code === 5) throw unknownBlob()
    throw error
  }
  exchange.send(202, ['Content-Length', 0])
}
