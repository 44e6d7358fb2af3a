import type { TaskThread, TaskTurn } from '../../base/task-thread.ts'
import type { ArtifactPage, ArtifactQuery, LibrarySource, VersionPage, VersionQuery } from '../../cache/lists/library-source.ts'
import type { Ecosystem } from '../../gen/taproot/libraries/v2/artifacts_pb.ts'
import { openThread, RecentQueries } from '../files/open-thread.ts'
import type { LibraryTask } from './library-worker.ts'

/** A catalogue of libraries that a thread of its own reads. */
export class LibraryThread implements LibrarySource {
  readonly #thread: TaskThread<LibraryTask>
  readonly #counts: ReadonlyMap<Ecosystem, number>
  readonly #recent = new RecentQueries<LibraryTask>()

  private constructor(thread: TaskThread<LibraryTask>, counts: ReadonlyMap<Ecosystem, number>) {
    this.#thread = thread
    this.#counts = counts
  }

  /** Opens the file. It first answers what `before` was asked last. Rejects if it is no catalogue of this version. */
  static async open(path: string, before?: LibrarySource): Promise<LibraryThread> {
    const recent = before instanceof LibraryThread ? before.#recent : undefined
    const start = { path, first: { kind: 'counts' }, recent } as const
    const { thread, answer } = await openThread<LibraryTask>(new URL('library-worker.ts', import.meta.url), start)
    return new LibraryThread(thread, answer as ReadonlyMap<Ecosystem, number>) // the answer to this task
  }

  count(ecosystem: Ecosystem): number {
    return this.#counts.get(ecosystem) ?? 0
  }

  artifacts({ order, ...query }: ArtifactQuery, turn: TaskTurn): Promise<ArtifactPage> {
    const sent = { ...query, terms: order.terms }
    this.#recent.note({ kind: 'artifacts', query: { ...sent, after: undefined } }, 0)
    return this.#thread.ask({ kind: 'artifacts', query: sent }, turn) as Promise<ArtifactPage> // the answer to this task
  }

  versions(query: VersionQuery, turn: TaskTurn): Promise<VersionPage | undefined> {
    return this.#thread.ask({ kind: 'versions', query }, turn) as Promise<VersionPage | undefined> // the answer to this task
  }

  /** Closes the file after the queries that run. */
  close(): Promise<void> {
    return this.#thread.close()
  }
}
