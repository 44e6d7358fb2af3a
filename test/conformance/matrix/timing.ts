import { performance } from 'node:perf_hooks'

/** Returns the lower quartile: other programs only make calls longer, which changes the upper quartiles. */
function quartile(times: readonly number[]): number {
  return [...times].sort((one, other) => one - other)[Math.floor(times.length / 4)] ?? 0
}

function difference(pairs: readonly (readonly [number, number])[]): number {
  return quartile(pairs.map(([one]) => one)) - quartile(pairs.map(([, other]) => other))
}

/** Returns the largest difference among random divisions of the same pairs, as a measure of noise. */
function noise(pairs: readonly (readonly [number, number])[], divisions: number): number {
  const shuffled = (): number => Math.abs(difference(pairs.map(([one, other]) => (Math.random() < 0.5 ? [one, other] : [other, one]))))
  return Math.max(...Array.from({ length: divisions }, shuffled))
}

async function timeOf(call: () => Promise<unknown>): Promise<number> {
  const start = performance.now()
  await call()
  return performance.now() - start
}

/** Two calls that must take equally long, and the number of samples. */
export interface Comparison {
  readonly one: () => Promise<unknown>
  readonly other: () => Promise<unknown>
  /** Number of calls of each in one round. */
  readonly pairs: number
  /** Number of rounds in which a difference must appear, each time in the same direction. */
  readonly rounds: number
}

/** The result of a round, in milliseconds. */
export interface Round {
  readonly difference: number
  readonly noise: number
  readonly usual: number
}

/** Times both calls `pairs` times and compares them. */
export async function round({ one, other, pairs }: Comparison): Promise<Round> {
  const times: [number, number][] = []
  while (times.length < pairs) {
    // The order is random, because the second call may find warm caches.
    if (Math.random() < 0.5) times.push([await timeOf(one), await timeOf(other)])
    else {
      const second = await timeOf(other)
      times.push([await timeOf(one), second])
    }
  }
  return { difference: difference(times), noise: noise(times, 100), usual: quartile(times.map(([, time]) => time)) }
}

/** A difference below a twentieth of a call can not be detected. */
const leastShare = 0.05

/**
 * The rounds that reveal which of the two was asked for; empty if one did not, so that a busy machine reveals nothing.
 * A round counts if its lower quartiles differ by more than in 100 random divisions of the same times. They must also differ by a twentieth of a call.
 */
export async function compareTimings(comparison: Comparison): Promise<readonly Round[]> {
  const rounds: Round[] = []
  while (rounds.length < comparison.rounds) {
    const found = await round(comparison)
    const isClear = Math.abs(found.difference) > found.noise && Math.abs(found.difference) > leastShare * found.usual
    if (!isClear || (rounds[0] !== undefined && Math.sign(rounds[0].difference) !== Math.sign(found.difference))) return []
    rounds.push(found)
  }
  return rounds
}
