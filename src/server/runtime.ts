import { randomBytes } from 'node:crypto'
import type { Clock, Random } from '../base/runtime.ts'

/** The clock of the machine. */
export const systemClock: Clock = { now: () => Date.now() }

/** Number of random bytes to fetch at once. Fetching a few takes as long as fetching this many. */
const fetchedBytes = 4096

/** The random number generator of the machine. No byte is returned twice. */
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
