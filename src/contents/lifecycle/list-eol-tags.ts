import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { Digest } from '../../base/digest.ts'
import type { MethodRow } from '../../base/schema/method.ts'
import { methods } from '../../base/schema/schema.ts'
import { parentOf, trustedUid, type Uid } from '../../base/uid.ts'
import { dayOf } from '../../cache/lists/lifecycle-source.ts'
import { dayMs } from '../../catalogue/index.ts'
import { listHandler } from '../../engine/read.ts'
import { turnOf, type Context, type Handler, type HandlerAnswer, type Services } from '../../engine/services.ts'
import type { ListEolTagsRequest as ListEolTagsV1 } from '../../gen/taproot/registry/v1/registry_pb.ts'
import { UIDPFilterSchema } from '../../gen/taproot/common/v2/uidp_filter_pb.ts'
import {
  EolTagSchema,
  ListEolTagsResponseSchema,
  MainPackageVersionSchema,
  type EolTag,
  type ListEolTagsRequest,
} from '../../gen/taproot/registry/v2/eol_tags_pb.ts'
import { ListTagsRequestSchema, type ListTagsRequest, type ListTagsResponse, type Tag } from '../../gen/taproot/registry/v2/tags_pb.ts'
import { tagKind } from '../../registry/index.ts'
import { dayText, eolStatuses, tagLifeCycles, type ProductCycle } from './life-cycles.ts'
import type { ProductTag } from './tag-products.ts'

const listTags = listHandler(tagKind)

function listTagsMethod(): MethodRow {
  const found = methods.find(({ service, rpc }) => service === 'taproot.registry.v2.TagsService' && rpc === 'ListTags')
  if (found === undefined) throw new TypeError('the schema has no list of tags')
  return found
}

function eolTag({ uid, name, digest }: Tag, found: ProductCycle | undefined, today: string): EolTag {
  const expiryDay = dayOf(found?.cycle.extendedEnd)
  return create(EolTagSchema, {
    ...{ uid, name, digest, ...eolStatuses(found?.cycle, today) },
    ...(expiryDay === '' ? {} : { gracePeriodExpiryTime: timestampFromMs(Date.parse(expiryDay) + dayMs) }),
    ...(found === undefined
      ? {}
      : {
          mainPackageName: found.cycle.product,
          mainPackageVersion: create(MainPackageVersionSchema, {
            cycle: found.cycle.cycle,
            version: found.product.version,
            releaseDate: found.cycle.releaseDay ?? '',
            eolDate: dayOf(found.cycle.lifeEnd),
            lts: found.cycle.isLts,
            latestVersion: found.cycle.latest,
            baseImage: found.product.isBase,
          }),
        }),
  })
}

/** Resolves with one page of tags, with their life cycles (docs/spec/registry.md#life-cycle-of-tags). */
async function eolTagsPage(services: Services, context: Context, asked: ListTagsRequest): Promise<HandlerAnswer> {
  const listed = await listTags(services, context.with({ method: listTagsMethod() }), asked)
  const { tags, nextPageToken, totalCount = 0n, skipped } = listed.message as ListTagsResponse // the output of ListTags
  const source = services.catalogue('lifecycle')
  // A list shows tags of repos. A cast: digests are checked before they are written.
  const named = tags.map(({ uid, name, digest }): ProductTag => ({ repo: parentOf(trustedUid(uid)) as Uid, name, digest: digest as Digest | '' }))
  const found = source === undefined ? [] : await tagLifeCycles(services, { source, tags: named }, turnOf(context))
  const today = dayText(services.clock.now())
  const eolTags = tags.map((tag, at) => eolTag(tag, found[at]?.found, today))
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
