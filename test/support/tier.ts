import { createHash } from 'node:crypto'
import { describe, inject, test, TestRunner } from 'vitest'

declare module 'vitest' {
  interface ProvidedContext {
    /** Seed for the choice of each test's way; constant for one source tree. */
    readonly combinationSeed: number
  }
}

/** True for `npm run test:full`: every combination, and every campaign in full length. */
export const isFullTier = process.env['TAPROOT_TESTS'] === 'full'

/** True if each test runs in all its combinations: in the full tier, or with TAPROOT_SPEC_ALL=1. */
export const runsAll = isFullTier || process.env['TAPROOT_SPEC_ALL'] === '1'

/** A number that follows from a name and the source tree. */
function drawFor(name: string): number {
  return createHash('sha256')
    .update(`${inject('combinationSeed')} ${name}`)
    .digest()
    .readUInt32BE()
}

/** A way to run the test of this name, by name and source tree, so that over time all ways are run. */
export function chosenFor<Way>(name: string, ways: readonly Way[]): Way | undefined {
  return ways[drawFor(name) % ways.length]
}

/** Which of many cases to try. */
export interface Sample<Case> {
  readonly nameOf: (one: Case) => string
  /** Cases of one kind differ only in code that all methods share: one of each kind is tried. */
  readonly kindOf?: ((one: Case) => string) | undefined
  /** The share of the remaining ones to try, rounded up. */
  readonly share: number
}

/** A sample of the cases, by name and source tree, so that over time all are tried. */
export function sampleOf<Case>(cases: readonly Case[], { nameOf, kindOf, share }: Sample<Case>): readonly Case[] {
  const drawn = cases.map((one) => ({ one, draw: drawFor(nameOf(one)) })).sort((a, b) => a.draw - b.draw)
  const ranked = drawn.map(({ one }) => one)
  const ofEachKind = kindOf === undefined ? [] : [...Map.groupBy(ranked, kindOf).values()].flatMap((alike) => alike.slice(0, 1))
  const others = ranked.filter((one) => !ofEachKind.includes(one))
  return [...ofEachKind, ...others.slice(0, Math.ceil(others.length * share))]
}

/** One run of a suite's body among its combinations. */
export interface Combination<Way> {
  /** The suite's name, equal in all its combinations. */
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
