import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { picker } from '../../cache/records.ts'
import { campaignLength, soakFactor, timeoutUnlessSoaking } from '../../soak/factor.ts'
import type { NaiveWorld } from './naive-world.ts'
import { change } from './random-changes.ts'
import { getOne, listSome } from './random-reads.ts'
import { start, type Real } from './real-world.ts'

/** The duration of the random calls for each store, in milliseconds. If they are too few by then to prove something, they go on. */
const budgetMs = campaignLength({ short: 3_000, full: 14_000 })
const fewest = { calls: 300, pages: 100 }

/** One random thing to do; its seed decides everything about it. */
class Step implements fc.AsyncCommand<NaiveWorld, Real> {
  readonly #title: 'list' | 'get' | 'change'
  readonly #seed: number
  readonly #isOver: () => boolean

  constructor(title: 'list' | 'get' | 'change', seed: number, isOver: () => boolean) {
    this.#isOver = isOver
    this.#title = title
    this.#seed = seed
  }

  check(): boolean {
    return !this.#isOver()
  }

  async run(_world: NaiveWorld, real: Real): Promise<void> {
    await { list: listSome, get: getOne, change }[this.#title](picker(this.#seed), real)
  }

  toString(): string {
    return `${this.#title}(${this.#seed})`
  }
}

describeOnStores('random API calls', (store) => {
  let real: Real
  beforeAll(async () => {
    real = await start(store)
  })
  afterAll(() => real.server.stop())

  test(
    'random API calls get the same answers as a simple model: creates, updates, deletes and lists, by callers with different reach',
    { timeout: timeoutUnlessSoaking(300_000) },
    async () => {
      const endMs = performance.now() + budgetMs
      const isOver = (): boolean => performance.now() > endMs && real.calls > fewest.calls && real.pages > fewest.pages
      const step = (title: 'list' | 'get' | 'change'): fc.Arbitrary<Step> => fc.noBias(fc.integer()).map((seed) => new Step(title, seed, isOver))
      const weighted = [step('change'), step('change'), step('change'), step('list'), step('list'), step('get')]
      const run = (steps: Iterable<fc.AsyncCommand<NaiveWorld, Real>>): Promise<void> => fc.asyncModelRun(() => ({ model: real.world, real }), steps)
      // Each run goes on from the world that the run before left, so a failing run is not tried again in parts.
      await fc.assert(fc.asyncProperty(fc.commands(weighted, { maxCommands: 60, size: 'max' }), run), {
        numRuns: 300 * soakFactor,
        endOnFailure: true,
      })
      // A run that did hardly anything proves nothing.
      expect(real.calls).toBeGreaterThan(fewest.calls)
      expect(real.pages).toBeGreaterThan(fewest.pages)
      expect(real.world.all('Group').length).toBeGreaterThan(5)
    },
  )
})
