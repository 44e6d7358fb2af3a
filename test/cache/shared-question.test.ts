import { setImmediate as turn } from 'node:timers/promises'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { SharedQuestion } from '../../src/cache/shared-question.ts'

beforeEach(() => vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }))
afterEach(() => vi.useRealTimers())

/** Creates a query that is answered at once, and counts its executions. */
function counted(): { question: SharedQuestion<number, number>; asked: () => number; ask: (callers: number) => Promise<number>[] } {
  let asked = 0
  const question = new SharedQuestion<number, number>(
    () => Promise.resolve((asked += 1)),
    (answer) => Promise.resolve(answer),
  )
  return { question, asked: () => asked, ask: (callers) => Array.from({ length: callers }, () => question.result()) }
}

async function turns(): Promise<void> {
  for (let count = 0; count < 5; count++) await turn()
}

test('callers in one turn of the event loop share a query; a later caller gets another', async () => {
  const { ask } = counted()
  expect(await Promise.all(ask(3))).toEqual([1, 1, 1])
  expect(await Promise.all(ask(2))).toEqual([2, 2])
})

test('a query with many callers starts when as many have arrived as last time', async () => {
  const { asked, ask } = counted()
  await Promise.all(ask(20))
  const first = ask(19)
  await turns()
  expect(asked()).toBe(1)
  const last = ask(1)
  expect(await Promise.all([...first, ...last])).toEqual(Array.from({ length: 20 }, () => 2))
})

test('a query with many callers waits at most a millisecond for more', async () => {
  const { asked, ask } = counted()
  await Promise.all(ask(20))
  const few = ask(2)
  await turns()
  expect(asked()).toBe(1)
  await vi.advanceTimersByTimeAsync(1)
  expect(await Promise.all(few)).toEqual([2, 2])
})

test('a query does not wait for callers that did not return', async () => {
  const { asked, ask } = counted()
  await Promise.all(ask(20))
  // The expected crowd falls: 20, 18, 16.2, 14.58, 13.12, and then below the minimum.
  for (let waited = 1; waited <= 5; waited++) {
    const alone = Promise.all(ask(1))
    await turns()
    expect(asked()).toBe(waited)
    await vi.advanceTimersByTimeAsync(1)
    await alone
  }
  expect(await Promise.all(ask(1))).toEqual([7])
})
