import { connect } from 'node:net'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { Counter, Histogram, Registry } from 'prom-client'
import { describe, expect, test } from 'vitest'
import { defaultNamespaces, httpBindings, serviceAliases } from '../../src/transport/aliases.ts'
import { Counts, Durations, MetricsRegistry } from '../../src/transport/hot-metrics.ts'
import { httpError } from '../../src/transport/errors-http.ts'
import { createCallMetrics } from '../../src/transport/metrics.ts'
import { createOpsServer } from '../../src/transport/web/ops.ts'
import type { ReadyCheck } from '../../src/transport/web/ops.ts'
import { DomainError } from '../../src/base/errors.ts'
import type { Code } from '../../src/base/errors.ts'
import type { MethodRow } from '../../src/base/schema/method.ts'
import { methods } from '../../src/base/schema/schema.ts'

const ignore = (): void => {}
const silent = { debug: ignore, info: ignore, warn: ignore, error: ignore }

async function withOps<T>(checks: readonly ReadyCheck[], run: (url: string, registry: MetricsRegistry) => Promise<T>): Promise<T> {
  const registry = new MetricsRegistry()
  const server = createOpsServer({ checks, registry, log: silent, checkTimeoutMs: 50, headersTimeoutMs: 300 })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  try {
    return await run(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, registry)
  } finally {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
}

describe('the operations port', () => {
  test('the operations port shows health, readiness and the failing checks', async () => {
    const state = { store: true }
    const checks: ReadyCheck[] = [
      { name: 'store', check: async () => state.store },
      { name: 'snapshot', check: async () => true },
    ]
    await withOps(checks, async (url) => {
      expect((await fetch(`${url}/healthz`)).status).toBe(200)
      expect((await fetch(`${url}/readyz`)).status).toBe(200)
      state.store = false
      const response = await fetch(`${url}/readyz?verbose`)
      expect([response.status, await response.text()]).toEqual([503, 'not ready: store\n'])
      expect((await fetch(`${url}/healthz`)).status).toBe(200)
    })
  })

  test('the operations port counts a check that throws or hangs as failed', async () => {
    const checks: ReadyCheck[] = [
      { name: 'throws', check: () => Promise.reject(new Error('no')) },
      {
        name: 'throws at once',
        check: () => {
          throw new Error('no')
        },
      },
      { name: 'hangs', check: () => new Promise(() => {}) },
      { name: 'works', check: async () => true },
    ]
    await withOps(checks, async (url) => {
      const response = await fetch(`${url}/readyz`)
      expect([response.status, await response.text()]).toEqual([503, 'not ready: throws, throws at once, hangs\n'])
    })
  })

  test('the operations port serves metrics, and errors for unknown paths and verbs', async () => {
    await withOps([], async (url, registry) => {
      const metrics = createCallMetrics(registry)
      metrics.start('GroupsService.GetGroup', 'http')(5)
      metrics.start('GroupsService.GetGroup', 'grpc')(0)
      metrics.start('GroupsService.GetGroup', 'grpc')
      const text = await (await fetch(`${url}/metrics`)).text()
      expect(text).toContain('taproot_requests_total{method="GroupsService.GetGroup",transport="http",code="NOT_FOUND"} 1')
      expect(text).toContain('taproot_requests_total{method="GroupsService.GetGroup",transport="grpc",code="OK"} 1')
      expect(text).toContain('taproot_requests_in_flight{transport="grpc"} 1')
      expect(text).toContain('taproot_request_duration_seconds_bucket')
      const missing = await fetch(`${url}/constructor`)
      expect([missing.status, await missing.json()]).toMatchObject([404, { code: 5, message: 'no such path' }])
      const post = await fetch(`${url}/metrics`, { method: 'POST' })
      expect([post.status, post.headers.get('allow'), await post.json()]).toMatchObject([405, 'HEAD, GET, OPTIONS', { code: 12 }])
    })
  })

  test('the operations port closes the connection if headers do not arrive, with the common error format', async () => {
    await withOps([], async (url) => {
      const socket = connect(Number(new URL(url).port), '127.0.0.1')
      socket.write('GET /healthz HTTP/1.1\r\nHost: x\r\n')
      const answer = await text(socket)
      expect(answer).toMatch(/^HTTP\/1\.1 408 /)
      expect(JSON.parse(answer.slice(answer.indexOf('\r\n\r\n')))).toMatchObject({ code: 4 })
    })
  })

  test('the operations port answers HEAD with the headers of GET, and every answer has a request id', async () => {
    await withOps([], async (url) => {
      for (const path of ['/healthz', '/readyz', '/metrics', '/nothing']) {
        const [get, head] = [await fetch(`${url}${path}`), await fetch(`${url}${path}`, { method: 'HEAD' })]
        const { length } = await get.text()
        expect([head.status, await head.text()]).toEqual([get.status, ''])
        for (const name of ['content-type', 'cache-control', 'x-content-type-options']) expect(head.headers.get(name)).toBe(get.headers.get(name))
        expect(length).toBeGreaterThan(0)
        expect(head.headers.get('x-request-id')).toMatch(/./)
      }
    })
  })
})

test('a histogram and a counter of requests write the lines of those of prom-client', async () => {
  const [ours, theirs] = [new MetricsRegistry(), new Registry()]
  const [name, help, buckets] = ['seconds', 'Line 1\nC:\\', [0.001, 0.5, 10]]
  const durations = new Durations<'method' | 'code'>({ name, help, buckets, registry: ours })
  const counts = new Counts<'method' | 'code'>({ name: 'total', help, registry: ours })
  const histogram = new Histogram({ name, help, buckets, labelNames: ['method', 'code'], registers: [theirs] })
  const counter = new Counter({ name: 'total', help, labelNames: ['method', 'code'], registers: [theirs] })
  expect(await ours.metrics()).toBe(`\n\n${await theirs.metrics()}`)
  const allLabels = [
    { method: 'GET', code: 'OK' },
    { method: 'a "quoted"\n\\ name', code: '' },
  ]
  for (const labels of [...allLabels, ...allLabels])
    for (const seconds of [0, 0.001, 0.0011, 0.5, 3, 10, 10.5, 1e9]) {
      durations.series(labels)(seconds)
      histogram.observe(labels, seconds)
      counts.series(labels)()
      counts.series(labels)(2)
      counter.inc(labels, 3)
    }
  expect(await ours.metrics()).toBe(`\n\n${await theirs.metrics()}`)
})

describe('names of services for existing clients', () => {
  test.each([
    ['taproot.iam.v2.GroupsService', ['chainguard.platform.iam.v2.GroupsService', 'chainguard.platform.iam.v2beta1.GroupsService']],
    ['taproot.oidc.v1.SecurityTokenService', ['chainguard.platform.oidc.SecurityTokenService']],
    ['taproot.auth.v1.Auth', ['chainguard.platform.auth.Auth']],
    ['taproot.vulnerabilities.v1.Advisories', ['chainguard.platform.vulnerabilities.v1.Advisories']],
    ['grpc.health.v1.Health', []],
  ])('%s is also served as %j', (service, aliases) => {
    expect(serviceAliases(service, defaultNamespaces)).toEqual(aliases)
  })

  test('no two methods share a route, except a stream and its long poll', () => {
    const routesOf = (rows: readonly MethodRow[]): string[] =>
      rows.flatMap((row) => httpBindings(row, true).map(({ verb, template }) => `${verb} ${template.replaceAll(/\{[^=}]*/g, '{')}`))
    const [streams, others] = [routesOf(methods.filter(({ streaming }) => streaming)), routesOf(methods.filter(({ streaming }) => !streaming))]
    expect(new Set(others).size).toBe(others.length)
    expect(new Set(streams).size).toBe(streams.length)
    for (const route of streams) expect(others).toContain(route)
  })

  test('paths with v2beta1 are served only if the setting for them is on', () => {
    const row = methods.find(({ rpc }) => rpc === 'GetGroup')
    expect(row && httpBindings(row, false).map(({ template }) => template)).toEqual(['/iam/v2/groups/{uid=**}'])
    expect(row && httpBindings(row, true).map(({ template }) => template)).toEqual(['/iam/v2/groups/{uid=**}', '/iam/v2beta1/groups/{uid=**}'])
  })
})

describe('HTTP errors', () => {
  test.each([
    [3, 400],
    [9, 400],
    [11, 400],
    [16, 401],
    [7, 403],
    [5, 404],
    [6, 409],
    [10, 409],
    [8, 429],
    [12, 501],
    [14, 503],
    [4, 504],
    [13, 500],
    [2, 500],
  ] as const satisfies readonly (readonly [Code, number])[])('code %s is status %s', (code, status) => {
    const answer = httpError(new DomainError(code, 'm'), { requestId: 'r', domain: 'iam' })
    expect(answer.status).toBe(status)
    expect(answer.body).toMatchObject({
      code,
      message: 'm',
      details: [{ '@type': 'type.googleapis.com/google.rpc.ErrorInfo', domain: 'iam.taproot.dev', metadata: { requestId: 'r' } }],
    })
  })

  test('failed preconditions and missing resources have their details', () => {
    const blocked = httpError(DomainError.precondition([{ type: 'RESOURCE_NOT_EMPTY', description: 'd' }]), { requestId: 'r', domain: 'iam' })
    expect(blocked.body.message).toBe('Precondition failed: d')
    expect(blocked.body.details[1]).toEqual({
      '@type': 'type.googleapis.com/google.rpc.PreconditionFailure',
      violations: [{ type: 'RESOURCE_NOT_EMPTY', description: 'd' }],
    })
    const resource = { resourceType: 'iam.taproot.dev/Group', resourceName: 'n', owner: '', description: 'd' }
    const missing = httpError(new DomainError(5, 'm', { details: { resource } }), { requestId: 'r', domain: 'iam' })
    expect(missing.body.details[1]).toEqual({ '@type': 'type.googleapis.com/google.rpc.ResourceInfo', ...resource })
  })
})
