import type { TaskThread, TaskTurn } from '../../base/task-thread.ts'
import type { FoundCycle, LifecycleSource, ProductVersion } from '../../cache/lists/lifecycle-source.ts'
import { openThread } from '../files/open-thread.ts'

/** A catalogue that a thread of its own reads. */
export class LifecycleThread implements LifecycleSource {
  readonly #thread: TaskThread<readonly ProductVersion[]>

  private constructor(thread: TaskThread<readonly ProductVersion[]>) {
    this.#thread = thread
  }

  /** Opens the file. Rejects if it is no catalogue of this version. */
  static async open(path: string): Promise<LifecycleThread> {
    const { thread } = await openThread<readonly ProductVersion[]>(new URL('lifecycle-worker.ts', import.meta.url), { path, first: [] })
    return new LifecycleThread(thread)
  }

  cyclesOf(versions: readonly ProductVersion[], turn: TaskTurn): Promise<readonly (FoundCycle | undefined)[]> {
    return this.#thread.ask(versions, turn) as Promise<readonly (FoundCycle | undefined)[]> // the answer to this task
  }

  /** Closes the file after the queries that run. */
  close(): Promise<void> {
    return this.#thread.close()
  }
}
