import { TaskThread, type TaskTurn } from '../base/task-thread.ts'
import type { AuditPage, AuditQuery } from '../engine/audit-query.ts'
import type { IndexTask } from './index-worker.ts'

/** The index of audit events, in a thread of its own: a question takes it milliseconds, and a slow disk more. */
export class IndexThread {
  readonly #thread: TaskThread<IndexTask>

  /** `path` is the file of the index. Unless `isDurable`, the loss of power can cost the last events: their source must be elsewhere. */
  constructor(path: string, isDurable: boolean) {
    this.#thread = new TaskThread(new URL('index-worker.ts', import.meta.url), { path, isDurable })
  }

  /** Adds JSON lines. With `segment` they are its whole content, compressed with gzip. */
  async insert(bytes: Uint8Array, segment?: string): Promise<void> {
    await this.#thread.ask({ kind: 'insert', bytes, ...(segment === undefined ? {} : { segment }) })
  }

  /** Notes segments whose events are there. */
  async note(segments: readonly string[]): Promise<void> {
    await this.#thread.ask({ kind: 'note', segments })
  }

  /** Returns a page of events. Rejects with the signal's reason, or with code 8 if too many questions of the organisation wait. */
  read(query: AuditQuery, turn: TaskTurn): Promise<AuditPage> {
    return this.#thread.ask({ kind: 'read', query }, turn) as Promise<AuditPage> // the answer to this task
  }

  /** Returns the names of the segments that are there. */
  segments(): Promise<readonly string[]> {
    return this.#thread.ask({ kind: 'segments' }) as Promise<readonly string[]> // the answer to this task
  }

  /** Removes events before `timeMs`, and the oldest ones above `maxBytes`. Forgets segments with a name before `before`. Does nothing before the first task. */
  async expire(limits: { readonly timeMs: number; readonly maxBytes: number; readonly before: string }): Promise<void> {
    if (!this.#thread.isIdle) await this.#thread.ask({ kind: 'expire', ...limits })
  }

  /** Ends the thread after its tasks. Later tasks reject. */
  close(): Promise<void> {
    return this.#thread.close()
  }
}
