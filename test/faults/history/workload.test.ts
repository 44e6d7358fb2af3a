import type { JsonObject } from '@bufbuild/protobuf'
import { decodeJwt } from 'jose'
import { beforeAll, expect, onTestFinished, test } from 'vitest'
import { startTestServer, type TestServer } from '../../support/test-server.ts'
import { describeOnStores, describeWithPart } from '../../support/parts/require-part.ts'
import { until } from '../cluster/until.ts'
import { seededRandom } from '../schedules/random.ts'
import { checkHistory, type ConditionStatus } from './check-history.ts'
import { finalAudit } from './audit/final-audit.ts'
import { History } from './history.ts'
import { startViewProxy, type Answer, type View } from './view-proxy.ts'
import { startWorkload, type Workload, type WorkloadSummary } from './workload.ts'

const runMs = 60_000

async function startServer(store: 'sqlite' | 'etcd'): Promise<{ server: TestServer; url: string }> {
  const server = await startTestServer({ store })
  onTestFinished(() => server.stop())
  return { server, url: `http://127.0.0.1:${server.config.api.port}` }
}

interface Run {
  readonly history: History
  readonly summary: WorkloadSummary
  readonly errors: readonly string[]
  readonly conditionStatus: ConditionStatus
}

/** Runs a workload through `url` until it has made enough operations. With `isHonest` it also settles and audits it. */
async function run(of: {
  server: TestServer
  url: string
  operations: number
  isHonest: boolean
  seed?: number
  repeatsCreations?: boolean
  meanwhile?: (workload: Workload) => Promise<void>
}): Promise<Run> {
  const { server, url, operations, isHonest, seed = 7, repeatsCreations = true, meanwhile } = of
  const history = new History()
  const workload = startWorkload({ endpoints: [url], token: () => server.operatorToken(), seed, repeatsCreations, clients: 6, history, callTimeoutMs: 10_000 })
  await meanwhile?.(workload)
  await until(() => workload.ended >= operations, { withinMs: runMs, what: `${operations} operations end` })
  const summary = await workload.stop()
  if (isHonest) await workload.settle()
  const errors = isHonest ? (await finalAudit({ store: server.running.engine.store, history })).errors : []
  return { history, summary, errors, conditionStatus: await checkHistory(history) }
}

const allWell = { ok: true, failures: [], unknown: [] }

describeOnStores('a workload on a healthy server', (store) => {
  describeWithPart('history-checker', 'with the history checker', () => {
    test('a workload on a healthy server with the history checker accepts all answers, and the store is consistent', { timeout: 2 * runMs }, async () => {
      const { summary, errors, conditionStatus, history } = await run({ ...(await startServer(store)), operations: 500, isHonest: true })
      expect(errors).toEqual([])
      expect(conditionStatus).toMatchObject({ ...allWell, checked: history.operations.length })
      expect(summary.outcomes.unknown).toBe(0)
      // The clients do conflict with each other.
      for (const outcome of ['ok', 'absent', 'stale', 'taken'] as const) expect(summary.outcomes[outcome], outcome).toBeGreaterThan(0)
      const uses = history.operations.filter((operation) => operation.action === 'use')
      // A guest is both allowed and refused.
      for (const outcome of ['ok', 'absent'] as const) expect(uses.filter((use) => use.outcome === outcome).length, outcome).toBeGreaterThan(0)
    })

    test.each([
      { how: 'unanswered creates are repeated, and happen once', repeatsCreations: true },
      { how: 'unanswered creates are not repeated', repeatsCreations: false },
    ])(
      'a workload on a healthy server with the history checker accepts all answers if some are lost: $how',
      { timeout: 2 * runMs },
      async ({ repeatsCreations }) => {
        const { server, url } = await startServer(store)
        const random = seededRandom('lost answers')
        const lossy: View = async (_, forward) => {
          const roll = random.fraction()
          if (roll < 0.05) return undefined
          const answer = await forward()
          return roll < 0.15 ? undefined : answer
        }
        const proxy = await startViewProxy(url, lossy)
        onTestFinished(() => proxy.close())
        const meanwhile = async (workload: Workload): Promise<void> => {
          for (let goal = 50; goal < 400; goal += 50) {
            await until(() => workload.ended >= goal, { withinMs: runMs, what: 'operations end' })
            proxy.breakAll()
          }
        }
        // Repetitions go through the same proxy.
        const { summary, errors, conditionStatus } = await run({ server, url: proxy.url, operations: 400, isHonest: true, repeatsCreations, meanwhile })
        expect(errors).toEqual([])
        expect(conditionStatus).toMatchObject(allWell)
        expect(summary.outcomes.unknown).toBeGreaterThan(0)
      },
    )
  })
})

/** Changes the body of the answer. */
function changed(answer: Answer, change: (body: JsonObject) => JsonObject | undefined): Answer {
  const body = JSON.parse(answer.body) as JsonObject
  return { status: answer.status, body: JSON.stringify(change(body) ?? body) }
}

const isList = (path: string): boolean => path.includes('?')

/** Servers with occasional faults: each is a view of a correct server. */
const liars: Readonly<Record<string, () => View>> = {
  'answers reads out of an old cache': () => {
    const kept = new Map<string, Answer>()
    return async ({ method, path }, forward) => {
      if (method !== 'GET' || isList(path)) return forward()
      const answer = kept.get(path) ?? (await forward())
      kept.set(path, answer)
      return answer
    }
  },
  'answers lists out of an old cache': () => {
    const kept = new Map<string, Answer>()
    return async ({ method, path }, forward) => {
      if (method !== 'GET' || !isList(path)) return forward()
      const answer = kept.get(path) ?? (await forward())
      kept.set(path, answer)
      return answer
    }
  },
  'leaves the newest record out of lists':
    () =>
    async ({ method, path }, forward) => {
      const answer = await forward()
      if (method !== 'GET' || !isList(path) || answer.status !== 200) return answer
      return changed(answer, (body) => {
        const [plural, records] = Object.entries(body).find((entry): entry is [string, JsonObject[]] => Array.isArray(entry[1])) ?? ['', []]
        const newest = records.toSorted((one, other) => String(other['createTime']).localeCompare(String(one['createTime'])))[0]
        return newest === undefined ? body : { ...body, [plural]: records.filter((record) => record !== newest), totalCount: String(records.length - 1) }
      })
    },
  'acknowledges changes that it does not make': () => {
    const random = seededRandom('not made')
    return async (request, forward) => {
      if (request.method !== 'PATCH' || random.fraction() < 0.5) return forward()
      const uid = request.path.replace(/^.*?([0-9a-f]{40})/, '$1')
      const { name = '', description = '' } = JSON.parse(request.body) as { name?: string; description?: string }
      return { status: 200, body: JSON.stringify({ uid, name, description, etag: `e${random.fraction()}`, identity: {}, role: {} }) }
    }
  },
  'acknowledges removals that it does not make':
    () =>
    async ({ method }, forward) =>
      method === 'DELETE' ? { status: 200, body: '{}' } : forward(),
  'takes no account of etags': () => async (request, forward) => {
    // The forwarded request has the same headers object.
    delete (request.headers as Record<string, string>)['if-match']
    return forward()
  },
  'decides about rights out of an old cache': () => {
    const kept = new Map<string, Answer>()
    const random = seededRandom('rights')
    return async ({ method, path, headers }, forward) => {
      const token = headers['authorization']?.replace('Bearer ', '') ?? ''
      // The caller is an operator, who is a person: the uid of an identity contains its group, too.
      if (method !== 'GET' || isList(path) || decodeJwt(token).sub?.includes('/') !== true) return forward()
      const answer = (random.fraction() < 0.5 ? kept.get(path) : undefined) ?? (await forward())
      kept.set(path, answer)
      return answer
    }
  },
  'makes every record twice':
    () =>
    async ({ method, headers }, forward) => {
      const isPlain = method === 'POST' && headers['idempotency-key'] === undefined
      if (isPlain) await forward()
      return forward()
    },
  'forgets idempotency keys and loses answers': () => {
    const random = seededRandom('forgets')
    return async (request, forward) => {
      delete (request.headers as Record<string, string>)['idempotency-key']
      const answer = await forward()
      return request.method === 'POST' && random.fraction() < 0.6 ? undefined : answer
    }
  },
}

/** The number of operations in one attempt to find a wrong answer, and the maximum number of attempts. Of 200, a quarter showed no stale list. */
const operationsAtATime = 500
const maxTimes = 6

describeWithPart('history-checker', 'the workload detects a faulty server', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await startTestServer({ store: 'sqlite' })
    return () => server.stop()
  })

  for (const [what, view] of Object.entries(liars)) {
    test(`one that ${what}`, { timeout: 2 * runMs }, async () => {
      const proxy = await startViewProxy(`http://127.0.0.1:${server.config.api.port}`, view())
      onTestFinished(() => proxy.close())
      const verdicts: ConditionStatus[] = []
      while (verdicts.length < maxTimes && !verdicts.some(({ failures }) => failures.length > 0)) {
        const { conditionStatus } = await run({ server, url: proxy.url, operations: operationsAtATime, seed: verdicts.length, isHonest: false })
        verdicts.push(conditionStatus)
      }
      expect(verdicts.at(-1)).toMatchObject({ ok: false, unknown: [] })
    })
  }
})
