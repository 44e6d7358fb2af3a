import { expect, test } from 'vitest'
import { idempotencyLifeMs } from '../../../src/engine/idempotency.ts'
import { outboxRetention } from '../../../src/domains/expire.ts'
import { actions } from './actions.ts'
import { jumpsMs } from './actions-process.ts'
import { namesIn, schedules, type Schedule } from './schedule.ts'

test('wall clocks that jump by less than days remove no event early, even between servers with different clocks', () => {
  expect(2 * Math.max(...jumpsMs)).toBeLessThan(Math.min(outboxRetention.lifeMs, idempotencyLifeMs))
})

test('only the schedule with clock faults can hide a missing event', () => {
  const all: [string, Schedule][] = Object.entries(schedules)
  expect(all.filter(([, { lanes }]) => namesIn(lanes).some((name) => actions[name].expires)).map(([name]) => name)).toEqual(['clocks'])
})
