import { workerData } from 'node:worker_threads'
import { answerTasks } from '../../base/task-thread.ts'
import type { Uid } from '../../base/uid.ts'
import type { AdvisoryQuery, OriginQuery } from '../../cache/lists/advisory-source.ts'
import { orderOf, type OrderTerm } from '../../cache/lists/order.ts'
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

const { path } = workerData as { readonly path: string } // of AdvisoryThread
let reader: AdvisoryReader | undefined

function work(task: AdvisoryTask): unknown {
  // Opened by the first task, whose answer then has the error.
  reader ??= new AdvisoryReader(path)
  if (task.kind === 'groups') return reader.groups()
  if (task.kind === 'get') return reader.get(task.uid)
  if (task.kind === 'byOrigin') return reader.byOrigin(task.query)
  const { terms, ...query } = task.query
  return reader.page({ ...query, order: orderOf(terms) })
}

answerTasks(work, () => reader?.close())
