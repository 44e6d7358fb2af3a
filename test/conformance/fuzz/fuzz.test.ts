import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { methods } from '../../../src/base/schema/schema.ts'
import { startTestServer } from '../../support/test-server.ts'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { caseName } from '../walk/cases/method-case.ts'
import { allMutations, makeRequest } from './requests/make-request.ts'
import { otherRequests } from './requests/other-draft.ts'
import { breachLines } from './report.ts'
import { sampleCorpus } from './requests/sample-corpus.ts'
import { Run, type RunResult } from './run.ts'
import { startTarget } from './target.ts'
import { campaignLength } from '../../soak/factor.ts'

const seed = 20_261
/** A limit in milliseconds against a hanging server, not a speed limit. */
const boundMs = 60_000

async function run(store: 'sqlite' | 'etcd', requests: number, env: Readonly<Record<string, string>> = {}): Promise<RunResult> {
  const target = await startTarget(store, env)
  onTestFinished(() => target.stop())
  return await new Run(target, { seed, requests, boundMs }).all()
}

function expectNoBreach({ breaches }: RunResult, store: string): void {
  const again = (request: number): string => `npm run fuzz -- --seed ${seed} --store ${store} --from ${request} --requests 1`
  expect(breaches.map((breach) => breachLines(breach, again(breach.request)))).toEqual([])
}

describeOnStores('a server under malformed and odd requests', (store) => {
  test('a server under malformed and odd requests answers malformed requests with well-formed errors, changes nothing, and keeps running', async () => {
    const result = await run(store, campaignLength({ short: 400, full: 1000 }))
    expectNoBreach(result, store)
    expect(Object.keys(result.tally.of('rest/api'))).toEqual(expect.arrayContaining(['200', '400', '401', '404', '415']))
    expect(Object.keys(result.tally.of('grpc'))).toEqual(expect.arrayContaining(['code 0', 'code 3', 'code 5', 'code 16']))
    expect(Object.keys(result.tally.of('rest/registry'))).toEqual(expect.arrayContaining(['400', '404']))
  })
})

test('reports the limit of an address in the error format of each endpoint', async () => {
  const many = '1000000'
  const result = await run('sqlite', 250, {
    TAPROOT_RATE_LIMIT_ENABLED: 'true',
    TAPROOT_RATE_LIMIT_REQUESTS_PER_SECOND: many,
    TAPROOT_RATE_LIMIT_BURST: many,
    TAPROOT_RATE_LIMIT_ADDRESS_REQUESTS_PER_SECOND: '1',
    TAPROOT_RATE_LIMIT_ADDRESS_BURST: '2',
  })
  expectNoBreach(result, 'sqlite')
  expect(result.tally.of('rest/api')['429']).toBeGreaterThan(0)
  expect(result.tally.of('grpc')['code 8']).toBeGreaterThan(0)
})

describe('the requests of the fuzzer', () => {
  test('the requests of the fuzzer include event streams, each with a deadline', () => {
    const made = Array.from({ length: 5_000 }, (_, at) => makeRequest({ seed, number: at + 1, corpus: sampleCorpus, only: 'rest' }))
    const drafts = made.flatMap((each) => (each.transport === 'rest' ? [each.draft] : []))
    const streams = drafts.filter(({ headers }) => headers.some(([name, value]) => name === 'Accept' && /event-stream/i.test(value)))
    expect(streams.filter(({ path }) => path === '/events/v2/events').length).toBeGreaterThan(5)
    expect(streams.every(({ headers }) => headers.some(([name, value]) => name === 'Request-Timeout' && value === '0.3'))).toBe(true)
  })

  test('the requests of the fuzzer depend only on seed and number', () => {
    for (let number = 1; number <= 50; number++) {
      const [one, same, other] = [seed, seed, seed + 1].map((from) =>
        JSON.stringify(makeRequest({ seed: from, number, corpus: sampleCorpus, only: undefined })),
      )
      expect(one).toBe(same)
      expect(one).not.toBe(other)
    }
  })

  test('the requests of the fuzzer contain every mutation of every table, and call nearly every method of the schema', () => {
    const methodNames = methods.flatMap((method) => ['rest', 'grpc'].map((transport) => `${transport} ${caseName(method)}`))
    const lacking = new Set([...allMutations, ...methodNames])
    for (let number = 1; number <= 10_000 && lacking.size > 0; number++) {
      const { mutations, what, transport } = makeRequest({ seed, number, corpus: sampleCorpus, only: undefined })
      for (const name of [...mutations, `${transport} ${what}`]) lacking.delete(name)
    }
    expect([...lacking]).toEqual([])
  })
})

test('every route outside the API methods has fuzzer rows, and no row names a missing route', async () => {
  const server = await startTestServer()
  onTestFinished(() => server.stop())
  const served = server.running.routes.map(({ method, path }) => `${method} ${path}`)
  expect([...new Set(otherRequests.flatMap(({ route = [] }) => route))].toSorted()).toEqual(served.toSorted())
})

test('npm run fuzz --help lists the options; unknown options are refused', () => {
  const fuzz = (...args: string[]): { status: number | null; stdout: string; stderr: string } =>
    spawnSync(process.execPath, ['--disable-warning=ExperimentalWarning', join(import.meta.dirname, 'main.ts'), ...args], { encoding: 'utf8' })
  expect(fuzz('--help')).toMatchObject({ status: 0, stderr: '', stdout: expect.stringMatching(/--seed[^]*--requests[^]*--only[^]*--store/) as unknown })
  expect(fuzz('--requests', '-1')).toMatchObject({ status: 2, stdout: '' })
})
