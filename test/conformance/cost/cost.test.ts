import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { methods } from '../../../src/base/schema/schema.ts'
import { sendHttp } from '../fuzz/http-client.ts'
import { otherDraft } from '../fuzz/requests/other-draft.ts'
import type { Corpus } from '../fuzz/protocol.ts'
import { Random } from '../fuzz/random.ts'
import { startTarget, type Target } from '../fuzz/target.ts'
import { isFullTier } from '../../support/tier.ts'
import { methodNamed } from '../walk/cases/method-case.ts'
import { callers, leastCost, limitNow, limits, measure, refusedExamples, type Caller, type Run } from './cost-run.ts'
import { dearBody } from './dear-request.ts'

/** Number of requests for each method, by caller. With rights and a credential most requests reach the handler. */
const bodies: Readonly<Record<Caller, number>> = isFullTier
  ? { 'no credential': 200, 'no rights': 200, 'full rights': 200 }
  : { 'no credential': 4, 'no rights': 6, 'full rights': 12 }
/** Requests outside the methods of the schema. */
const otherRequests = isFullTier ? 1000 : 40
const seed = inject('propertySeed') ?? Date.now() | 0
const timeout = 3_600_000

/** Memory that requests may use afterwards: compiled code, filled caches, and a share for each request. */
const memoryOf = (requests: number): number => 16 * 1024 * 1024 + requests * 1024

describe('the cost of a request', () => {
  let target: Target
  let corpus: Corpus
  const run = (caller: Caller): Run => ({ target, corpus, seed, methods, bodies: bodies[caller] })
  const memory = async (): Promise<number> => {
    const { heap, external } = await target.memory()
    return heap + external
  }
  beforeAll(async () => {
    target = await startTarget('sqlite')
    corpus = await target.corpus()
  })
  afterAll(() => target.stop())

  test('the cost of a request is measured with requests that succeed: one for each served method', { timeout }, async () => {
    // Trying a refresh token uses it up, as it has no dry run.
    expect(await refusedExamples(run('full rights'))).toEqual(['SecurityTokenService/ExchangeRefreshToken'])
  })

  test.each(callers)('the cost of a request from a caller with %s is low for every method and body, and leaks no memory', { timeout }, async (caller) => {
    const before = await memory()
    const { dear, sent } = await measure(run(caller), caller)
    expect(dear).toEqual([])
    expect((await memory()) - before).toBeLessThan(memoryOf(sent))
  })

  test.each(['no credential', 'full rights'] as const)(
    'outside the API methods is low with %s: sign-ins, SCIM, the registry host',
    { timeout },
    async (caller) => {
      const dear: string[] = []
      for (let number = 0; number < otherRequests; number++) {
        const { ms, what } = await leastCost(run(caller), caller, (salt) => {
          const random = new Random(seed, 4_000_000 + number)
          const { row, draft } = otherDraft(corpus, random, `cost-${number}-${salt}`)
          if (caller === 'no credential') draft.headers = draft.headers.filter(([name]) => name.toLowerCase() !== 'authorization')
          if (draft.body !== undefined || ['POST', 'PUT', 'PATCH'].includes(draft.verb))
            draft.body = dearBody(random, row.port === 'registry' ? 4 * 1024 * 1024 : 256 * 1024)
          const send = (): Promise<unknown> => sendHttp(draft, { port: target.ports[draft.port], boundMs: 60_000 })
          return { what: `${row.name}, TAPROOT_SEED=${seed} number ${number}`, send }
        })
        if (ms >= limits[caller] && ms >= limitNow(caller)) dear.push(`${ms.toFixed(1)} ms: ${what}`)
      }
      expect(dear).toEqual([])
    },
  )
})

describe('a server with two expensive handlers', () => {
  const expensive = [
    { name: 'IdentitiesService/CreateIdentity', caller: 'full rights' },
    { name: 'IdentitiesService/LookupIdentity', caller: 'no rights' },
  ] as const
  let target: Target
  let corpus: Corpus
  beforeAll(async () => {
    // Twice the limit, which is higher on a slow or busy machine.
    const dear = expensive.map(({ name, caller }) => ({ method: name, ms: 2 * limits[caller] }))
    target = await startTarget('sqlite', {}, dear)
    corpus = await target.corpus()
  })
  afterAll(() => target.stop())

  test.each(expensive)(
    'the cost check reports the method with the expensive handler, and no other: $name by a caller with $caller',
    { timeout },
    async ({ name, caller }) => {
      const asked = [name, 'GroupsService/CreateGroup', 'PingService/Ping'].map(methodNamed)
      const { dear } = await measure({ target, corpus, seed: 7, methods: asked, bodies: 4, repeats: 5 }, caller)
      expect(dear.length).toBeGreaterThan(0)
      expect(dear.filter((line) => !line.includes(name))).toEqual([])
    },
  )
})
