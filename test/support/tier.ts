import { createHash } from 'node:crypto'
import { describe, inject, test, TestRunner } from 'vitest'

declare module 'vitest' {
  interface ProvidedContext {
    /** Which of several ways each test is run: the same for one source tree, others for the next. */
    readonly combinationSeed: number
  }
}

/** True where everything runs (`npm run test:full`): every combination, and every campaign in its full length. */
export const isFullTier = process.env['TAPROOT_TESTS'] === 'full'

/** True where each test runs in all its combinations: in the full tier, or with TAPROOT_SPEC_ALL=1. */
export const runsAll = isFullTier || process.env['TAPROOT_SPEC_ALL'] === '1'

/** One of the ways to run the test of this name. It follows from the name and the source tree, so that over time every way is run. */
export function chosenFor<Way>(name: string, ways: readonly Way[]): Way | undefined {
  const hash = createHash('sha256')
    .update(`${inject('combinationSeed')} ${name}`)
    .digest()
  return ways[hash.readUInt32BE() % ways.length]
}

/** What one run of a suite's body is among its runs. */
export interface Combination<Way> {
  /** Names the suite, the same in each of its combinations. */
  readonly suite: string
  readonly way: Way
  /** The ways in which a test of this name exists. */
  readonly waysOf: (test: string) => readonly Way[]
}

/**
 * Keeps those tests and inner suites of the current suite that are chosen for this combination. Call it last in its `describe`.
 * If none is chosen, the first stays: a suite without tests fails. In the full tier and with TAPROOT_SPEC_ALL=1 all stay.
 */
export function keepChosen<Way>({ suite, way, waysOf }: Combination<Way>): void {
  if (runsAll) return
  const { tasks } = TestRunner.getCurrentSuite()
  const kept = tasks.filter(({ name }) => chosenFor(`${suite} ${name}`, waysOf(name)) === way)
  tasks.splice(0, tasks.length, ...(kept.length > 0 ? kept : tasks.slice(0, 1)))
}

/** The names of the tests and inner suites that `register` adds to the suite being collected. */
export function namesAdded(register: () => void): readonly string[] {
  const { tasks } = TestRunner.getCurrentSuite()
  const before = tasks.length
  register()
  return tasks.slice(before).map(({ name }) => name)
}

/** A test of the full tier alone. */
export const fullTierTest = (title: string, run: () => Promise<void>): void => void (isFullTier && test(title, run))

/** A `describe` of the full tier alone. */
export const fullTierDescribe = (title: string, body: () => void): void => void (isFullTier && describe(title, body))
