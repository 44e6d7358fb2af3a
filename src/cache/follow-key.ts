import { errorText } from '../base/error-text.ts'
import type { Log } from '../base/log.ts'
import type { Clock } from '../base/runtime.ts'
import { Alarm, backoffMs, type Backoff } from '../base/timing.ts'
import type { RecordCache } from './record-cache.ts'

/** The dependencies of `followKey`. */
export interface FollowOptions {
  readonly cache: RecordCache
  readonly clock: Clock
  readonly log: Log
}

/** What follows a key of the store. */
export interface KeyFollower {
  readonly key: string
  /** Does what the key says now. */
  readonly catchUp: (signal: AbortSignal) => Promise<void>
  /** What the log says if that fails. */
  readonly failure: string
  /** Called after each attempt to catch up, successful or not. */
  readonly onTried?: (() => void) | undefined
}

const backoff: Backoff = { firstMs: 500, maxMs: 30_000 }

/** Catches up with a key at once, and after each of its changes, until the signal is aborted. A failure is logged and tried again. Never rejects. */
export async function followKey({ cache, clock, log }: FollowOptions, { key, catchUp, failure, onTried }: KeyFollower, signal: AbortSignal): Promise<void> {
  const changed = new Alarm()
  const forget = [cache.onKey((one) => (one === key ? changed.ring() : undefined)), cache.onReset(changed.ring)]
  for (let failures = 0; !signal.aborted;) {
    changed.arm()
    try {
      await catchUp(signal)
      failures = 0
      onTried?.()
      await changed.until(Infinity, { clock, signal })
    } catch (error) {
      onTried?.()
      if (signal.aborted) break
      failures += 1
      const afterMs = backoffMs(backoff, failures)
      log.error(failure, { afterMs, error: errorText(error) })
      await changed.within(afterMs, signal)
    }
  }
  for (const end of forget) end()
}
