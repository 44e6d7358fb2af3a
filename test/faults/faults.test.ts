import { expect, test } from 'vitest'
import { describeWithPart } from '../parts/require-part.ts'
import { runSchedule } from './schedules/run.ts'
import { schedules, type Schedule } from './schedules/schedule.ts'

/** A short part of `npm run faults`, with fixed seeds: what is wrong is repeated with them (docs/faults.md). */
const seed = 1

async function expectNothingWrong(schedule: Schedule, seconds: number): Promise<void> {
  const { violations, leftOut, kills, checked } = await runSchedule({ schedule, seed, durationMs: seconds * 1000, signal: new AbortController().signal })
  expect(violations).toEqual([])
  expect(kills).toBeGreaterThan(0)
  expect(checked).toBeGreaterThan(0)
  for (const line of leftOut) console.warn(`left out: ${line}`)
}

describeWithPart('history-checker', 'faults', () => {
  describeWithPart('etcd', 'of a cluster', () => {
    test(schedules.everything.summary, { timeout: 240_000 }, () => expectNothingWrong(schedules.everything, 60))
  })

  test(schedules.embedded.summary, { timeout: 120_000 }, () => expectNothingWrong(schedules.embedded, 15))

  test(schedules['full-disk'].summary, { timeout: 120_000 }, () => expectNothingWrong(schedules['full-disk'], 10))
})
