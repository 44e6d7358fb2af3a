import { TaskThread, type TaskTurn } from '../../base/task-thread.ts'
import type { Uid } from '../../base/uid.ts'
import type { AdvisoryPage, AdvisoryQuery, AdvisorySource, OriginAdvisory, OriginQuery } from '../../cache/lists/advisory-source.ts'
import type { ReaderTask } from './reader-worker.ts'

/** A catalogue that a thread of its own reads: counts and searches take up to a second. */
export class ReaderThread implements AdvisorySource {
  readonly #thread: TaskThread<ReaderTask>
  readonly #groups: readonly Uid[]

  private constructor(thread: TaskThread<ReaderTask>, groups: readonly Uid[]) {
    this.#thread = thread
    this.#groups = groups
  }

  /** Opens the file. Rejects if it is no catalogue of this version. */
  static async open(path: string): Promise<ReaderThread> {
    const thread = new TaskThread<ReaderTask>(new URL('reader-worker.ts', import.meta.url), { path })
    try {
      return new ReaderThread(thread, (await thread.ask({ kind: 'groups' })) as readonly Uid[]) // the answer to this task
    } catch (error) {
      await thread.close()
      throw error
    }
  }

  groups(): readonly Uid[] {
    return this.#groups
  }

  get(uid: Uid): Promise<Uint8Array | undefined> {
    return this.#thread.ask({ kind: 'get', uid }) as Promise<Uint8Array | undefined> // the answer to this task
  }

  page({ order, ...query }: AdvisoryQuery, turn: TaskTurn): Promise<AdvisoryPage> {
    return this.#thread.ask({ kind: 'page', query: { ...query, terms: order.terms } }, turn) as Promise<AdvisoryPage> // the answer to this task
  }

  byOrigin(query: OriginQuery, turn: TaskTurn): Promise<readonly OriginAdvisory[] | undefined> {
    return this.#thread.ask({ kind: 'byOrigin', query }, turn) as Promise<readonly OriginAdvisory[] | undefined> // the answer to this task
  }

  /** Closes the file after the queries that run. */
  close(): Promise<void> {
    return this.#thread.close()
  }
}
