import { randomBytes, randomUUID } from 'node:crypto'
import { Readable } from 'node:stream'
import { digestOf, type Digest, type DigestAlgorithm } from '../../../src/base/digest.ts'
import { trustedUid, type Uid } from '../../../src/base/uid.ts'
import { UpstreamError, type ManifestBytes, type Upstream } from '../../../src/registry/upstream/upstream.ts'

export const imageType = 'application/vnd.oci.image.manifest.v1+json'
export const indexType = 'application/vnd.oci.image.index.v1+json'
const configType = 'application/vnd.oci.image.config.v1+json'
const layerType = 'application/vnd.oci.image.layer.v1.tar+gzip'

/** A signal that never aborts. */
export const never = new AbortController().signal

/** The uid of an unused repo. */
export function freshRepo(): Uid {
  const segment = (): string => randomBytes(8).toString('hex')
  return trustedUid(`${randomBytes(20).toString('hex')}/${segment()}/${segment()}`)
}

/** Fresh random bytes. */
export function freshBytes(size: number): Buffer {
  return randomBytes(size)
}

/** A body of these pieces. */
export function bodyOf(...pieces: readonly Uint8Array[]): Readable {
  return Readable.from(pieces, { objectMode: false })
}

/** The bytes of a stream. */
export async function drain(body: Readable): Promise<Buffer> {
  const pieces: Buffer[] = []
  for await (const piece of body) pieces.push(piece as Buffer) // a cast: streams of bytes
  return Buffer.concat(pieces)
}

/** The kind of the UpstreamError that the call fails with. */
export async function failureOf(call: Promise<unknown>): Promise<string> {
  try {
    await call
  } catch (error) {
    if (error instanceof UpstreamError) return error.kind
    throw error
  }
  return 'no failure'
}

/** Uploads bytes in one call; resolves with their digest upstream. */
export async function putBlob(upstream: Upstream, repo: Uid, bytes: Uint8Array, algorithm: DigestAlgorithm = 'sha256'): Promise<Digest> {
  const { state } = await upstream.startUpload(repo, never)
  const chunk = { body: bodyOf(bytes), length: bytes.length }
  return (await upstream.finishUpload(repo, { state, digest: digestOf(bytes, algorithm), chunk }, never)).digest
}

/** The bytes of a blob, or undefined. */
export async function blobBytes(upstream: Upstream, repo: Uid, digest: Digest): Promise<Buffer | undefined> {
  const found = await upstream.readBlob(repo, { digest }, never)
  return found && drain(found.body)
}

/** A manifest in the form of the port. */
export function manifestOf(content: Readonly<Record<string, unknown>>): ManifestBytes {
  const bytes = Buffer.from(JSON.stringify(content))
  return { digest: digestOf(bytes), mediaType: String(content['mediaType']), bytes }
}

/** A descriptor of a manifest. */
export function describeManifest({ digest, mediaType, bytes }: ManifestBytes): Readonly<Record<string, unknown>> {
  return { mediaType, digest, size: bytes.length }
}

/** A new image manifest, with its config and layer uploaded; `more` are more fields of it. */
export async function freshImage(upstream: Upstream, repo: Uid, more: Readonly<Record<string, unknown>> = {}): Promise<ManifestBytes> {
  const config = Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', created: randomUUID(), rootfs: { type: 'layers', diff_ids: [] } }))
  const layer = freshBytes(1000)
  for (const bytes of [config, layer]) await putBlob(upstream, repo, bytes)
  return manifestOf({
    schemaVersion: 2,
    mediaType: imageType,
    config: { mediaType: configType, digest: digestOf(config), size: config.length },
    layers: [{ mediaType: layerType, digest: digestOf(layer), size: layer.length }],
    ...more,
  })
}
