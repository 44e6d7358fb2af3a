import { create } from '@bufbuild/protobuf'
import { EmptySchema, type Empty } from '@bufbuild/protobuf/wkt'
import { parseBoundedJson } from '../../base/bounded-json.ts'
import { DomainError } from '../../base/errors.ts'
import type { Digest } from '../../base/digest.ts'
import { errorDomainSuffix } from '../../base/schema/schema.ts'
import type { Uid } from '../../base/uid.ts'
import { ImageConfigSchema, type GetImageConfigRequest } from '../../gen/taproot/registry/v1/registry_pb.ts'
import { ArchitecturesSchema, SizeSchema, type GetArchitecturesRequest, type GetSizeRequest } from '../../gen/taproot/registry/v2/images_pb.ts'
import type { ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import { notFound } from '../../engine/errors.ts'
import type { Context, Handler, Services } from '../../engine/services.ts'
import { heldBlob } from './blobs.ts'
import type { ManifestName } from './manifest-keys.ts'
import { heldManifest } from './manifests.ts'

/** The architecture that an index gives for attestations. */
const noArchitecture = 'unknown'
const defaultArchitecture = 'amd64'
/** The number of manifests of an index to read together. */
const readsAtOnce = 64
const sha256Pattern = /^sha256:[0-9a-f]{64}$/

/** Returns code 5 for an image by its name. */
export function imageNotFound(name: string): DomainError {
  return notFound('Image', name, { resourceType: `registry.${errorDomainSuffix}/Image` })
}

async function imageAt(services: Services, context: Context, image: { repoUid: string; digest: string }): Promise<ManifestRecord> {
  if (image.digest === '') throw DomainError.invalid('digest', 'is required')
  // The schema checked the digest; authorization found the repo.
  const record = await heldManifest(services, { repo: image.repoUid as Uid, digest: image.digest as Digest }, context.signal)
  if (record === undefined) throw imageNotFound(`${image.repoUid}@${image.digest}`)
  return record
}

/** Returns the images of an index, in its order. For a single image, returns only that one. */
function imagesOf(digest: string, record: ManifestRecord): { architecture: string; digest: string }[] {
  const images = record.children.length > 0 ? record.children : [{ architecture: record.architecture, digest }]
  return images.filter(({ architecture }) => architecture !== '' && architecture !== noArchitecture)
}

/** True for a manifest that is an image itself, not an index. Records of earlier versions only tell by the architecture. */
export function isImageRecord({ isImage, architecture, children }: ManifestRecord): boolean {
  return isImage ?? (children.length === 0 && architecture !== '' && architecture !== noArchitecture)
}

/** An image of one platform. */
export interface PlatformImage {
  /** Its SHA-256 digest, by which its contents are known, whatever digest the repo holds it by. */
  readonly digest: Digest
  /** For example `amd64`; empty if its config names none. */
  readonly architecture: string
  /** The size of its layers and config in bytes; 0 if its manifest is gone. */
  readonly size: bigint
}

function sizeOf({ config, layers }: ManifestRecord): bigint {
  return layers.reduce((sum, layer) => sum + layer.size, config?.size ?? 0n)
}

/**
 * Resolves with the image with this digest, or with those of an index, in its order, each once: those whose contents can be read. Attestations and artifacts are no images. Rejects with code 5 if
 * the repo does not hold the digest.
 */
export async function platformImages(services: Services, { repo, digest }: ManifestName, signal: AbortSignal): Promise<readonly PlatformImage[]> {
  const record = await heldManifest(services, { repo, digest }, signal)
  if (record === undefined) throw imageNotFound(`${repo}@${digest}`)
  // casts: records hold checked digests
  const made = (held: ManifestRecord, architecture: string): PlatformImage => ({ digest: held.upstreamDigest as Digest, architecture, size: sizeOf(held) })
  if (record.children.length === 0) return isImageRecord(record) ? [made(record, record.architecture)] : []
  const children = [...new Map(record.children.map((child) => [child.digest as Digest, child.architecture]))].filter(([, named]) => named !== noArchitecture)
  // An index may name an image by several digests.
  const images = new Map<Digest, PlatformImage>()
  for (let at = 0; at < children.length; at += readsAtOnce) {
    const part = children.slice(at, at + readsAtOnce)
    const held = await Promise.all(part.map(([child]) => heldManifest(services, { repo, digest: child }, signal)))
    part.forEach(([child, named], index) => {
      const image = held[index]
      // Nothing is known of a child that is gone, so it counts as an image.
      const found = image === undefined ? { digest: child, architecture: named, size: 0n } : made(image, named || image.architecture)
      if ((image === undefined || isImageRecord(image)) && !images.has(found.digest)) images.set(found.digest, found)
    })
  }
  return [...images.values()]
}

/** Number of manifests of an index among which an image is looked for. */
const maxChildren = 20

/** Resolves with the first image of an index that the repo holds; undefined if it holds none. Attestations and artifacts are no images. */
export async function firstImage(
  services: Services,
  { repo, index }: { readonly repo: Uid; readonly index: ManifestRecord },
  signal: AbortSignal,
): Promise<ManifestRecord | undefined> {
  for (const { digest, architecture } of index.children.slice(0, maxChildren)) {
    const child = architecture === noArchitecture ? undefined : await heldManifest(services, { repo, digest: digest as Digest }, signal) // a cast: records hold checked digests
    if (child !== undefined && isImageRecord(child)) return child
  }
  return undefined
}

/** GetArchitectures: returns the architectures in the order of the index, without attestations (docs/spec/registry.md#images). */
export const getArchitectures: Handler = async (services, context, message) => {
  const request = message as GetArchitecturesRequest
  const record = await imageAt(services, context, request)
  const architectures = [...new Set(imagesOf(request.digest, record).map(({ architecture }) => architecture))]
  return { message: create(ArchitecturesSchema, { architectures }) }
}

/** Returns the image of one architecture. Throws code 5 if there is none. */
async function imageOf(services: Services, context: Context, image: { repoUid: string; digest: string; architecture: string }): Promise<ManifestRecord> {
  const { repoUid, digest, architecture } = image
  const record = await imageAt(services, context, image)
  const found = imagesOf(digest, record).find((one) => one.architecture === architecture)
  if (found === undefined) throw imageNotFound(`${repoUid}@${digest} (${architecture})`)
  return found.digest === digest ? record : imageAt(services, context, { repoUid, digest: found.digest })
}

/** GetSize: returns the size of the image of one architecture in bytes, layers and config together (docs/spec/registry.md#images). */
export const getSize: Handler = async (services, context, message) => {
  const request = message as GetSizeRequest
  const wanted = request.architecture === '' ? defaultArchitecture : request.architecture
  const image = await imageOf(services, context, { ...request, architecture: wanted })
  return { message: create(SizeSchema, { size: sizeOf(image), architecture: wanted }) }
}

/** Maximum size of a config that is read, in bytes. */
const maxConfigBytes = 4 * 1024 * 1024

const configBounds = { maxDepth: 64, maxValues: 65_536, maxKeys: 16_384 }

type Json = Readonly<Record<string, unknown>>

function objectIn(value: unknown): Json {
  return typeof value === 'object' && value !== null ? (value as Json) : {}
}

function textIn(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function textsIn(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((one) => typeof one === 'string') : []
}

/** Returns a map with the keys of an object, each with an empty message. */
function keysIn(value: unknown): Record<string, Empty> {
  return Object.fromEntries(Object.keys(objectIn(value)).map((key) => [key, create(EmptySchema)]))
}

/** GetImageConfig of version 1: returns how a container of the image starts. Values of the wrong type are left out. Code 9 if the config cannot be read. */
export const getImageConfig: Handler = async (services, context, message) => {
  const { repoId: repoUid, digest, arch } = message as GetImageConfigRequest
  if (!sha256Pattern.test(digest)) throw DomainError.invalid('digest', digest === '' ? 'is required' : 'must be `sha256:` and 64 hex digits')
  const { config } = await imageOf(services, context, { repoUid, digest, architecture: arch === '' ? defaultArchitecture : arch })
  const unreadable = (cause?: unknown): DomainError => new DomainError(9, 'Precondition failed: the config of this image cannot be read', { cause })
  const repo = repoUid as Uid // authorization found the repo
  const blob = config === undefined ? undefined : await heldBlob(services, { repo, digest: config.digest as Digest }, context.signal) // a cast: see imagesOf
  if (blob === undefined) throw unreadable()
  const bytes = await services.content?.readBlob(repo, { digest: blob.upstreamDigest as Digest, maxBytes: maxConfigBytes }, context.signal) // see above
  if (bytes === undefined) throw unreadable()
  let start: Json
  try {
    start = objectIn(objectIn(parseBoundedJson(bytes.toString(), configBounds))['config'])
  } catch (error) {
    throw unreadable(error)
  }
  const answer = create(ImageConfigSchema, {
    user: textIn(start['User']),
    exposedPorts: keysIn(start['ExposedPorts']),
    env: textsIn(start['Env']),
    entrypoint: textsIn(start['Entrypoint']),
    cmd: textsIn(start['Cmd']),
    volumes: keysIn(start['Volumes']),
    workingDir: textIn(start['WorkingDir']),
    labels: Object.fromEntries(Object.entries(objectIn(start['Labels'])).flatMap(([key, value]) => (typeof value === 'string' ? [[key, value]] : []))),
    stopSignal: textIn(start['StopSignal']),
  })
  return { message: answer }
}
