import { create } from '@bufbuild/protobuf'
import { DomainError } from '../../base/errors.ts'
import type { Digest } from '../../base/digest.ts'
import { errorDomainSuffix } from '../../base/schema/schema.ts'
import type { Uid } from '../../base/uid.ts'
import { ArchitecturesSchema, SizeSchema, type GetArchitecturesRequest, type GetSizeRequest } from '../../gen/taproot/registry/v2/images_pb.ts'
import type { ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import { notFound } from '../../engine/errors.ts'
import type { Context, Handler, Services } from '../../engine/services.ts'
import type { ManifestName } from './manifest-keys.ts'
import { heldManifest } from './manifests.ts'

/** The architecture that an index gives for attestations. */
const noArchitecture = 'unknown'
const defaultArchitecture = 'amd64'

function imageNotFound(name: string): DomainError {
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

/** An image of one platform. */
export interface PlatformImage {
  readonly digest: Digest
  /** For example `amd64`. */
  readonly architecture: string
}

/**
 * Resolves with the image with this digest, or with those of an index, in its order. Attestations and artifacts are no images. Rejects with code 5 if the repo does
 * not hold the digest.
 */
export async function platformImages(services: Services, { repo, digest }: ManifestName, signal: AbortSignal): Promise<readonly PlatformImage[]> {
  const record = await heldManifest(services, { repo, digest }, signal)
  if (record === undefined) throw imageNotFound(`${repo}@${digest}`)
  return imagesOf(digest, record).map((image) => ({ digest: image.digest as Digest, architecture: image.architecture })) // a cast: records hold checked digests
}

/** GetArchitectures: returns the architectures in the order of the index, without attestations (docs/spec/registry.md#images). */
export const getArchitectures: Handler = async (services, context, message) => {
  const request = message as GetArchitecturesRequest
  const record = await imageAt(services, context, request)
  const architectures = [...new Set(imagesOf(request.digest, record).map(({ architecture }) => architecture))]
  return { message: create(ArchitecturesSchema, { architectures }) }
}

/** GetSize: returns the size of the image of one architecture in bytes, layers and config together (docs/spec/registry.md#images). */
export const getSize: Handler = async (services, context, message) => {
  const request = message as GetSizeRequest
  const wanted = request.architecture === '' ? defaultArchitecture : request.architecture
  const record = await imageAt(services, context, request)
  const image = imagesOf(request.digest, record).find(({ architecture }) => architecture === wanted)
  if (image === undefined) throw imageNotFound(`${request.repoUid}@${request.digest} (${wanted})`)
  const { config, layers } = image.digest === request.digest ? record : await imageAt(services, context, { repoUid: request.repoUid, digest: image.digest })
  const size = layers.reduce((sum, layer) => sum + layer.size, config?.size ?? 0n)
  return { message: create(SizeSchema, { size, architecture: wanted }) }
}
