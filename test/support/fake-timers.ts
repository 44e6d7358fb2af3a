import { setImmediate } from 'node:timers/promises'
import type { Timers } from '../../src/base/timing.ts'

/** A clock that only moves when a test advances it. */
export class FakeTimers implements Timers {
  #now = 0
  readonly #alarms = new Set<{ readonly at: number; readonly ring: () => void }>()

  now(): number {
    return this.#now
  }

  start(ms: number, ring: () => void): () => void {
    const alarm = { at: this.#now + ms, ring }
    this.#alarms.add(alarm)
    return () => void this.#alarms.delete(alarm)
  }

  /** Milliseconds until the next alarm; undefined if there is none. */
  get nextInMs(): number | undefined {
    const next = Math.min(...[...this.#alarms].map(({ at }) => at))
    return Number.isFinite(next) ? next - this.#now : undefined
  }

  /** Lets time pass, and runs due alarms in order, each with its consequences. */
  async pass(ms: number): Promise<void> {
    const end = this.#now + ms
    for (;;) {
      await settled()
      const due = [...this.#alarms].filter(({ at }) => at <= end).sort((one, other) => one.at - other.at)[0]
      if (due === undefined) break
      this.#alarms.delete(due)
      this.#now = Math.max(this.#now, due.at)
      due.ring()
    }
    this.#now = end
    await settled()
  }
}

/** Resolves after all ready work and its consequences. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 4; turn++) await setImmediate()
}
