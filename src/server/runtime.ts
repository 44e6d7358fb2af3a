import { randomBytes } from 'node:crypto'
import type { Clock, Random } from '../base/runtime.ts'

/** The machine's time. */
export const systemClock: Clock = { now: () => Date.now() }

/** Bytes that are fetched at once: a call for a few takes as long as one for these. */
const fetchedBytes = 4096

/** The machine's randomness. Each byte is given once. */
export const systemRandom: Random = createSystemRandom()

function createSystemRandom(): Random {
  let fetched = Buffer.alloc(0)
  let at = 0
  return {
    bytes(count) {
      if (count > fetchedBytes / 16) return randomBytes(count)
      if (at + count > fetched.length) {
        fetched = randomBytes(fetchedBytes)
        at = 0
      }
      at += count
      return fetched.subarray(at - count, at)
    },
  }
}
