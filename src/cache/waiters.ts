import { StoreError, type Revision } from '../store/store.ts'

interface Waiter {
  readonly revision: Revision
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

/** The callers that wait until the snapshot contains a certain commit. */
export class Waiters {
  readonly #waiting = new Set<Waiter>()

  /**
   * Resolves once `reached` is called with `revision` or a later one. Rejects with StoreError `unavailable` after `timeoutMs` milliseconds, or with the
   * signal's reason.
   */
  async wait(revision: Revision, timeoutMs: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted()
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const waiter = { revision, resolve, reject }
    this.#waiting.add(waiter)
    const timer = setTimeout(() => reject(new StoreError('unavailable', 'the watch on the store did not show a commit in time')), timeoutMs)
    const abort = (): void => reject(signal?.reason)
    signal?.addEventListener('abort', abort, { once: true })
    try {
      await promise
    } finally {
      clearTimeout(timer)
      signal?.removeEventListener('abort', abort)
      this.#waiting.delete(waiter)
    }
  }

  /** Resolves all calls that wait for `revision` or an earlier one. */
  reached(revision: Revision): void {
    for (const waiter of this.#waiting) if (waiter.revision <= revision) waiter.resolve()
  }

  /** Rejects all waiting calls with `error`. */
  fail(error: unknown): void {
    for (const waiter of this.#waiting) waiter.reject(error)
  }
}
