import type { ArtifactQuery, VersionQuery } from '../../cache/lists/library-source.ts'
import { orderOf, type OrderTerm } from '../../cache/lists/order.ts'
import { answerFrom } from '../files/open-thread.ts'
import { LibraryReader } from './library-reader.ts'

/** A query of artifacts as it is sent to the thread: of the order, the terms. */
interface SentArtifactQuery extends Omit<ArtifactQuery, 'order'> {
  readonly terms: readonly OrderTerm[]
}

/** What the thread is asked for. */
export type LibraryTask =
  { readonly kind: 'counts' } | { readonly kind: 'artifacts'; readonly query: SentArtifactQuery } | { readonly kind: 'versions'; readonly query: VersionQuery }

function work(reader: LibraryReader, task: LibraryTask): unknown {
  if (task.kind === 'counts') return reader.counts()
  if (task.kind === 'versions') return reader.versions(task.query)
  const { terms, ...query } = task.query
  return reader.artifacts({ ...query, order: orderOf(terms) })
}

answerFrom((path) => new LibraryReader(path), work)
