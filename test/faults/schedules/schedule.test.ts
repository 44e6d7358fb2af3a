import { expect, test } from 'vitest'
import { idempotencyLifeMs } from '../../../src/engine/idempotency.ts'
import { outboxRetention } from '../../../src/catalog/expire.ts'
import { actions } from './actions.ts'
import { jumpsMs } from './actions-process.ts'
import { namesIn, schedules, type Schedule } from './schedule.ts'

test('wall clocks that do not jump by days trim nothing early, also where one that was behind wrote what one that is ahead trims', () => {
  expect(2 * Math.max(...jumpsMs)).toBeLessThan(Math.min(outboxRetention.lifeMs, idempotencyLifeMs))
})

test("only the schedule of clocks makes faults after which a missing event can't be recognised", () => {
  const all: [string, Schedule][] = Object.entries(schedules)
  expect(all.filter(([, { lanes }]) => namesIn(lanes).some((name) => actions[name].expires)).map(([name]) => name)).toEqual(['clocks'])
})
