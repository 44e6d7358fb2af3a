import { expect, test } from 'vitest'
import type { ActionName } from './actions.ts'
import { FaultOrder } from './fault-order.ts'
import { seededRandom } from './random.ts'
import { namesIn, schedules } from './schedule.ts'

const [lane] = schedules.everything.lanes
const kinds = namesIn([lane])

function orderOf(seed: string, faults: number, isMade: (name: ActionName, attempt: number) => boolean = () => true): ActionName[] {
  const order = new FaultOrder(lane, seededRandom(seed))
  return Array.from({ length: faults }, (_, attempt) => {
    const name = order.next()
    if (isMade(name, attempt)) order.made(name)
    return name
  })
}

test('each kind of fault happens once before any happens again', () => {
  expect(orderOf('1', kinds.length).toSorted()).toEqual([...kinds].sort())
})

test('the same seed gives the same faults, another seed different ones', () => {
  expect(orderOf('1', 50)).toEqual(orderOf('1', 50))
  expect(orderOf('1', kinds.length)).not.toEqual(orderOf('2', kinds.length))
})

test('a fault that could not be applied is tried again after the others, until it was applied', () => {
  const order = orderOf('1', kinds.length + 1, (name, attempt) => attempt > 0)
  expect(order[kinds.length]).toBe(order[0])
  expect(new Set(order.slice(0, kinds.length)).size).toBe(kinds.length)
})
