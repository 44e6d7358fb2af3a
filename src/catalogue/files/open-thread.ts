import { workerData } from 'node:worker_threads'
import { answerTasks, TaskThread } from '../../base/task-thread.ts'

/** A thread that has a catalogue file open, and its first answer. */
export interface OpenThread<Task> {
  readonly thread: TaskThread<Task>
  readonly answer: unknown
}

/**
 * Starts the thread of a catalogue file: queries take up to a second, and would block the event loop. `module` calls `answerFrom`. Rejects with the error of the
 * first task, which opens the file at `path`; then no thread is left.
 */
export async function openThread<Task>(module: URL, { path, first }: { readonly path: string; readonly first: Task }): Promise<OpenThread<Task>> {
  const thread = new TaskThread<Task>(module, { path })
  try {
    return { thread, answer: await thread.ask(first) }
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
