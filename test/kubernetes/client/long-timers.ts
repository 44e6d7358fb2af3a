import { systemTimers, type Timers } from '../../../src/base/timing.ts'

/** The process's own clock, except for long waits: these end on command. */
export class LongTimers implements Timers {
  readonly #alarms = new Set<{ readonly ms: number; readonly ring: () => void }>()
  readonly #longMs: number

  /** Waits of `longMs` milliseconds or more are long: no test waits for them. */
  constructor(longMs = 300_000) {
    this.#longMs = longMs
  }

  now(): number {
    return systemTimers.now()
  }

  start(ms: number, ring: () => void): () => void {
    if (ms < this.#longMs) return systemTimers.start(ms, ring)
    const alarm = { ms, ring }
    this.#alarms.add(alarm)
    return () => void this.#alarms.delete(alarm)
  }

  /** How long each of the long waits that go on was to be. */
  get held(): readonly number[] {
    return [...this.#alarms].map(({ ms }) => ms)
  }

  /** Ends the long waits of which `which` is true. */
  ring(which: (ms: number) => boolean): void {
    for (const alarm of [...this.#alarms].filter(({ ms }) => which(ms))) {
      this.#alarms.delete(alarm)
      alarm.ring()
    }
  }
}
