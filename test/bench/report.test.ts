import { describe, expect, it } from 'vitest'
import { Histogram } from '../../bench/load/histogram.ts'
import { chart } from '../../bench/report/chart.ts'
import { table } from '../../bench/report/table.ts'
import type { Row } from '../../bench/rows/row.ts'

const rows: readonly Row[] = [
  { id: 'get', title: 'GET to <Koa> & "route"', unit: 'x', value: 0.59949, cpu: 0.7, goal: { atLeast: 0.6 }, measured: [] },
  { id: 'memory', title: 'memory per record', unit: 'B', value: 1234.5, goal: { atMost: 1300 }, measured: [] },
  { id: 'tokens', title: 'signature checks', unit: '', value: 1, goal: { atMost: 1 }, measured: [] },
]

describe('Histogram', () => {
  it('returns quantiles with an error below 2 %', () => {
    const histogram = new Histogram()
    for (let at = 1; at <= 1000; at++) histogram.add(at / 10)
    for (const [quantile, milliseconds] of [
      [0.5, 50],
      [0.99, 99],
      [1, 100],
    ] as const)
      expect(Math.abs(histogram.at(quantile) / milliseconds - 1)).toBeLessThan(0.02)
  })

  it('adds counts, and has no quantile if empty', () => {
    const [one, other] = [new Histogram(), new Histogram()]
    expect(one.at(0.5)).toBeNaN()
    one.add(1)
    other.add(100)
    one.merge(other)
    expect(one.total).toBe(2)
    expect(one.at(1)).toBeGreaterThan(95)
  })
})

describe('report', () => {
  it('report marks each result that meets its target, and each that misses it', () => {
    const lines = table(rows).split('\n')
    expect(lines.map((line) => line.split(/ {2,}/))).toEqual([
      ['', 'measured', 'by CPU time', 'goal'],
      ['GET to <Koa> & "route"', '0.599 x', '0.7 x', 'at least 0.6 x', 'missed'],
      ['memory per record', '1,235 B', 'at most 1,300 B', 'reached'],
      ['signature checks', '1', 'at most 1', 'reached'],
    ])
  })

  it('report draws a chart with every target, with a text alternative', () => {
    const svg = chart(rows, 'today')
    expect(svg).toContain('<desc id="desc">GET to &lt;Koa&gt; &amp; &quot;route&quot;: 0.599 x, goal at least 0.6 x, missed.')
    expect(svg.match(/class="(?:reached|missed)"/g)).toEqual(['class="missed"', 'class="reached"', 'class="reached"'])
    expect(svg).toContain('prefers-color-scheme: dark')
  })
})
