import type { TaskThread, TaskTurn } from '../../base/task-thread.ts'
import type { ArtifactPage, ArtifactQuery, LibrarySource, VersionPage, VersionQuery } from '../../cache/lists/library-source.ts'
import type { Ecosystem } from '../../gen/taproot/libraries/v2/artifacts_pb.ts'
import { openThread } from '../files/open-thread.ts'
import type { LibraryTask } from './library-worker.ts'

/** A catalogue of libraries that a thread of its own reads. */
export class LibraryThread implements LibrarySource {
  readonly #thread: TaskThread<LibraryTask>
  readonly #counts: ReadonlyMap<Ecosystem, number>

  private constructor(thread: TaskThread<LibraryTask>, counts: ReadonlyMap<Ecosystem, number>) {
    this.#thread = thread
    this.#counts = counts
  }

  /** Opens the file. Rejects if it is no catalogue of this version. */
  static async open(path: string): Promise<LibraryThread> {
    const { thread, answer } = await openThread<LibraryTask>(new URL('library-worker.ts', import.meta.url), { path, first: { kind: 'counts' } })
    return new LibraryThread(thread, answer as ReadonlyMap<Ecosystem, number>) // the answer to this task
  }

  count(ecosystem: Ecosystem): number {
    return this.#counts.get(ecosystem) ?? 0
  }

  artifacts({ order, ...query }: ArtifactQuery, turn: TaskTurn): Promise<ArtifactPage> {
    return this.#thread.ask({ kind: 'artifacts', query: { ...query, terms: order.terms } }, turn) as Promise<ArtifactPage> // the answer to this task
  }

  versions(query: VersionQuery, turn: TaskTurn): Promise<VersionPage | undefined> {
    return this.#thread.ask({ kind: 'versions', query }, turn) as Promise<VersionPage | undefined> // the answer to this task
  }

  /** Closes the file after the queries that run. */
  close(): Promise<void> {
    return this.#thread.close()
  }
}
