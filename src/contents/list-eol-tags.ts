import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { Digest } from '../base/digest.ts'
import type { MethodRow } from '../base/schema/method.ts'
import { methods } from '../base/schema/schema.ts'
import { parentOf, trustedUid, type Uid } from '../base/uid.ts'
import { dayOf, hasCome, type FoundCycle } from '../cache/lists/lifecycle-source.ts'
import { dayMs } from '../catalogue/index.ts'
import { listHandler } from '../engine/read.ts'
import { turnOf, type Context, type Handler, type HandlerAnswer, type Services } from '../engine/services.ts'
import type { ListEolTagsRequest as ListEolTagsV1 } from '../gen/taproot/registry/v1/registry_pb.ts'
import { UIDPFilterSchema } from '../gen/taproot/common/v2/uidp_filter_pb.ts'
import {
  EolTag_GraceStatus as Grace,
  EolTag_TagStatus as Status,
  EolTagSchema,
  ListEolTagsResponseSchema,
  MainPackageVersionSchema,
  type EolTag,
  type ListEolTagsRequest,
} from '../gen/taproot/registry/v2/eol_tags_pb.ts'
import { ListTagsRequestSchema, type ListTagsRequest, type ListTagsResponse, type Tag } from '../gen/taproot/registry/v2/tags_pb.ts'
import { tagKind } from '../registry/index.ts'
import { tagProducts, type TagProduct } from './tag-products.ts'

/** Number of tags whose manifests are read together. */
const readsAtOnce = 64

const listTags = listHandler(tagKind)

function listTagsMethod(): MethodRow {
  const found = methods.find(({ service, rpc }) => service === 'taproot.registry.v2.TagsService' && rpc === 'ListTags')
  if (found === undefined) throw new TypeError('the schema has no list of tags')
  return found
}

/** The statuses of a tag. */
type EolStatuses = Pick<EolTag, 'tagStatus' | 'graceStatus'>

/** Returns the statuses at a day, such as `2026-01-31`. What is not known is never active (docs/spec/registry.md#life-cycle-of-tags). */
export function eolStatuses(cycle: Pick<FoundCycle, 'lifeEnd' | 'extendedEnd'> | undefined, today: string): EolStatuses {
  const [ended, graceEnded] = [hasCome(cycle?.lifeEnd, today), hasCome(cycle?.extendedEnd, today)]
  if (ended === undefined) return { tagStatus: Status.TAG_UNKNOWN, graceStatus: Grace.GRACE_NOT_ELIGIBLE }
  if (!ended) return { tagStatus: Status.TAG_ACTIVE, graceStatus: graceEnded === false ? Grace.GRACE_ELIGIBLE : Grace.GRACE_NOT_ELIGIBLE }
  if (graceEnded === false) return { tagStatus: Status.TAG_IN_GRACE, graceStatus: Grace.GRACE_ACTIVE }
  return { tagStatus: Status.TAG_INACTIVE, graceStatus: graceEnded === true ? Grace.GRACE_EXPIRED : Grace.GRACE_NOT_ELIGIBLE }
}

/** A product of a tag, and its cycle if the catalogue has one. */
interface ProductCycle {
  readonly product: TagProduct
  readonly cycle: FoundCycle | undefined
}

function eolTag({ uid, name, digest }: Tag, found: ProductCycle | undefined, today: string): EolTag {
  const { cycle } = found ?? {}
  const expiryDay = dayOf(cycle?.extendedEnd)
  return create(EolTagSchema, {
    ...{ uid, name, digest, ...eolStatuses(cycle, today) },
    ...(expiryDay === '' ? {} : { gracePeriodExpiryTime: timestampFromMs(Date.parse(expiryDay) + dayMs) }),
    ...(found === undefined || cycle === undefined
      ? {}
      : {
          mainPackageName: cycle.product,
          mainPackageVersion: create(MainPackageVersionSchema, {
            cycle: cycle.cycle,
            version: found.product.version,
            releaseDate: cycle.releaseDay ?? '',
            eolDate: dayOf(cycle.lifeEnd),
            lts: cycle.isLts,
            latestVersion: cycle.latest,
            baseImage: found.product.isBase,
          }),
        }),
  })
}

/** Resolves with one page of tags, with their life cycles (docs/spec/registry.md#life-cycle-of-tags). */
async function eolTagsPage(services: Services, context: Context, asked: ListTagsRequest): Promise<HandlerAnswer> {
  const listed = await listTags(services, { ...context, method: listTagsMethod() }, asked)
  const { tags, nextPageToken, totalCount = 0n, skipped } = listed.message as ListTagsResponse // the output of ListTags
  const source = services.catalogue('lifecycle')
  const products: (readonly TagProduct[])[] = []
  for (let at = 0; source !== undefined && at < tags.length; at += readsAtOnce) {
    const part = tags.slice(at, at + readsAtOnce)
    products.push(
      ...(await Promise.all(
        // A list shows tags of repos. A cast: digests are checked before they are written.
        part.map(({ uid, name, digest }) => tagProducts(services, { repo: parentOf(trustedUid(uid)) as Uid, name, digest: digest as Digest }, context.signal)),
      )),
    )
  }
  const all = products.flat()
  const cycles = all.length === 0 ? [] : await source?.cyclesOf(all, turnOf(context))
  const cycleOf = new Map(all.map((product, at) => [product, cycles?.[at]]))
  const today = new Date(services.clock.now()).toISOString().slice(0, 10)
  const eolTags = tags.map((tag, at) => {
    const found = (products[at] ?? []).map((product): ProductCycle => ({ product, cycle: cycleOf.get(product) }))
    return eolTag(
      tag,
      found.find(({ cycle }) => cycle !== undefined),
      today,
    )
  })
  const answer = create(ListEolTagsResponseSchema, { eolTags, nextPageToken, totalCount, skipped, hasLifeCycles: source !== undefined })
  return { message: answer, ...(listed.pageTokenRestarted === true ? { pageTokenRestarted: true } : {}) }
}

/** Answers ListEolTags: one page of the tags of a repo. */
export const listEolTags: Handler = (services, context, message) => {
  const { repoUid, name, includeReferrers, includeDates, includeEpochs, pageSize, pageToken, skip } = message as ListEolTagsRequest // the method's input
  const asked = create(ListTagsRequestSchema, {
    ...{ name, includeReferrers, includeDates, includeEpochs, pageSize, pageToken, skip },
    uidp: create(UIDPFilterSchema, { childrenOf: repoUid }),
  })
  return eolTagsPage(services, context, asked)
}

/** The most tags on a page. */
const maxPageSize = 200

/** Answers ListEolTags of version 1: one page of the tags that the caller may see, as version 2 has them (docs/spec/version-1.md#tags). */
export const listEolTagsV1: Handler = (services, context, message) => {
  const { uidp, name, pageToken, pageSize, excludeDates, excludeEpochs } = message as ListEolTagsV1 // the method's input
  const asked = create(ListTagsRequestSchema, {
    ...{ name, pageToken, includeReferrers: true, includeDates: !excludeDates, includeEpochs: !excludeEpochs },
    pageSize: pageSize === 0n || pageSize > maxPageSize ? maxPageSize : Number(pageSize),
    ...(uidp === undefined ? {} : { uidp }),
  })
  return eolTagsPage(services, context, asked)
}
