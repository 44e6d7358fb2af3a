import type { Clock } from '../../../src/base/runtime.ts'

/** The machine's time, moved ahead or held by a test. */
export class TestClock implements Clock {
  #aheadMs = 0
  #heldMs: number | undefined

  now(): number {
    return this.#heldMs ?? Date.now() + this.#aheadMs
  }

  /** Moves time ahead for good: it never goes back. */
  advance(ms: number): void {
    this.#aheadMs += ms
  }

  /** Time stands still while `work` runs. */
  async hold<T>(work: () => Promise<T>): Promise<T> {
    this.#heldMs = this.now()
    try {
      return await work()
    } finally {
      this.#heldMs = undefined
    }
  }
}
