import type { ActionName } from './actions.ts'
import type { SeededRandom } from './random.ts'
import { namesIn, type Weights } from './schedule.ts'

/** Chooses the next fault of a lane: first each kind once in an order from the seed, then random ones by weight. */
export class FaultOrder {
  readonly #weights: Weights
  readonly #random: SeededRandom
  /** Kinds that were not made yet, the next one first. */
  readonly #due: ActionName[]

  constructor(weights: Weights, random: SeededRandom) {
    this.#weights = weights
    this.#random = random
    this.#due = shuffled(namesIn([weights]), random)
  }

  next(): ActionName {
    // A fault that can't be made now is tried again after the others.
    const name = this.#due.shift()
    if (name === undefined) return chosenByWeight(this.#weights, this.#random)
    this.#due.push(name)
    return name
  }

  /** Records that a fault was made. */
  made(name: ActionName): void {
    const at = this.#due.indexOf(name)
    if (at >= 0) this.#due.splice(at, 1)
  }
}

function shuffled<T>(items: readonly T[], random: SeededRandom): T[] {
  const keyed = items.map((item) => ({ item, place: random.fraction() }))
  return keyed.sort((one, other) => one.place - other.place).map(({ item }) => item)
}

function chosenByWeight(weights: Weights, random: SeededRandom): ActionName {
  // A table of action names.
  const rows = Object.entries(weights) as [ActionName, number][]
  let rest = random.fraction() * rows.reduce((sum, [, weight]) => sum + weight, 0)
  for (const [name, weight] of rows) if ((rest -= weight) < 0) return name
  throw new RangeError('a lane needs faults')
}
