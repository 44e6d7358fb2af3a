import type { TaskThread, TaskTurn } from '../../base/task-thread.ts'
import type { CycleAnswer, FoundProduct, LifecycleSource, ProductVersion } from '../../cache/lists/lifecycle-source.ts'
import { openThread } from '../files/open-thread.ts'

/** Versions whose cycles are looked for, or the name of a product. */
type LifecycleTask = readonly ProductVersion[] | string

/** A catalogue that a thread of its own reads. */
export class LifecycleThread implements LifecycleSource {
  readonly #thread: TaskThread<LifecycleTask>

  private constructor(thread: TaskThread<LifecycleTask>) {
    this.#thread = thread
  }

  /** Opens the file. Rejects if it is no catalogue of this version. */
  static async open(path: string): Promise<LifecycleThread> {
    const { thread } = await openThread<LifecycleTask>(new URL('lifecycle-worker.ts', import.meta.url), { path, first: [] })
    return new LifecycleThread(thread)
  }

  cyclesOf(versions: readonly ProductVersion[], turn: TaskTurn): Promise<readonly CycleAnswer[]> {
    return this.#thread.ask(versions, turn) as Promise<readonly CycleAnswer[]> // the answer to this task
  }

  productNamed(name: string, turn: TaskTurn): Promise<FoundProduct | undefined> {
    return this.#thread.ask(name, turn) as Promise<FoundProduct | undefined> // the answer to this task
  }

  /** Closes the file after the queries that run. */
  close(): Promise<void> {
    return this.#thread.close()
  }
}
