import type { Uid } from '../../base/uid.ts'
import type {
  AdvisoryQuery,
  DocumentExport,
  OriginDocument,
  OriginQuery,
  OsvPage,
  OsvPageQuery,
  PackageAdvisoryQuery,
} from '../../cache/lists/advisory-source.ts'
import { orderOf, type OrderTerm } from '../../cache/lists/order.ts'
import { exportDocument, osvPage, unscoredNames } from '../exports/export-tasks.ts'
import { answerFrom } from '../files/open-thread.ts'
import { AdvisoryReader } from './advisory-reader.ts'

/** A query as it is sent to the thread: of the order, the terms. */
interface SentQuery extends Omit<AdvisoryQuery, 'order'> {
  readonly terms: readonly OrderTerm[]
}

/** What the thread is asked for. */
export type AdvisoryTask =
  | { readonly kind: 'groups' }
  | { readonly kind: 'get'; readonly uid: Uid }
  | { readonly kind: 'page'; readonly query: SentQuery }
  | { readonly kind: 'byOrigin'; readonly query: OriginQuery }
  | { readonly kind: 'ofPackages'; readonly query: PackageAdvisoryQuery }
  | { readonly kind: 'unscored'; readonly query: OriginDocument }
  | { readonly kind: 'exportDocument'; readonly query: DocumentExport }
  | { readonly kind: 'osvPage'; readonly query: OsvPageQuery }

/** The bounds of one part of a zip: other tasks wait for it. */
const partOfZip = { maxIds: 200, maxAdvisories: 1_000, maxBytes: 512 * 1024 }

function document(from: AdvisoryReader, query: DocumentExport): Uint8Array | undefined {
  const found = from.byOrigin({ ...query, ids: undefined }, true)
  if (found === undefined) return undefined
  const ordered = found.toSorted((one, other) => (one.uid < other.uid ? -1 : 1))
  return ordered.length === 0 ? new Uint8Array() : exportDocument(ordered, query, from.builtMs)
}

function nextOfZip(from: AdvisoryReader, query: OsvPageQuery): OsvPage {
  const { found, next } = from.byId({ ...query, ...partOfZip })
  return { ...osvPage(found, query, from.builtMs), next }
}

function work(reader: AdvisoryReader, task: AdvisoryTask): unknown {
  if (task.kind === 'groups') return reader.groups()
  if (task.kind === 'get') return reader.get(task.uid)
  if (task.kind === 'byOrigin') return reader.byOrigin(task.query)
  if (task.kind === 'ofPackages') return reader.ofPackages(task.query)
  if (task.kind === 'unscored') return unscoredNames(reader.byOrigin({ ...task.query, ids: undefined }) ?? [])
  if (task.kind === 'exportDocument') return document(reader, task.query)
  if (task.kind === 'osvPage') return nextOfZip(reader, task.query)
  const { terms, ...query } = task.query
  return reader.page({ ...query, order: orderOf(terms) })
}

answerFrom((path) => new AdvisoryReader(path), work)
