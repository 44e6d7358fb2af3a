import { TaskThread } from '../../base/task-thread.ts'

/** A thread that has a catalogue file open, and its first answer. */
export interface OpenThread<Task> {
  readonly thread: TaskThread<Task>
  readonly answer: unknown
}

/**
 * Starts the thread of a catalogue file: queries take up to a second, and would block the event loop. `module` opens the file at `path` for the first task.
 * Rejects with the error of that task; then no thread is left.
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
