import { create, fromBinary } from '@bufbuild/protobuf'
import { hashQuery } from '../../base/page-token.ts'
import { resources } from '../../base/schema/schema.ts'
import { isUid, parentOf, type Uid } from '../../base/uid.ts'
import { parseOrder } from '../../cache/lists/order.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import {
  mergedPage,
  type AdvisoryFilter,
  type AdvisoryPage,
  type AdvisoryQuery,
  type AdvisorySource,
  type FacetValues,
} from '../../cache/lists/advisory-source.ts'
import { notFound } from '../../engine/errors.ts'
import { continuationOf, nextToken, pageLimit, uidFilterOf } from '../../engine/read.ts'
import { callerOf, turnOf, type Context, type Handler, type Services } from '../../engine/services.ts'
import {
  AdvisorySchema,
  ListAdvisoriesResponseSchema,
  SeveritySchema,
  type Advisory,
  type GetAdvisoryRequest,
  type ListAdvisoriesRequest,
} from '../../gen/taproot/vulnerabilities/v2/advisories_pb.ts'
import { matchingOwn, ownAdvisory } from './own-advisories.ts'
import { advisorySources, listedAdvisories, type VisibleAdvisories } from './visible-advisories.ts'

const kind = 'Advisory'

/** Answers GetAdvisory. Code 5 also for an advisory whose group was deleted. */
export const getAdvisory: Handler = async (services, context, message) => {
  const { uid } = message as GetAdvisoryRequest // the method's input
  const own = ownAdvisory(services.cache.tables, uid)
  const found = own ?? (isUid(uid) ? await bodyOf(advisorySources(services), services.cache.tables, uid) : undefined)
  if (found === undefined) throw notFound(kind, uid)
  const [advisory = create(AdvisorySchema)] = await withScores([fromBinary(AdvisorySchema, found)], services, context)
  return { message: advisory, etag: advisory.etag }
}

async function bodyOf(sources: readonly AdvisorySource[], tables: RecordTables, uid: Uid): Promise<Uint8Array | undefined> {
  if (tables.get('Group', parentOf(uid)) === undefined) return undefined
  const bodies = await Promise.all(sources.map((source) => source.get(uid)))
  return bodies.find((body) => body !== undefined)
}

/** The bytes after which an answer ends. Clients of gRPC accept 4 MiB. */
const maxAnswerBytes = 3.5 * 1024 * 1024

/** Returns the number of advisories that one answer may have: one at least. */
function fitting(advisories: readonly Advisory[], bodies: readonly Uint8Array[]): number {
  let bytes = 0
  const end = advisories.findIndex(({ severities }, at) => {
    // Of scores that are not in the body, at most three bytes for each character.
    bytes += (bodies[at]?.length ?? 0) + severities.reduce((sum, { score }) => sum + score.length * 3 + 8, 0)
    return bytes > maxAnswerBytes
  })
  return end < 0 ? advisories.length : Math.max(1, end)
}

/**
 * Gives advisories without scores those of their vulnerability or of an alias (docs/spec/advisories.md#advisory-severities). Asks one question for all.
 */
async function withScores(advisories: readonly Advisory[], services: Services, context: Context): Promise<Advisory[]> {
  const unscored = advisories.filter(({ severities }) => severities.length === 0)
  const source = unscored.length === 0 ? undefined : services.catalogue('vulnerabilities')
  if (source === undefined) return [...advisories]
  const names = unscored.map(({ advisoryId, aliases }) => [advisoryId, ...aliases])
  const scores = await source.scores(names, turnOf(context))
  unscored.forEach((advisory, at) => {
    advisory.severities = (scores[at] ?? []).map((score) => create(SeveritySchema, score))
  })
  return [...advisories]
}

/** Returns the values of a repeated filter. Empty texts and the number 0 of an enum are not set. */
function given(values: readonly (string | number)[]): string[] {
  return [...new Set(values)]
    .filter((value) => value !== '' && value !== 0)
    .map(String)
    .sort()
}

/** Returns the filters of a request that name values (docs/spec/advisories.md#advisory-filters). With `origin`, the names of artifacts are ignored. */
function facetsOf(request: ListAdvisoriesRequest): FacetValues[] {
  const { origin = '', latestEventType = 0 } = request
  const named: readonly FacetValues[] = [
    ['advisoryId', given(request.advisoryIds)],
    ['legacyId', given(request.legacyAdvisoryIds)],
    origin === '' ? ['artifactName', given(request.artifactNames)] : ['origin', [origin]],
    ['artifactType', given(request.artifactTypes)],
    ['artifactArchitecture', given(request.artifactArchitectures)],
    ['componentName', given(request.componentNames)],
    ['componentType', given(request.componentTypes)],
    ['componentLocation', given(request.componentLocations)],
    ['alias', given(request.aliases)],
    ['eventState', given(request.eventReviewStates)],
    ['eventAuthor', given(request.eventAuthors)],
    ['eventReviewer', given(request.eventReviewers)],
    ['eventType', given(request.eventTypes)],
    ['latestType', given([latestEventType])],
  ]
  return named.filter(([, values]) => values.length > 0)
}

/** What a page is about. */
interface PageQuestion {
  /** Returns what the caller may see now. */
  readonly ask: () => Promise<VisibleAdvisories>
  readonly filter: Omit<AdvisoryFilter, 'groups'>
  readonly place: Omit<AdvisoryQuery, 'filter'>
}

/** Number of times that a page is read again because another catalogue took the place of its own. */
const maxRestarts = 3

/** Resolves with one page of imported and hand-made advisories. */
async function pageFor(services: Services, context: Context, { ask, filter, place }: PageQuestion): Promise<AdvisoryPage> {
  for (let restarts = 0; ; restarts += 1) {
    const { sources, groups, own } = await ask()
    // A caller without rights costs the catalogue nothing.
    const [source] = groups.length === 0 ? [] : sources
    try {
      return await mergedPage(source, await matchingOwn(own, filter), { query: { filter: { ...filter, groups }, ...place }, turn: turnOf(context) })
    } catch (error) {
      // A page may need several answers, and a new catalogue closes the one before.
      if (source === undefined || restarts >= maxRestarts || advisorySources(services).includes(source)) throw error
    }
  }
}

/** Answers ListAdvisories: one page of the advisories that the caller may see (docs/spec/conventions.md#lists). */
export const listAdvisories: Handler = async (services, context, message) => {
  const request = message as ListAdvisoriesRequest // the method's input
  const resource = resources.get(kind)
  if (resource === undefined) throw new TypeError('the schema has no advisories')
  const order = parseOrder(request.orderBy.trim() === '' ? resource.defaultOrder : request.orderBy, resource)
  const uidp = uidFilterOf(request.uidp)
  const { query: text = '' } = request
  const anyOf = facetsOf(request)
  const excluded = given(request.excludeEventAuthors)
  const noneOf: FacetValues[] = excluded.length === 0 ? [] : [['eventAuthor', excluded]]
  const queryHash = hashQuery([context.method.rpc, uidp, anyOf, noneOf, text, order.id, callerOf(context).identity])
  const { after, restarted } = await continuationOf(services, context, { text: request.pageToken, queryHash, order })
  const filter = { uids: uidp.ids.length > 0 ? uidp.ids : undefined, anyOf, noneOf, text }
  const place = { order, after, skip: request.skip, limit: pageLimit(request.pageSize) }
  const page = await pageFor(services, context, { ask: () => listedAdvisories(services, context, uidp), filter, place })
  const bodies = page.advisories.map(({ body }) => body)
  const advisories = await withScores(
    bodies.map((body) => fromBinary(AdvisorySchema, body)),
    services,
    context,
  )
  const count = fitting(advisories, bodies)
  const last = page.advisories[count - 1]
  const answer = create(ListAdvisoriesResponseSchema, {
    advisories: advisories.slice(0, count),
    nextPageToken: (page.hasMore || count < advisories.length) && last !== undefined ? nextToken(services, { order, record: last, queryHash }) : '',
    totalCount: BigInt(page.total),
    skipped: request.skip,
  })
  return { message: answer, ...(restarted ? { pageTokenRestarted: true } : {}) }
}
