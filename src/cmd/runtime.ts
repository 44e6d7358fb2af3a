import { randomBytes } from 'node:crypto'
import type { Clock, Random } from '../core/runtime.ts'

/** The machine's time. */
export const systemClock: Clock = { now: () => Date.now() }

/** The machine's randomness. */
export const systemRandom: Random = { bytes: (count) => randomBytes(count) }
