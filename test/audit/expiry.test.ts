import { randomUUID } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { AuditDatabase } from '../../src/audit/audit-database.ts'
import { slowness } from '../budgets.ts'
import { cpuTimeMs } from '../support/cpu-time.ts'

const events = 4_000
/** Maximum processor time of a step in the middle, in milliseconds. A single step may have to collect garbage. In an index of a million events on a slow disk, a step takes ten times as long. */
const stepMs = 20

test('old events are removed in short steps, because questions wait for each', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-expiry-'))
  const database = AuditDatabase.open(join(directory, 'index.sqlite'), true)
  onTestFinished(async () => {
    database.close()
    await rm(directory, { recursive: true })
  })
  const hex = (number: number, length: number): string => number.toString(16).padStart(length, '0')
  const root = 'a'.repeat(40)
  const lines = Array.from({ length: events }, (_, at) => {
    const group = `${root}/${hex(at % 100, 16)}/${hex(at % 1_000, 16)}/${hex(at % 5_000, 16)}`
    const time = new Date(at).toISOString()
    return JSON.stringify({
      id: randomUUID(),
      time,
      outcome: 'done',
      method: `m${at % 50}`,
      transport: 'http',
      identity: `${root}/${hex(at % 3_000, 16)}`,
      subject: group,
      group,
      root,
      capability: 'groups.create,groups.list',
    })
  })
  expect(database.insert(lines)).toBe(events)
  const steps: number[] = []
  for (let more = true; more;) {
    const start = cpuTimeMs()
    more = database.expire({ timeMs: events, maxBytes: 2 ** 40 })
    steps.push(cpuTimeMs() - start)
  }
  expect(database.read({ groups: undefined, newestFirst: true, skip: 0, limit: 1 }).events).toEqual([])
  const sorted = steps.toSorted((one, other) => one - other)
  expect(sorted[Math.floor(sorted.length / 2)]).toBeLessThan(stepMs * slowness())
})
