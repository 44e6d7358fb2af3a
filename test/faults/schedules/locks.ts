import type { Lock } from './action.ts'

/** Prevents faults that must not be active at the same time. */
export class Locks {
  /** The last holder or waiter of each lock. */
  readonly #tails = new Map<Lock, Promise<void>>()

  /** Waits for all locks and holds them; the returned function releases them. They are granted in order of request, so that no caller waits for ever. */
  async acquire(locks: readonly Lock[]): Promise<() => void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const before = locks.map((lock) => this.#tails.get(lock))
    for (const lock of locks) this.#tails.set(lock, promise)
    for (const earlier of before) await earlier
    return resolve
  }
}
