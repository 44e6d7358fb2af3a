import type { TaskTurn } from '../../base/task-thread.ts'
import type { Uid } from '../../base/uid.ts'
import type { CvssScore } from './vulnerability-source.ts'
import type { Order, SortKey } from './order.ts'

/** The facets by which advisories are found: one per filter of ListAdvisories, and `latestType` for the newest approved event. */
export const advisoryFacets = [
  'advisoryId',
  'legacyId',
  'artifactName',
  'artifactType',
  'artifactArchitecture',
  'componentName',
  'componentType',
  'componentLocation',
  'alias',
  'origin',
  'eventState',
  'eventAuthor',
  'eventReviewer',
  'eventType',
  'latestType',
] as const

/** The name of a facet. */
export type AdvisoryFacet = (typeof advisoryFacets)[number]

/** Values of one facet: an advisory matches if it has at least one of them. */
export type FacetValues = readonly [facet: AdvisoryFacet, values: readonly string[]]

/** The advisories that a list is about. All parts are ANDed. */
export interface AdvisoryFilter {
  /** The groups whose advisories the caller may see, in uid order. */
  readonly groups: readonly Uid[]
  /** Only these uids; undefined for all. */
  readonly uids: readonly string[] | undefined
  readonly anyOf: readonly FacetValues[]
  /** Advisories that match one of these are left out. */
  readonly noneOf: readonly FacetValues[]
  /** Text in the artifact name, the component name or an alias, without regard to case. Empty for all. */
  readonly text: string
}

/** One page of a list. */
export interface AdvisoryQuery {
  readonly filter: AdvisoryFilter
  readonly order: Order
  /** Only advisories after this place. It need not be the place of an advisory. */
  readonly after: SortKey | undefined
  readonly skip: number
  readonly limit: number
}

/** An advisory with its place in any order. */
export interface FoundAdvisory extends SortKey {
  /** The Advisory as protobuf bytes. */
  readonly body: Uint8Array
}

/** A page, and the number of advisories on all pages. It ends early where it would be too large, but has an advisory if any is left. */
export interface AdvisoryPage {
  readonly advisories: readonly FoundAdvisory[]
  /** True if more advisories follow. */
  readonly hasMore: boolean
  readonly total: number
}

/** Which advisories documents are made of. All parts are ANDed. */
export interface OriginQuery {
  /** The groups whose advisories the caller may see, in uid order. */
  readonly groups: readonly Uid[]
  /** Only advisories of this origin package; undefined for all. */
  readonly origin: string | undefined
  /** Only advisories with one of these ids, as their own or as an alias; undefined for all. */
  readonly ids: readonly string[] | undefined
  /** The bounds of the answer. */
  readonly maxAdvisories: number
  readonly maxBytes: number
}

/** An advisory with the package that its artifact is built from. */
export interface OriginAdvisory {
  readonly origin: string
  readonly uid: Uid
  /** The Advisory as protobuf bytes. */
  readonly body: Uint8Array
}

/** Which advisories are about packages. */
export interface PackageAdvisoryQuery {
  /** The groups whose advisories count, in uid order. */
  readonly groups: readonly Uid[]
  /** The names as their ecosystems compare them: see nameForm. Packages of several ecosystems may have one name. */
  readonly names: readonly string[]
  /** The bound of the answer. */
  readonly maxBytes: number
}

/** An advisory with all that is known about its package. */
export interface PackageAdvisory {
  /** The Advisory as protobuf bytes. */
  readonly body: Uint8Array
  /** What its OSV document says about versions, as JSON; undefined if it has none. */
  readonly osv: string | undefined
}

/** The advisories that a document is made of. */
export interface OriginDocument {
  /** The groups whose advisories the caller may see, in uid order. */
  readonly groups: readonly Uid[]
  readonly origin: string
  /** The bounds of the advisories. */
  readonly maxAdvisories: number
  readonly maxBytes: number
}

/** A document of one origin package in a form that other tools read. */
export interface DocumentExport extends OriginDocument {
  readonly format: 'openvex' | 'csaf' | 'osv'
  /** Who publishes the document: a name for people. */
  readonly publisher: string
  /** The URL of the API, without a slash at its end. */
  readonly baseUrl: string
  /** By id, the scores of advisories that have none. */
  readonly scores: ReadonlyMap<string, readonly CvssScore[]>
}

/** A part of a zip with OSV documents, one for each id of advisories. */
export interface OsvPageQuery {
  /** The groups whose advisories the caller may see, in uid order. */
  readonly groups: readonly Uid[]
  /** Only documents of ids after this one, in the order of their bytes. Empty for all. */
  readonly after: string
  /** Where the part begins in the zip, in bytes. */
  readonly offset: number
}

/** The part of a zip, and the records of the documents for its end. */
export interface OsvPage {
  readonly bytes: Uint8Array
  readonly records: Uint8Array
  /** Number of documents. */
  readonly count: number
  /** The `after` of the next part; undefined after the last one. */
  readonly next: string | undefined
}

/**
 * Advisories that do not lie in the store (docs/adr/0033). All answers come from one state. Withdrawn advisories are in no page; `get` finds them.
 */
export interface AdvisorySource {
  /** The groups that have advisories, in uid order. */
  groups(): readonly Uid[]
  /** Resolves with the Advisory as protobuf bytes; undefined if there is none under this uid. */
  get(uid: Uid): Promise<Uint8Array | undefined>
  /** Queries of several organisations, the keys of `turn`, take turns. */
  page(query: AdvisoryQuery, turn: TaskTurn): Promise<AdvisoryPage>
  /** Resolves with all advisories that match, in any order; undefined if they are beyond the bounds. Withdrawn ones are left out. */
  byOrigin(query: OriginQuery, turn: TaskTurn): Promise<readonly OriginAdvisory[] | undefined>
  /** Resolves with the advisories of packages with some names, in any order; undefined if they have more bytes than the bound. Withdrawn ones are left out. */
  ofPackages(query: PackageAdvisoryQuery, turn: TaskTurn): Promise<readonly PackageAdvisory[] | undefined>
  /** Resolves with the names of each vulnerability whose advisories have no scores: its id, then its aliases. Empty if the advisories are beyond the bounds. */
  unscored(query: OriginDocument, turn: TaskTurn): Promise<readonly (readonly string[])[]>
  /** Resolves with a JSON text; empty if no advisory matches, and undefined if they are beyond the bounds. */
  exportDocument(query: DocumentExport, turn: TaskTurn): Promise<Uint8Array | undefined>
  /** Resolves with the next part of a zip. Its cost is bounded, however many advisories there are. */
  osvPage(query: OsvPageQuery, turn: TaskTurn): Promise<OsvPage>
}

/** The bytes after which a page of advisories ends. Clients of gRPC accept 4 MiB. */
export const maxPageBytes = 3 * 1024 * 1024

/** Returns the number of advisories that a page may have: one at least. */
function fitting(advisories: readonly FoundAdvisory[]): number {
  let bytes = 0
  const end = advisories.findIndex(({ body }) => (bytes += body.length) > maxPageBytes)
  return end < 0 ? advisories.length : Math.max(1, end)
}

/** A query, and the turn in which it is answered. */
interface PageAsked {
  readonly query: AdvisoryQuery
  readonly turn: TaskTurn
}

/**
 * Resolves with the number of own advisories among the first `skip` of both together. Own advisory number `n` (from 1) is one of them if at most `skip - n`
 * others come before it. So the one after that many others tells. `own` is in order.
 */
async function countSkipped(source: Pick<AdvisorySource, 'page'>, own: readonly FoundAdvisory[], { query, turn }: PageAsked): Promise<number> {
  const { order, skip } = query
  let [low, high] = [0, Math.min(skip, own.length)]
  while (low < high) {
    const middle = (low + high + 1) >>> 1
    const [other] = (await source.page({ ...query, skip: skip - middle, limit: 1 }, turn)).advisories
    const one = own[middle - 1]
    if (one === undefined || other === undefined || order.compare(one, other) < 0) low = middle
    else high = middle - 1
  }
  return low
}

/**
 * Returns one page of a source and of advisories in memory together. `own` has all of these that match the filter, in any order. No advisory is in both. The
 * number of questions grows with the logarithm of the number of own ones.
 */
export async function mergedPage(
  source: Pick<AdvisorySource, 'page'> | undefined,
  own: readonly FoundAdvisory[],
  { query, turn }: PageAsked,
): Promise<AdvisoryPage> {
  const { order, after, skip, limit } = query
  if (source !== undefined && own.length === 0) return source.page(query, turn)
  const ahead = own.filter((one) => after === undefined || order.compare(one, after) > 0).sort(order.compare)
  const skipped = source === undefined ? Math.min(skip, ahead.length) : await countSkipped(source, ahead, { query, turn })
  const page = (await source?.page({ ...query, skip: skip - skipped }, turn)) ?? { advisories: [], hasMore: false, total: 0 }
  const left = ahead.slice(skipped, skipped + limit + 1)
  // What comes after the end of a page may come after others of the source.
  const end = page.hasMore ? page.advisories.at(-1) : undefined
  const merged = [...page.advisories, ...(end === undefined ? left : left.filter((one) => order.compare(one, end) < 0))].sort(order.compare)
  const advisories = merged.slice(0, Math.min(limit, fitting(merged)))
  return { advisories, hasMore: page.hasMore || merged.length > advisories.length, total: page.total + own.length }
}
