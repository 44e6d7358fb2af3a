import { performance } from 'node:perf_hooks'

/** The lower quartile: what else the machine does only ever makes a call longer, so it moves the upper ones. */
function quartile(times: readonly number[]): number {
  return [...times].sort((one, other) => one - other)[Math.floor(times.length / 4)] ?? 0
}

function difference(pairs: readonly (readonly [number, number])[]): number {
  return quartile(pairs.map(([one]) => one)) - quartile(pairs.map(([, other]) => other))
}

/** The largest difference of so many divisions of the same pairs that have nothing to do with what was asked. */
function noise(pairs: readonly (readonly [number, number])[], divisions: number): number {
  const shuffled = (): number => Math.abs(difference(pairs.map(([one, other]) => (Math.random() < 0.5 ? [one, other] : [other, one]))))
  return Math.max(...Array.from({ length: divisions }, shuffled))
}

async function timeOf(call: () => Promise<unknown>): Promise<number> {
  const start = performance.now()
  await call()
  return performance.now() - start
}

/** Two questions that must take equally long, and how they are tried. */
export interface Comparison {
  readonly one: () => Promise<unknown>
  readonly other: () => Promise<unknown>
  /** Calls of each in one round. */
  readonly pairs: number
  /** A difference must show in so many rounds, each time in the same direction. */
  readonly rounds: number
}

/** What a round has shown, in milliseconds. */
export interface Round {
  readonly difference: number
  readonly noise: number
  readonly usual: number
}

/** Asks both so often and compares. */
export async function round({ one, other, pairs }: Comparison): Promise<Round> {
  const times: [number, number][] = []
  while (times.length < pairs) {
    // Which comes first is left to chance: the second may find something warm.
    if (Math.random() < 0.5) times.push([await timeOf(one), await timeOf(other)])
    else {
      const second = await timeOf(other)
      times.push([await timeOf(one), second])
    }
  }
  return { difference: difference(times), noise: noise(times, 100), usual: quartile(times.map(([, time]) => time)) }
}

/** Less than a twentieth of a call is nothing that this can tell. */
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
