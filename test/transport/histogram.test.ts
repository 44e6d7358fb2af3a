import { Histogram, Registry } from 'prom-client'
import { expect, test } from 'vitest'
import { createHistogram } from '../../src/transport/histogram.ts'

test('a histogram has the text of prom-client, also for the bounds, values beyond them, and labels that are named twice', async () => {
  const [ours, theirs] = [new Registry(), new Registry()]
  const shape = { name: 'test_seconds', help: 'a "help"\nin two lines', labelNames: ['route', 'method'] as const, buckets: [0.001, 0.5, 2] }
  const seriesOf = createHistogram({ ...shape, registers: [ours] })
  const histogram = new Histogram({ ...shape, registers: [theirs] })
  const rows = [
    { route: 'a', method: 'GET' },
    { route: 'b"\n', method: 'GET' },
    { method: 'GET', route: 'a' },
  ] as const
  for (const labels of rows) {
    const count = seriesOf(labels)
    for (const value of [0, 0.001, 0.0010001, 0.5, 1, 2, 3, 0.25]) {
      count(value)
      histogram.observe(labels, value)
    }
  }
  expect(await ours.metrics()).toBe(await theirs.metrics())
})
