import { workerData } from 'node:worker_threads'
import { answerTasks } from '../../base/task-thread.ts'
import type { ArtifactQuery, VersionQuery } from '../../cache/lists/library-source.ts'
import { orderOf, type OrderTerm } from '../../cache/lists/order.ts'
import { LibraryReader } from './library-reader.ts'

/** A query of artifacts as it is sent to the thread: of the order, the terms. */
interface SentArtifactQuery extends Omit<ArtifactQuery, 'order'> {
  readonly terms: readonly OrderTerm[]
}

/** What the thread is asked for. */
export type LibraryTask =
  { readonly kind: 'counts' } | { readonly kind: 'artifacts'; readonly query: SentArtifactQuery } | { readonly kind: 'versions'; readonly query: VersionQuery }

const { path } = workerData as { readonly path: string } // of LibraryThread
let reader: LibraryReader | undefined

function work(task: LibraryTask): unknown {
  // Opened by the first task, whose answer then has the error.
  reader ??= new LibraryReader(path)
  if (task.kind === 'counts') return reader.counts()
  if (task.kind === 'versions') return reader.versions(task.query)
  const { terms, ...query } = task.query
  return reader.artifacts({ ...query, order: orderOf(terms) })
}

answerTasks(work, () => reader?.close())
