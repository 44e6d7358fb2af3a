import { answerTasks } from '../../src/base/task-thread.ts'

/** A task of the thread: it waits, fails, ends the thread, or is answered. */
export type SlowTask = { readonly name: string } & { readonly waitMs?: number; readonly fails?: true; readonly ends?: true }

answerTasks(
  ({ name, waitMs = 0, fails, ends }: SlowTask) => {
    if (fails) throw new Error(`${name} failed`)
    if (ends) process.exit(1)
    // As a query of a database does: nothing else runs in this thread meanwhile.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, waitMs)
    return name
  },
  () => undefined,
)
