import { create } from '@bufbuild/protobuf'
import type { Digest } from '../base/digest.ts'
import { hashQuery, sealCursor, type CursorKey } from '../base/page-token.ts'
import type { ImageName, PackagePage, PackageQuery } from '../cache/lists/contents-source.ts'
import { openPage, pageLimit } from '../engine/read.ts'
import { callerOf, turnOf, type Handler } from '../engine/services.ts'
import { ListPackagesResponseSchema, type ListPackagesRequest } from '../gen/taproot/registry/v2/contents_pb.ts'
import { contentsMessage, namedImages, packageMessage } from './named-images.ts'

/** Returns what the place in a page token names. The token was sealed for this list. */
function placeOf(key: CursorKey): NonNullable<PackageQuery['after']> {
  const [name = '', purl = '', digest = ''] = key.map(String)
  return { name, purl, digest: digest as Digest }
}

const noPackages: PackagePage = { packages: [], total: 0 }

/** Answers ListPackages: one page of the packages of an image, or of the images of an index (docs/spec/registry.md#contents-of-images). */
export const listPackages: Handler = async (services, context, message) => {
  const request = message as ListPackagesRequest // the method's input
  const { digest, platform, names, types, query: text, skip } = request
  const { repo, wanted, read } = await namedImages(services, context, request)
  const images = wanted.map((image): ImageName => ({ repo, digest: image.digest }))
  const queryHash = hashQuery([context.method.rpc, repo, digest, platform, names.toSorted(), types.toSorted(), text, callerOf(context).identity])
  const { key, restarted } = await openPage(services, context, { text: request.pageToken, queryHash })
  const limit = pageLimit(request.pageSize)
  const turn = turnOf(context)
  // One extra package shows whether another page follows.
  const query: PackageQuery = { images, names, types, text, after: key === undefined ? undefined : placeOf(key), skip, limit: limit + 1 }
  const page = (await services.imageContents?.packages(query, turn)) ?? noPackages
  const shown = page.packages.slice(0, limit)
  const last = shown.at(-1)
  const answer = create(ListPackagesResponseSchema, {
    packages: shown.map(packageMessage),
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
