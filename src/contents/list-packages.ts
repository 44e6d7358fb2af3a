import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../base/errors.ts'
import type { Digest } from '../base/digest.ts'
import { hashQuery, sealCursor, type CursorKey } from '../base/page-token.ts'
import type { Uid } from '../base/uid.ts'
import type { ImageName, ListedPackage, PackagePage, PackageQuery, ReadImage } from '../cache/lists/contents-source.ts'
import { openPage, pageLimit } from '../engine/read.ts'
import { callerOf, turnOf, type Handler } from '../engine/services.ts'
import {
  ImageContents_Problem,
  ImageContents_Source,
  ImageContents_State,
  ImageContentsSchema,
  ListPackagesResponseSchema,
  PackageSchema,
  SkippedFileSchema,
  type ImageContents,
  type ListPackagesRequest,
} from '../gen/taproot/registry/v2/contents_pb.ts'
import { platformImages, type PlatformImage } from '../registry/index.ts'

/** Returns what the place in a page token names. The token was sealed for this list. */
function placeOf(key: CursorKey): NonNullable<PackageQuery['after']> {
  const [name = '', purl = '', digest = ''] = key.map(String)
  return { name, purl, digest: digest as Digest }
}

const sources = {
  attestation: ImageContents_Source.ATTESTATION,
  referrer: ImageContents_Source.REFERRER,
  tag: ImageContents_Source.TAG,
  layers: ImageContents_Source.LAYERS,
} as const

/** True if an image is of a platform. Of one that was not read, only the architecture is known. */
function isOf(platform: string, { architecture }: PlatformImage, read: ReadImage | undefined): boolean {
  if (platform === '') return true
  return read === undefined || read.platform === '' ? platform.split('/')[1] === architecture : read.platform === platform
}

function contentsMessage({ digest }: PlatformImage, read: ReadImage | undefined): ImageContents {
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

const noPackages: PackagePage = { packages: [], total: 0 }

/** Answers ListPackages: one page of the packages of an image, or of the images of an index (docs/spec/registry.md#contents-of-images). */
export const listPackages: Handler = async (services, context, message) => {
  const request = message as ListPackagesRequest // the method's input
  const { digest, platform, names, types, query: text, skip } = request
  if (digest === '') throw DomainError.invalid('digest', 'is required')
  // The schema checked the digest; authorization found the repo.
  const name: ImageName = { repo: request.repoUid as Uid, digest: digest as Digest }
  const { imageContents } = services
  const turn = turnOf(context)
  const all = await platformImages(services, name, context.signal)
  const found = await imageContents?.imagesAmong(
    all.map((image) => ({ repo: name.repo, digest: image.digest })),
    turn,
  )
  const read = new Map((found ?? []).map((image) => [image.digest, image]))
  const wanted = all.filter((image) => isOf(platform, image, read.get(image.digest)))
  const images = wanted.map((image): ImageName => ({ repo: name.repo, digest: image.digest }))
  const queryHash = hashQuery([context.method.rpc, name, platform, names.toSorted(), types.toSorted(), text, callerOf(context).identity])
  const { key, restarted } = await openPage(services, context, { text: request.pageToken, queryHash })
  const limit = pageLimit(request.pageSize)
  // One extra package shows whether another page follows.
  const query: PackageQuery = { images, names, types, text, after: key === undefined ? undefined : placeOf(key), skip, limit: limit + 1 }
  const page = (await imageContents?.packages(query, turn)) ?? noPackages
  const shown = page.packages.slice(0, limit)
  const last = shown.at(-1)
  const answer = create(ListPackagesResponseSchema, {
    packages: shown.map((one: ListedPackage) => create(PackageSchema, { ...one, licenses: [...one.licenses], locations: [...one.locations] })),
    nextPageToken:
      page.packages.length > limit && last !== undefined
        ? sealCursor({ key: [last.name, last.purl, last.digest], queryHash, issuedMs: services.clock.now() }, services.pageKeys.current(), services.random)
        : '',
    totalCount: BigInt(page.total),
    skipped: skip,
    images: wanted.map((image) => contentsMessage(image, read.get(image.digest))),
  })
  return { message: answer, ...(restarted ? { pageTokenRestarted: true } : {}) }
}
