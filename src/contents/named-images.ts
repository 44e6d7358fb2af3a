import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../base/errors.ts'
import type { Digest } from '../base/digest.ts'
import type { Uid } from '../base/uid.ts'
import type { ListedPackage, ReadImage } from '../cache/lists/contents-source.ts'
import { turnOf, type Context, type Services } from '../engine/services.ts'
import {
  ImageContents_Problem,
  ImageContents_Source,
  ImageContents_State,
  ImageContentsSchema,
  PackageSchema,
  SkippedFileSchema,
  type ImageContents,
  type Package,
} from '../gen/taproot/registry/v2/contents_pb.ts'
import { imageNotFound, platformImages, type PlatformImage } from '../registry/index.ts'

/** The images that a request names. */
export interface NamedImages {
  readonly repo: Uid
  /** The images of the platform, in the order of the index. */
  readonly wanted: readonly PlatformImage[]
  /** Those that were read, by digest. */
  readonly read: ReadonlyMap<string, ReadImage>
}

/** True if an image is of a platform. Of one that was not read, only the architecture is known. */
function isOf(platform: string, { architecture }: PlatformImage, read: ReadImage | undefined): boolean {
  if (platform === '') return true
  return read === undefined || read.platform === '' ? platform.split('/')[1] === architecture : read.platform === platform
}

/** Resolves with the images of a request whose repo the caller may see. Rejects with code 3 without a digest. Code 5: the repo does not hold it, or it has no image of the platform. */
export async function namedImages(
  services: Services,
  context: Context,
  { repoUid, digest, platform }: { readonly repoUid: string; readonly digest: string; readonly platform: string },
): Promise<NamedImages> {
  if (digest === '') throw DomainError.invalid('digest', 'is required')
  // The schema checked the digest; authorization found the repo.
  const repo = repoUid as Uid
  const all = await platformImages(services, { repo, digest: digest as Digest }, context.signal)
  const names = all.map((image) => ({ repo, digest: image.digest }))
  const found = (await services.imageContents?.imagesAmong(names, turnOf(context))) ?? []
  const read = new Map(found.map((image) => [image.digest, image]))
  const wanted = all.filter((image) => isOf(platform, image, read.get(image.digest)))
  // An empty answer would look like an image without vulnerabilities.
  if (platform !== '' && wanted.length === 0) throw imageNotFound(`${repo}@${digest} (${platform})`)
  return { repo, wanted, read }
}

const sources = {
  attestation: ImageContents_Source.ATTESTATION,
  referrer: ImageContents_Source.REFERRER,
  tag: ImageContents_Source.TAG,
  layers: ImageContents_Source.LAYERS,
} as const

/** Returns how the contents of an image became known. */
export function contentsMessage({ digest }: PlatformImage, read: ReadImage | undefined): ImageContents {
  if (read === undefined) return create(ImageContentsSchema, { digest, state: ImageContents_State.PENDING })
  const { platform, source, sourceDigest, problem, message, distribution, skipped, readMs, packages } = read
  const state = problem !== '' ? ImageContents_State.FAILED : skipped.length > 0 ? ImageContents_State.INCOMPLETE : ImageContents_State.READ
  return create(ImageContentsSchema, {
    digest,
    platform,
    state,
    source: sources[source],
    sourceDigest,
    problem: problem === '' ? ImageContents_Problem.PROBLEM_UNSPECIFIED : ImageContents_Problem[problem],
    message,
    distribution: distribution.id,
    distributionVersion: distribution.version,
    skippedFiles: skipped.map((file) => create(SkippedFileSchema, file)),
    readTime: timestampFromMs(readMs),
    packageCount: BigInt(packages),
  })
}

/** Returns a package as answers have it. */
export function packageMessage(found: ListedPackage): Package {
  return create(PackageSchema, { ...found, licenses: [...found.licenses], locations: [...found.locations] })
}
