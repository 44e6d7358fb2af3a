import { setTimeout as delay } from 'node:timers/promises'

/** The limits of a wait. */
export interface UntilOptions {
  readonly withinMs: number
  /** The awaited condition, for the error message. */
  readonly what: string
  /** Ends the wait with the signal's reason. */
  readonly signal?: AbortSignal | undefined
  readonly everyMs?: number
}

/** Polls `condition` until it holds. Throws if it does not in time. */
export async function until(condition: () => boolean | Promise<boolean>, { withinMs, what, signal, everyMs = 25 }: UntilOptions): Promise<void> {
  const deadline = performance.now() + withinMs
  while (!(await condition())) {
    signal?.throwIfAborted()
    if (performance.now() > deadline) throw new Error(`${what}: not within ${withinMs / 1000} s`)
    await delay(everyMs)
  }
}
