import { create } from '@bufbuild/protobuf'
import { setOf } from '../base/capability.ts'
import type { Digest } from '../base/digest.ts'
import { DomainError } from '../base/errors.ts'
import { hashQuery, sealCursor, type CursorKey } from '../base/page-token.ts'
import { trustedUid, type Uid } from '../base/uid.ts'
import type { PackageImage, PackageImageQuery } from '../cache/lists/contents-source.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import { openPage, pageLimit, prepared, uidFilterOf, visibility } from '../engine/read.ts'
import { callerOf, turnOf, type Handler, type Services } from '../engine/services.ts'
import { ListPackageImagesResponseSchema, PackageImageSchema, type ListPackageImagesRequest } from '../gen/taproot/registry/v2/contents_pb.ts'
import { heldManifest } from '../registry/index.ts'
import { purlFilter } from './package-url.ts'

/** The most tags of one image in an answer. */
const maxTags = 50
/** Maximum number of manifests to look up in parallel. */
const readsAtOnce = 64

/** Returns what the place in a page token names. The token was sealed for this list. */
function placeOf(key: CursorKey): NonNullable<PackageImageQuery['after']> {
  const [repo = '', digest = '', purl = ''] = key.map(String)
  return { repo: trustedUid(repo), digest: digest as Digest, purl }
}

/** Resolves with the images that their repos still hold. Contents of others go within a day. */
async function heldAmong(services: Services, images: readonly PackageImage[], signal: AbortSignal): Promise<readonly PackageImage[]> {
  const found: PackageImage[] = []
  for (let at = 0; at < images.length; at += readsAtOnce) {
    const part = images.slice(at, at + readsAtOnce)
    const held = await Promise.all(part.map((image) => heldManifest(services, image, signal)))
    found.push(...part.filter((_, index) => held[index] !== undefined))
  }
  return found.filter(({ repo }) => services.cache.tables.get('Repo', repo) !== undefined)
}

/** Returns a function that finds the first names of the tags of an image and of its indexes. It looks at the tags of a digest once, and only at those of the repo. */
function createTagNames(tables: RecordTables): (image: PackageImage) => readonly string[] {
  const known = new Map<string, readonly string[]>()
  const namesOf = (repo: Uid, digest: Digest): readonly string[] => {
    const key = `${repo} ${digest}`
    let names = known.get(key)
    if (names === undefined) {
      names = [...tables.table('Tag').matching('digest', digest, repo)]
        .map((tag) => tag.name)
        .sort()
        .slice(0, maxTags)
      known.set(key, names)
    }
    return names
  }
  const ofImages = new Map<string, readonly string[]>()
  return ({ repo, digest, indexes }) => {
    const key = `${repo} ${digest}`
    const names = ofImages.get(key) ?? [...new Set([digest, ...indexes].flatMap((pointed) => namesOf(repo, pointed)))].sort().slice(0, maxTags)
    ofImages.set(key, names)
    return names
  }
}

/** Answers ListPackageImages: one page of the images with a package that the caller may see (docs/spec/registry.md#images-with-a-package). */
export const listPackageImages: Handler = async (services, context, message) => {
  const request = message as ListPackageImagesRequest // the method's input
  const { purl, skip } = request
  if (purl === '') throw DomainError.invalid('purl', 'is required')
  if (purlFilter(purl) === undefined) throw DomainError.invalid('purl', 'is not a valid package URL, for example pkg:npm/%40scope/name@1.2.3')
  const uidp = uidFilterOf(request.uidp)
  const queryHash = hashQuery([context.method.rpc, purl, uidp, callerOf(context).identity])
  const { key, restarted } = await openPage(services, context, { text: request.pageToken, queryHash })
  const needed = setOf(context.method.capabilities)
  await prepared(context, needed)
  const { tables } = services.cache
  const seen = visibility('Repo', { tables, context, uidp }, needed)
  const limit = pageLimit(request.pageSize)
  // One extra image shows whether another page follows.
  const query = { purl, uidp, visibility: seen, after: key === undefined ? undefined : placeOf(key), skip, limit: limit + 1 }
  const page = await services.imageContents?.packageImages(query, turnOf(context))
  const found = page?.images.slice(0, limit) ?? []
  const last = (page?.images.length ?? 0) > limit ? found.at(-1) : undefined
  const held = await heldAmong(services, found, context.signal)
  const tagsOf = createTagNames(services.cache.tables)
  const images = held.map((found) => {
    const { repo, digest, indexes: _, ...image } = found
    return create(PackageImageSchema, { ...image, repoUid: repo, digest, tags: [...tagsOf(found)] })
  })
  const nextPageToken =
    last === undefined
      ? ''
      : sealCursor({ key: [last.repo, last.digest, last.purl], queryHash, issuedMs: services.clock.now() }, services.pageKeys.current(), services.random)
  const answer = create(ListPackageImagesResponseSchema, { images, nextPageToken, totalCount: BigInt(page?.total ?? 0), skipped: skip })
  return { message: answer, ...(restarted ? { pageTokenRestarted: true } : {}) }
}
