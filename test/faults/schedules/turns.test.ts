import { expect, test } from 'vitest'
import type { ScheduleName } from './schedule.ts'
import { runInTurn, type RunOrder, type RunResult, type Tally, type TurnsOptions } from './turns.ts'

const names = ['kills', 'clocks'] as const satisfies ScheduleName[]

/** Simulates a run that makes 3 kills, or as many as are left, and explains 100 operations. */
function brief({ stopAfterKills = Infinity }: RunOrder): RunResult {
  const kills = Math.min(3, stopAfterKills)
  return { kills, killsOf: { member: 1, leader: 0, process: kills - 1 }, checked: 100, violations: [] }
}

async function turns(options: Partial<TurnsOptions>, result: (order: RunOrder) => RunResult = brief): Promise<{ tally: Tally; orders: readonly RunOrder[] }> {
  const orders: RunOrder[] = []
  const run = (order: RunOrder): Promise<RunResult> => {
    orders.push(order)
    return Promise.resolve(result(order))
  }
  const tally = await runInTurn({ names, seed: 7, signal: new AbortController().signal, run, ...options })
  return { tally, orders }
}

test('without a number of kills each schedule runs once', async () => {
  const { tally, orders } = await turns({})
  expect(orders.map(({ name, seed }) => `${name} ${seed}`)).toEqual(['kills 7', 'clocks 7'])
  expect(tally).toMatchObject({ runs: 2, failed: [], kills: 6, killsOf: { member: 2, leader: 0, process: 4 }, checked: 200 })
})

test('with a number of kills all schedules take turns, each turn with another seed, until the number is reached', async () => {
  const { tally, orders } = await turns({ stopAfterKills: 8 })
  expect(orders.map(({ name, seed, stopAfterKills }) => `${name} ${seed} ${stopAfterKills}`)).toEqual(['kills 7 8', 'clocks 7 5', 'kills 8 2'])
  expect(tally.kills).toBe(8)
  expect(Object.fromEntries(tally.killsIn)).toEqual({ kills: 5, clocks: 3 })
})

test.each([
  { how: 'with a failure', wrong: { kills: 3, killsOf: { member: 3, leader: 0, process: 0 }, checked: 0, violations: ['lost'] } },
  { how: 'that was interrupted', wrong: undefined },
])('a schedule $how has no further turn and is reported with its seed', async ({ wrong }) => {
  const { tally, orders } = await turns({ stopAfterKills: 12 }, (order) => (order.name === 'clocks' ? wrong : brief(order)))
  expect(orders.filter(({ name }) => name === 'clocks')).toHaveLength(1)
  expect(tally.failed.map(({ name, seed }) => `${name} ${seed}`)).toEqual(['clocks 7'])
  expect(tally.kills).toBe(12)
})

test('a turn without a kill is the last', async () => {
  const { tally, orders } = await turns({ stopAfterKills: 5 }, () => undefined)
  expect(orders).toHaveLength(2)
  expect(tally).toMatchObject({ kills: 0, runs: 2 })
})

test('no turn starts after a stop', async () => {
  const stopping = new AbortController()
  const { orders } = await turns({ stopAfterKills: 100, signal: stopping.signal, ended: () => stopping.abort() })
  expect(orders).toHaveLength(1)
})
