import { expect, test, type TestContext } from 'vitest'
import { chosenFor, isFullTier } from '../support/tier.ts'
import { describeWithPart, skipFor } from '../support/parts/require-part.ts'
import { runSchedule } from './schedules/run.ts'
import { schedules, type Schedule, type Weights } from './schedules/schedule.ts'

/** A short part of `npm run faults` with a fixed seed, so that failures are repeatable (docs/faults.md). */
const seed = 1

/**
 * Maximum time of a run on a busy machine. A run ends once each kind of fault of its schedule was made and healed. The lane with the most kinds decides how
 * long it takes.
 */
const mostMs = 300_000
/** Maximum time to heal, and to check all answers. */
const checkMs = 120_000

/** Keeps one kill, if any, and one other fault of each lane. The choice follows from the source tree, so that over time all are made. */
function shortened(schedule: Schedule): Schedule {
  const lanes = schedule.lanes.map((lane, index): Weights => {
    const names = Object.keys(lane)
    const [kills, others] = [names.filter((name) => name.startsWith('kill ')), names.filter((name) => !name.startsWith('kill '))]
    const chosen = [kills, others].map((some, sort) => chosenFor(`${schedule.summary} ${index} ${sort}`, some))
    return Object.fromEntries(Object.entries(lane).filter(([name]) => chosen.includes(name)))
  })
  return { ...schedule, lanes }
}

async function expectNothingWrong(whole: Schedule, { signal }: TestContext): Promise<void> {
  const schedule = isFullTier ? whole : shortened(whole)
  const report = await runSchedule({ schedule, seed, durationMs: mostMs, stopAfterEachKind: true, signal })
  expect(report.violations).toEqual([])
  expect(report.notMade).toEqual([])
  expect(report.kills).toBeGreaterThan(0)
  expect(report.checked).toBeGreaterThan(0)
  if (report.leftOut.length > 0) skipFor(report.leftOut.join('; '))
}

const timeout = mostMs + checkMs

describeWithPart('history-checker', 'fault schedules', () => {
  describeWithPart('etcd', 'on a cluster', () => {
    test(schedules.everything.summary, { timeout }, (context) => expectNothingWrong(schedules.everything, context))
  })

  test(schedules.embedded.summary, { timeout }, (context) => expectNothingWrong(schedules.embedded, context))

  test(schedules['full-disk'].summary, { timeout }, (context) => expectNothingWrong(schedules['full-disk'], context))
})
