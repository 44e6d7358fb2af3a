import { parentPort, Worker } from 'node:worker_threads'
import { DomainError } from './errors.ts'
import { errorText } from './error-text.ts'
import { untilAborted } from './timing.ts'

/** A task as it is sent to the thread; undefined ends the thread. */
interface Request<Task> {
  readonly number: number
  readonly task: Task | undefined
}

/** The answer to the task of the same number. */
type Answer = { readonly number: number } & ({ readonly result: unknown } | { readonly error: Error })

/** Whose task it is: tasks of several keys take turns, one at a time. A task that waits when the signal aborts is not sent. */
export interface TaskTurn {
  readonly key: string
  readonly signal: AbortSignal
}

interface WaitingTask<Task> {
  readonly task: Task
  readonly signal: AbortSignal
  readonly done: PromiseWithResolvers<unknown>
}

/** Maximum number of tasks of one key that wait. */
const maxWaiting = 100

/**
 * A thread of its own for work that would block the event loop. It starts with the first task, and keeps the process alive only while tasks run. If it fails,
 * its tasks reject, and the next task starts a new thread. Its module calls `answerTasks`.
 */
export class TaskThread<Task> {
  readonly #module: URL
  readonly #data: unknown
  #worker: Worker | undefined
  #isClosed = false
  #number = 0
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>()
  /** Tasks that wait for their turn, by key. The first key is the next one. */
  readonly #turns = new Map<string, WaitingTask<Task>[]>()
  #isTurnTaken = false
  #turnsEnded = Promise.withResolvers<void>()

  /** `module` is the thread's module, and `data` its `workerData`. */
  constructor(module: URL, data: unknown) {
    this.#module = module
    this.#data = data
  }

  /** True if no task was sent since the start, or since a failure of the thread. */
  get isIdle(): boolean {
    return this.#worker === undefined
  }

  /**
   * Resolves with what the thread returns for the task. Without `turn`, the task is sent at once. Rejects with the error of the task, or if the thread ends.
   * Rejects with the signal's reason, or with code 8 if too many tasks of the key wait.
   */
  async ask(task: Task, turn?: TaskTurn): Promise<unknown> {
    if (this.#isClosed) throw new Error('the thread is closed')
    if (turn === undefined) return this.#send(task)
    const { key, signal } = turn
    const queue = this.#turns.get(key) ?? []
    if (queue.length >= maxWaiting)
      throw new DomainError(8, 'too many requests of the organisation are waiting: repeat the request later', {
        reason: 'RATE_LIMITED',
        details: { retryAfterMs: 1_000 },
      })
    const waiting: WaitingTask<Task> = { task, signal, done: Promise.withResolvers() }
    queue.push(waiting)
    this.#turns.set(key, queue)
    this.#nextTurn()
    return untilAborted(waiting.done.promise, signal)
  }

  /** Ends the thread after the tasks that it was asked for. Later tasks reject. */
  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    if (this.#isTurnTaken) await this.#turnsEnded.promise
    const worker = this.#worker
    if (worker === undefined) return
    await this.#send(undefined).catch(() => undefined)
    await worker.terminate()
  }

  #nextTurn(): void {
    if (this.#isTurnTaken) return
    for (const [key, queue] of this.#turns) {
      const next = queue.shift()
      this.#turns.delete(key)
      if (queue.length > 0) this.#turns.set(key, queue)
      if (next === undefined || next.signal.aborted) continue
      this.#isTurnTaken = true
      void this.#takeTurn(next)
      return
    }
    this.#turnsEnded.resolve()
    this.#turnsEnded = Promise.withResolvers()
  }

  /** Never rejects. */
  async #takeTurn({ task, done }: WaitingTask<Task>): Promise<void> {
    try {
      done.resolve(await this.#send(task))
    } catch (error) {
      done.reject(error)
    }
    this.#isTurnTaken = false
    this.#nextTurn()
  }

  #send(task: Task | undefined): Promise<unknown> {
    const worker = (this.#worker ??= this.#start())
    const number = (this.#number += 1)
    const waiting = Promise.withResolvers<unknown>()
    this.#waiting.set(number, waiting)
    worker.ref()
    const request: Request<Task> = { number, task }
    worker.postMessage(request)
    return waiting.promise
  }

  #start(): Worker {
    const worker = new Worker(this.#module, { workerData: this.#data })
    worker.on('message', (answer: Answer) => {
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
    worker.on('exit', () => end(new Error('the thread ended')))
    return worker
  }
}

/** Answers the tasks of a TaskThread, in the thread: `work` makes the result of a task, and `close` frees what the thread holds. Tasks may overlap while `work` waits. */
export function answerTasks<Task>(work: (task: Task) => unknown, close: () => void): void {
  parentPort?.on('message', ({ number, task }: Request<Task>) => {
    const answer = (message: Answer): void => parentPort?.postMessage(message)
    const made = async (): Promise<unknown> => (task === undefined ? close() : work(task))
    made()
      .then((result) => answer({ number, result }))
      .catch((error: unknown) => answer({ number, error: error instanceof Error ? error : new Error(errorText(error)) }))
      .finally(() => {
        if (task === undefined) parentPort?.close()
      })
  })
}
