import { workerData } from 'node:worker_threads'
import { RecentMap } from '../../base/recent-map.ts'
import { answerTasks, TaskThread } from '../../base/task-thread.ts'

/** A thread that has a catalogue file open, and its first answer. */
export interface OpenThread<Task> {
  readonly thread: TaskThread<Task>
  readonly answer: unknown
}

/** Number of queries to remember. */
const rememberedQueries = 100
/** Maximum number of groups of a query, and its maximum length in characters of JSON. Writing 10,000 groups as JSON would take the event loop 1.5 ms. */
const mostGroups = 150
const longestQuery = 10_000
/** Maximum time in milliseconds to ask them again. */
const repeatingMs = 5_000

/**
 * The last different queries of a catalogue. The next catalogue answers them before it is served, and remembers what it found: the first answer for a filter
 * takes long.
 */
export class RecentQueries<Task extends NonNullable<unknown>> {
  readonly #tasks = new RecentMap<string, Task>(rememberedQueries)

  /** Notes a query about `groups` groups. */
  note(task: Task, groups: number): void {
    if (groups > mostGroups) return
    const key = JSON.stringify(task)
    if (key.length <= longestQuery) this.#tasks.set(key, task)
  }

  /** Asks all of them, the last one first, until time is up. Failures are ignored: they are of single queries. */
  async askAgain(thread: TaskThread<Task>): Promise<void> {
    const deadline = performance.now() + repeatingMs
    for (const task of [...this.#tasks.values()]) if (performance.now() < deadline) await thread.ask(task).catch(() => undefined)
  }
}

/** What a thread opens, and its first tasks. */
export interface ThreadStart<Task extends NonNullable<unknown>> {
  readonly path: string
  readonly first: Task
  /** The queries of the catalogue that is served until now. */
  readonly recent?: RecentQueries<Task> | undefined
}

/**
 * Starts the thread of a catalogue file: queries take up to a second, and would block the event loop. `module` calls `answerFrom`. Rejects with the error of the
 * first task, which opens the file at `path`; then no thread is left.
 */
export async function openThread<Task extends NonNullable<unknown>>(module: URL, { path, first, recent }: ThreadStart<Task>): Promise<OpenThread<Task>> {
  const thread = new TaskThread<Task>(module, { path })
  try {
    const answer = await thread.ask(first)
    await recent?.askAgain(thread)
    return { thread, answer }
  } catch (error) {
    await thread.close()
    throw error
  }
}

/** Answers the tasks of the thread that this module runs in. The first one opens the file, and its answer then has the error. */
export function answerFrom<Reader extends { close(): void }, Task>(open: (path: string) => Reader, work: (reader: Reader, task: Task) => unknown): void {
  const { path } = workerData as { readonly path: string } // of openThread
  let reader: Reader | undefined
  answerTasks<Task>(
    (task) => work((reader ??= open(path)), task),
    () => reader?.close(),
  )
}
