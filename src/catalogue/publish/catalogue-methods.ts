import { create } from '@bufbuild/protobuf'
import { timestampFromMs, type Timestamp } from '@bufbuild/protobuf/wkt'
import type { CatalogueControl, FeedStatus, KeptCatalogue } from '../../cache/lists/catalogue-sources.ts'
import type { Handler, Services } from '../../engine/services.ts'
import {
  CatalogueSchema,
  Feed_State,
  FeedSchema,
  ListCataloguesResponseSchema,
  ListFeedsResponseSchema,
  PruneCataloguesResponseSchema,
  type Catalogue,
  type Feed,
  type RunFeedRequest,
  type UseCatalogueRequest,
} from '../../gen/taproot/catalogue/v2/catalogues_pb.ts'
import { noUpstream } from './catalogue-record.ts'

function shown({ kind, manifest, size, publishedMs, isCurrent }: KeptCatalogue): Catalogue {
  return create(CatalogueSchema, { kind, digest: manifest, sizeBytes: BigInt(size), publishTime: timestampFromMs(publishedMs), current: isCurrent })
}

function controlOf({ catalogues }: Pick<Services, 'catalogues'>): CatalogueControl {
  if (catalogues === undefined) throw noUpstream()
  return catalogues
}

/** Answers ListCatalogues. Without an upstream there are none. */
export const listCatalogues: Handler = async ({ catalogues }, { signal }) => {
  const kept = (await catalogues?.kept(signal)) ?? []
  return { message: create(ListCataloguesResponseSchema, { catalogues: kept.map(shown) }) }
}

/** Answers UseCatalogue. */
export const useCatalogue: Handler = async (services, { signal }, message) => {
  const { digest } = message as UseCatalogueRequest // the method's input
  return { message: shown(await controlOf(services).use(digest, signal)), subject: digest }
}

/** Answers PruneCatalogues. */
export const pruneCatalogues: Handler = async (services, { signal }) => {
  const pruned = await controlOf(services).prune(signal)
  return { message: create(PruneCataloguesResponseSchema, { catalogues: pruned.map(shown) }) }
}

const feedStates = {
  waiting: Feed_State.WAITING,
  running: Feed_State.RUNNING,
  done: Feed_State.DONE,
  failed: Feed_State.FAILED,
  partial: Feed_State.PARTIAL,
} as const satisfies Record<FeedStatus['state'], Feed_State>

function timeOf(ms: number | undefined): Timestamp | undefined {
  return ms === undefined ? undefined : timestampFromMs(ms)
}

function shownFeed({ name, source, state, startedMs, succeededMs, nextMs, error, failures, documents, refused }: FeedStatus): Feed {
  const [lastRunTime, lastSuccessTime, nextRunTime] = [startedMs, succeededMs, nextMs].map(timeOf)
  return create(FeedSchema, {
    name,
    source,
    state: feedStates[state],
    failures,
    documents: BigInt(documents),
    refused: BigInt(refused),
    ...(lastRunTime === undefined ? {} : { lastRunTime }),
    ...(lastSuccessTime === undefined ? {} : { lastSuccessTime }),
    ...(nextRunTime === undefined ? {} : { nextRunTime }),
    ...(error === undefined ? {} : { lastError: error }),
  })
}

/** Answers ListFeeds. */
export const listFeeds: Handler = async ({ feeds }, { signal }) => ({
  message: create(ListFeedsResponseSchema, { feeds: (await feeds.list(signal)).map(shownFeed) }),
})

/** Answers RunFeed. */
export const runFeed: Handler = async ({ feeds }, { signal }, message) => {
  const { name } = message as RunFeedRequest // the method's input
  return { message: shownFeed(await feeds.request(name, signal)), subject: name }
}
