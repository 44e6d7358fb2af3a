import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { parser } from '@prometheus-io/lezer-promql'
import { Registry } from 'prom-client'
import { beforeAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import { methods } from '../../src/base/schema/schema.ts'
import { createControllerMetrics } from '../../src/server/controller-role.ts'
import { callName } from '../../src/transport/calls/call.ts'
import { startTestServer } from '../support/test-server.ts'

const root = resolve(import.meta.dirname, '../..')
const read = (path: string): string => readFileSync(resolve(root, path), 'utf8')

interface Query {
  readonly name: string
  readonly expression: string
}

function alerts(): Query[] {
  // a cast: the file is a list of rules of Prometheus
  const rules = parse(read('charts/taproot/files/alerts.yaml')) as { readonly alert: string; readonly expr: string }[]
  return rules.map(({ alert, expr }) => ({ name: alert, expression: expr.replaceAll('JOB', 'job="taproot", namespace="platform"') }))
}

interface Panel {
  readonly title: string
  readonly targets?: readonly { readonly expr: string }[]
}

function panels(): Query[] {
  const board = JSON.parse(read('charts/taproot/files/dashboard.json')) as { readonly panels: readonly Panel[] } // a cast: the file is a board of Grafana
  // Grafana replaces its variables by times.
  return board.panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ name: title, expression: expr.replaceAll('$__rate_interval', '5m') })))
}

interface Parsed {
  readonly faults: readonly string[]
  readonly metrics: readonly string[]
  readonly labels: readonly string[]
}

function parsed(expression: string): Parsed {
  const found: Record<'faults' | 'metrics' | 'labels', string[]> = { faults: [], metrics: [], labels: [] }
  const kinds: Readonly<Record<string, string[]>> = { Identifier: found.metrics, LabelName: found.labels }
  parser.parse(expression).iterate({
    enter({ type, from, to }) {
      if (type.isError) found.faults.push(expression.slice(from))
      kinds[type.name]?.push(expression.slice(from, to))
    },
  })
  return found
}

/** The labels of each metric, from the table in docs/operations.md. */
function documentedLabels(): ReadonlyMap<string, readonly string[]> {
  const quoted = (cell = ''): string[] => [...cell.matchAll(/`(\w+)`/g)].map((match) => match[1] ?? '')
  const rows = [...read('docs/operations.md').matchAll(/^\| (`taproot_.*?) \| (.*?) \|/gm)]
  return new Map(rows.flatMap(([, names, labels]) => quoted(names).map((name) => [name, quoted(labels)])))
}

/** The type of each metric of all roles. */
const served = new Map<string, string>()

beforeAll(async () => {
  const server = await startTestServer()
  const ofController = new Registry()
  createControllerMetrics(ofController)
  const text = `${await (await fetch(`http://127.0.0.1:${server.config.ops.port}/metrics`)).text()}${await ofController.metrics()}`
  await server.stop()
  for (const [, name = '', type = ''] of text.matchAll(/^# TYPE (\w+) (\w+)$/gm)) served.set(name, type)
})

/** Returns the metric of a series. Those of a histogram have a suffix. */
function metricOf(series: string): string {
  const name = series.replace(/_(?:bucket|sum|count)$/, '')
  if (served.get(name) === 'histogram') return name === series ? `${series} without a suffix` : name
  return series
}

test.each([
  ['alerts', alerts()],
  ['the board', panels()],
])('%s of the chart ask in PromQL for metrics that the server has, and for labels that they have', (_, queries) => {
  expect(queries.length).toBeGreaterThan(20)
  const labelsOf = documentedLabels()
  // Prometheus adds these to each series; `le` is that of a histogram.
  const added = ['job', 'namespace', 'pod', 'le']
  for (const { name, expression } of queries) {
    const { faults, metrics, labels } = parsed(expression)
    expect(faults, name).toEqual([])
    const names = metrics.map(metricOf)
    expect(names, name).not.toEqual([])
    expect(names.filter((metric) => !served.has(metric))).toEqual([])
    const known = [...added, ...names.flatMap((metric) => labelsOf.get(metric) ?? [])]
    expect(
      labels.filter((label) => !known.includes(label)),
      name,
    ).toEqual([])
  }
})

test('alerts and the board name methods of the API', () => {
  const named = [...alerts(), ...panels()].flatMap(({ expression }) => [...expression.matchAll(/method!?="([^"]+)"/g)].map((match) => match[1]))
  expect(named).toContain('EventsService.PullEvents')
  const known = methods.map(callName)
  expect(named.filter((name) => !known.includes(name ?? ''))).toEqual([])
})
