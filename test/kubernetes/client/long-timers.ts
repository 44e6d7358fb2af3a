import { systemTimers, type Timers } from '../../../src/base/timing.ts'

/** The process's own clock, except that long waits end on command. */
export class LongTimers implements Timers {
  readonly #alarms = new Set<{ readonly ms: number; readonly ring: () => void }>()
  readonly #longMs: number

  /** Waits of `longMs` milliseconds or more are long. */
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

  /** The requested lengths of the pending long waits. */
  get held(): readonly number[] {
    return [...this.#alarms].map(({ ms }) => ms)
  }

  /** Ends the long waits for which `which` is true. */
  ring(which: (ms: number) => boolean): void {
    for (const alarm of [...this.#alarms].filter(({ ms }) => which(ms))) {
      this.#alarms.delete(alarm)
      alarm.ring()
    }
  }
}
