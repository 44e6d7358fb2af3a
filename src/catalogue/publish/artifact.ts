import { createHash } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { rename, rm, stat } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { digestOf, digestOfHex, type Digest } from '../../base/digest.ts'
import { platformRepository, type Upstream } from '../../registry/index.ts'
import { CatalogueError } from '../../store/sqlite/catalogue-file.ts'
import type { PublishedCatalogue } from './catalogue-record.ts'

const manifestType = 'application/vnd.oci.image.manifest.v1+json'
const artifactType = 'application/vnd.taproot.catalogue.v1'
const emptyType = 'application/vnd.oci.empty.v1+json'
const emptyConfig = Buffer.from('{}')
/** Maximum time in milliseconds to cancel an upload that failed. */
const cancelTimeoutMs = 5_000

/** Returns the digest of a file, read in pieces. */
async function digestOfFile(path: string, signal: AbortSignal): Promise<Digest> {
  const hash = createHash('sha256')
  for await (const piece of createReadStream(path, { signal, highWaterMark: 1024 * 1024 })) hash.update(piece as Buffer) // a stream without encoding
  return digestOfHex('sha256', hash.digest('hex'))
}

async function putBlob(upstream: Upstream, blob: { digest: Digest; body: Readable; length: number }, signal: AbortSignal): Promise<void> {
  const { digest, body, length } = blob
  const { state } = await upstream.startUpload(platformRepository, signal)
  try {
    await upstream.finishUpload(platformRepository, { state, digest, chunk: { body, length } }, signal)
  } catch (error) {
    // Else the upload stays until the upstream collects it.
    await upstream.cancelUpload(platformRepository, state, AbortSignal.timeout(cancelTimeoutMs)).catch(() => undefined)
    throw error
  }
}

/** Stores a catalogue file in the upstream as an OCI artifact. No process opens it before a record names it. Rejects with UpstreamError. */
export async function pushCatalogue(
  upstream: Upstream,
  file: { readonly path: string; readonly mediaType: string; readonly nowMs: number },
  signal: AbortSignal,
): Promise<PublishedCatalogue> {
  const { path, mediaType, nowMs } = file
  const blob = await digestOfFile(path, signal)
  const { size } = await stat(path)
  await putBlob(upstream, { digest: digestOf(emptyConfig), body: Readable.from([emptyConfig]), length: emptyConfig.length }, signal)
  await putBlob(upstream, { digest: blob, body: createReadStream(path), length: size }, signal)
  const bytes = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: manifestType,
      artifactType,
      config: { mediaType: emptyType, digest: digestOf(emptyConfig), size: emptyConfig.length },
      layers: [{ mediaType, digest: blob, size }],
      annotations: { 'org.opencontainers.image.created': new Date(nowMs).toISOString() },
    }),
  )
  const manifest = digestOf(bytes)
  await upstream.putManifest(platformRepository, { digest: manifest, mediaType: manifestType, bytes }, signal)
  return { manifest, blob, size, publishedMs: nowMs }
}

/** Removes a catalogue from the upstream. Does nothing if it is not there. Rejects with UpstreamError. */
export async function deleteCatalogue(upstream: Upstream, { manifest, blob }: PublishedCatalogue, signal: AbortSignal): Promise<void> {
  await upstream.deleteManifest(platformRepository, manifest, signal)
  await upstream.deleteBlob(platformRepository, blob, signal)
}

/** Returns true if the file exists and has the catalogue's bytes. */
async function isWhole(path: string, { blob, size }: PublishedCatalogue, signal: AbortSignal): Promise<boolean> {
  const found = await stat(path).catch(() => undefined)
  return found?.size === size && (await digestOfFile(path, signal)) === blob
}

/** Yields the pieces. Throws CatalogueError as soon as there are more bytes than those of the catalogue: an upstream must not fill the disk. */
async function* atMost(pieces: AsyncIterable<Uint8Array>, { manifest, size }: PublishedCatalogue): AsyncGenerator<Uint8Array, void, undefined> {
  let read = 0
  for await (const piece of pieces) {
    read += piece.length
    if (read > size) throw new CatalogueError(`the upstream sent more bytes than the catalogue ${manifest} has`)
    yield piece
  }
}

/** The file to have, and a name in the same folder that no other process uses. */
export interface WantedFile {
  readonly catalogue: PublishedCatalogue
  readonly path: string
  readonly temporary: string
}

/**
 * Makes `path` the catalogue's file, from the upstream if it is not there. Other processes may do the same. Resolves with false if the upstream does not have
 * it. Rejects with UpstreamError, an error of the file system, or CatalogueError if the bytes are not those that were published.
 */
export async function fetchCatalogue(upstream: Upstream, { catalogue, path, temporary }: WantedFile, signal: AbortSignal): Promise<boolean> {
  if (await isWhole(path, catalogue, signal)) return true
  const stream = await upstream.readBlob(platformRepository, { digest: catalogue.blob }, signal)
  if (stream === undefined) return false
  try {
    await pipeline(stream.body, (pieces: AsyncIterable<Uint8Array>) => atMost(pieces, catalogue), createWriteStream(temporary, { mode: 0o600 }), { signal })
    if (!(await isWhole(temporary, catalogue, signal))) throw new CatalogueError(`the upstream changed the bytes of the catalogue ${catalogue.manifest}`)
    await rename(temporary, path)
    return true
  } finally {
    await rm(temporary, { force: true })
  }
}
