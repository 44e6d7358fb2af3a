import { Worker } from 'node:worker_threads'
import type { AuditPage, AuditQuery } from '../engine/audit-query.ts'
import type { IndexAnswer, IndexTask } from './index-worker.ts'

/** The answer to each task. */
interface Results {
  readonly insert: undefined
  readonly note: undefined
  readonly read: AuditPage
  readonly segments: readonly string[]
  readonly expire: undefined
  readonly close: undefined
}

/** The index of audit events, in a thread of its own. The thread starts with the first task and keeps no process alive. After a failure of the thread, the next task gets a new one. */
export class IndexThread {
  readonly #path: string
  readonly #isDurable: boolean
  #worker: Worker | undefined
  #isClosed = false
  #number = 0
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>()

  /** `path` is the file of the index. Unless `isDurable`, the loss of power can cost the last events: their source must be elsewhere. */
  constructor(path: string, isDurable: boolean) {
    this.#path = path
    this.#isDurable = isDurable
  }

  /** Adds JSON lines. With `segment` they are its whole content, compressed with gzip. */
  insert(bytes: Uint8Array, segment?: string): Promise<undefined> {
    return this.#ask('insert', { kind: 'insert', bytes, ...(segment === undefined ? {} : { segment }) })
  }

  /** Notes segments whose events are there. */
  note(segments: readonly string[]): Promise<undefined> {
    return this.#ask('note', { kind: 'note', segments })
  }

  /** Returns a page of events. */
  read(query: AuditQuery): Promise<AuditPage> {
    return this.#ask('read', { kind: 'read', query })
  }

  /** Returns the names of the segments that are there. */
  segments(): Promise<readonly string[]> {
    return this.#ask('segments', { kind: 'segments' })
  }

  /** Removes events before `timeMs`, and the oldest ones above `maxBytes`. Forgets segments with a name before `before`. Does nothing before the first task. */
  async expire(limits: { readonly timeMs: number; readonly maxBytes: number; readonly before: string }): Promise<void> {
    if (this.#worker !== undefined) await this.#ask('expire', { kind: 'expire', ...limits })
  }

  /** Ends the thread after its tasks. Later tasks reject. */
  async close(): Promise<void> {
    if (this.#worker !== undefined) await this.#ask('close', { kind: 'close' }).catch(() => undefined)
    this.#isClosed = true
    await this.#worker?.terminate()
  }

  #ask<Kind extends keyof Results>(_kind: Kind, task: IndexTask): Promise<Results[Kind]> {
    if (this.#isClosed) return Promise.reject(new Error('the index of audit events is closed'))
    const worker = (this.#worker ??= this.#start())
    const number = (this.#number += 1)
    const waiting = Promise.withResolvers<unknown>()
    this.#waiting.set(number, waiting)
    worker.ref()
    worker.postMessage({ number, task })
    return waiting.promise as Promise<Results[Kind]> // the thread answers each task so
  }

  #start(): Worker {
    const worker = new Worker(new URL('index-worker.ts', import.meta.url), { workerData: { path: this.#path, isDurable: this.#isDurable } })
    worker.on('message', (answer: IndexAnswer) => {
      const waiting = this.#waiting.get(answer.number)
      this.#waiting.delete(answer.number)
      if (this.#waiting.size === 0) worker.unref()
      if ('error' in answer) waiting?.reject(answer.error)
      else waiting?.resolve(answer.result)
    })
    const end = (error: Error): void => {
      if (this.#worker !== worker) return
      this.#worker = undefined
      for (const { reject } of this.#waiting.values()) reject(error)
      this.#waiting.clear()
    }
    worker.on('error', end)
    worker.on('exit', () => end(new Error('the thread of the index of audit events ended')))
    return worker
  }
}
