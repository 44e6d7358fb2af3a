import { once } from 'node:events'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { gzipSync } from 'node:zlib'
import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { slowness } from '../../budgets.ts'
import { startTarget, type Target } from '../fuzz/target.ts'
import { restClient, type ApiClient, type Reply } from '../../support/api-clients.ts'
import { freshName, ok } from '../../support/test-server.ts'
import { etcdSettings, shareEtcd } from '../../support/parts/etcd.ts'
import { startTcpProxy } from '../../support/parts/tcp-proxy.ts'
import { newKey, signWith } from '../../iam/signin/issuers.ts'
import type { Health } from './health-asker.ts'

/**
 * Maximum processor time in milliseconds of one turn of the event loop: 50 on the reference machine.
 * A health request waits for at most two turns. So it takes 200 ms even on a machine that is half as fast.
 */
const roundMs = 50 * slowness()
/** Maximum wall-clock time of a turn in milliseconds, against a process that hangs. Other programs run too. */
const hangMs = 5_000

const timeout = 120_000

/** The server, group and tokens of an attack. */
interface Ground {
  readonly target: Target
  readonly api: ApiClient
  /** A new root group, and an operator's token. */
  readonly group: string
  readonly token: string
}

/** Requests of a tenant or an unknown caller that keep the server busy. */
interface Attack {
  readonly what: string
  /** Prepares an attack. The returned function runs it and resolves with the codes of its answers. */
  readonly prepare: (ground: Ground) => Promise<() => Promise<readonly number[]>>
  /** The expected codes of its answers. */
  readonly codes: readonly number[]
}

/** Runs `count` pieces of work, `lanes` at a time. */
async function many(count: number, lanes: number, work: (at: number) => Promise<number>): Promise<readonly number[]> {
  const codes: number[] = []
  let next = 0
  const lane = async (): Promise<void> => {
    while (next < count) codes.push(await work(next++))
  }
  await Promise.all(Array.from({ length: lanes }, lane))
  return codes
}

async function made(ground: Ground, rpc: string, request: JsonObject): Promise<string> {
  return String(ok(await ground.api.call(rpc, request, { token: ground.token }))['uid'])
}

const codeOf = async (reply: Promise<Reply>): Promise<number> => (await reply).code

async function newIdentity(ground: Ground): Promise<string> {
  const claimMatch = { issuer: 'https://issuer.example', subject: freshName('subject') }
  return await made(ground, 'CreateIdentity', { parent: ground.group, identity: { name: freshName('identity'), claimMatch } })
}

/** A document whose processing takes more than a second. */
const expensive = `|a|b|c|\n|:-|:-:|-:|\n${'|1|2|3|\n'.repeat(65_000)}`.slice(0, 524_288)

/** HTML that the rules of browsers expand to a multiple of its size: each paragraph reopens all open elements. */
const amplified = `<p>${Array.from({ length: 8 }, (_, at) => `<b id=${at}>`).join('')}${'<p>x'.repeat(100_000)}`

const attacks: readonly Attack[] = [
  {
    what: 'a group with 20,000 role bindings is being deleted',
    async prepare(ground) {
      const uid = await made(ground, 'CreateGroup', { parent: ground.group, group: { name: 'large' } })
      await ground.target.fill({ records: 'bindings', parent: uid, count: 20_000 })
      return async () => {
        const code = await codeOf(ground.api.call('DeleteGroup', { uid }, { token: ground.token }))
        // Waits until all of them are removed.
        await ground.target.swept(timeout / 2)
        return [code]
      }
    },
    codes: [0],
  },
  {
    what: 'dry runs contain hostile patterns',
    prepare: (ground) =>
      Promise.resolve(() =>
        many(40, 4, (at) => {
          const claimPatterns = Object.fromEntries(Array.from({ length: 50 }, (_, claim) => [`claim${claim}`, `${'\\pL'.repeat(330)}${at}a${claim}`]))
          const identity = { name: 'hostile', claimMatch: { issuer: 'https://issuer.example', subject: 'x', claimPatterns } }
          return codeOf(ground.api.call('CreateIdentity', { parent: ground.group, identity }, { token: ground.token, validateOnly: true }))
        }),
      ),
    codes: [3],
  },
  {
    what: 'dry runs contain the most expensive patterns allowed',
    prepare: (ground) =>
      Promise.resolve(() =>
        many(40, 4, (at) => {
          const claimPatterns = Object.fromEntries(Array.from({ length: 8 }, (_, claim) => [`claim${claim}`, `${'\\pL'.repeat(9)}${at}a${claim}`]))
          const identity = { name: 'hostile', claimMatch: { issuer: 'https://issuer.example', subject: 'x', claimPatterns } }
          return codeOf(ground.api.call('CreateIdentity', { parent: ground.group, identity }, { token: ground.token, validateOnly: true }))
        }),
      ),
    codes: [0],
  },
  {
    what: 'dry runs contain six hostile readmes',
    async prepare(ground) {
      const uid = await made(ground, 'CreateRepo', { parent: ground.group, repo: { name: 'repo' } })
      const url = `http://127.0.0.1:${ground.target.ports.api}/registry/v2/repos/${uid}/readme?validateOnly=true`
      const headers = { authorization: `Bearer ${ground.token}`, 'content-type': 'application/json' }
      return () =>
        many(6, 6, async (at) => {
          const content = (at % 2 === 0 ? expensive.replace('|a|', `|a${at}|`) : `${at}${amplified}`).slice(0, expensive.length)
          return (await fetch(url, { method: 'PATCH', headers, body: JSON.stringify({ content }) })).status
        })
    },
    // A pattern above the cost limit is 400.
    codes: [200, 400],
  },
  {
    what: 'unknown callers send compressed nested lists, faster than the limit of an address',
    prepare: ({ target }) => {
      const body = gzipSync('['.repeat(512 * 1024) + ']'.repeat(512 * 1024))
      const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' }
      const url = `http://127.0.0.1:${target.ports.api}/auth/v1/register`
      return Promise.resolve(() => many(400, 8, async () => (await fetch(url, { method: 'POST', headers, body })).status))
    },
    codes: [401],
  },
  {
    what: 'a caller with 10,000 changing role bindings asks for its own identity',
    async prepare(ground) {
      const identity = await newIdentity(ground)
      await ground.target.fill({ records: 'teams', parent: ground.group, identity, count: 10_000 })
      const token = await ground.target.token(identity)
      const url = `http://127.0.0.1:${ground.target.ports.api}/auth/v1/ok`
      return () =>
        many(6, 2, async () => {
          await ground.target.fill({ records: 'teams', parent: ground.group, identity, count: 1 })
          const answer = await fetch(url, { headers: { authorization: `Bearer ${token}` } })
          await answer.bytes()
          return answer.status
        })
    },
    codes: [200],
  },
  {
    what: 'one tenant names 1,200 issuers, whose keys are all fetched',
    async prepare(ground) {
      const issuers = Array.from({ length: 1_200 }, (_, at) => `https://issuer-${at}.invalid`)
      const identities = await ground.target.fill({ records: 'identities', parent: ground.group, issuers })
      const key = await newKey('stranger')
      const seconds = Math.floor(Date.now() / 1000)
      const claims = { sub: 'x', aud: `http://localhost:${ground.target.ports.api}`, iat: seconds, exp: seconds + 3000 }
      const tokens = await Promise.all(issuers.map((iss) => signWith(key, { ...claims, iss })))
      return () => many(issuers.length, 100, (at) => codeOf(ground.api.call('Exchange', { identity: identities[at] ?? '' }, { token: tokens[at] })))
    },
    codes: [7, 8, 14],
  },
]

/** Starts to poll the health of a server. `until` resolves after that many answers, `end` with the results. */
function askHealth(port: number): { until(answers: number): Promise<void>; end(): Promise<Health> } {
  const worker = new Worker(join(import.meta.dirname, 'health-asker.ts'), { workerData: { port }, execArgv: ['--disable-warning=ExperimentalWarning'] })
  let health: Health = { answers: 0, bad: 0, slowestMs: 0 }
  worker.on('message', (found: Health) => (health = found))
  return {
    async until(answers) {
      while (health.answers < answers) await once(worker, 'message')
    },
    async end() {
      worker.postMessage('stop')
      await once(worker, 'exit')
      return health
    },
  }
}

/** Runs `work` and expects that the health endpoints answer in time throughout. */
async function expectHealthy(target: Target, work: () => Promise<unknown>): Promise<void> {
  const asker = askHealth(target.ports.ops)
  await asker.until(5)
  await target.work()
  await work()
  await asker.until(10)
  const { longestTurnMs } = await target.work()
  const { bad, slowestMs } = await asker.end()
  expect(bad).toBe(0)
  expect(longestTurnMs).toBeLessThan(roundMs)
  expect(slowestMs).toBeLessThan(hangMs)
}

describe('/healthz is answered within 200 ms', () => {
  let target: Target
  let operator: string
  let api: ApiClient
  beforeAll(async () => {
    target = await startTarget('sqlite')
    api = restClient(`http://127.0.0.1:${target.ports.api}`)
    operator = (await target.corpus()).tokens[0] ?? ''
  }, timeout)
  afterAll(async () => {
    api.close()
    await target.stop()
  })

  test.each(attacks)('while $what', { timeout }, async ({ prepare, codes }) => {
    const group = String(ok(await api.call('CreateGroup', { group: { name: freshName('attacked') } }, { token: operator }))['uid'])
    const attack = await prepare({ target, api, group, token: operator })
    let answered: readonly number[] = []
    await expectHealthy(target, async () => (answered = await attack()))
    expect(answered.length).toBeGreaterThan(0)
    expect(answered.filter((code) => !codes.includes(code))).toEqual([])
  })

  test('while the link to etcd loses its packets and requests wait', { timeout }, async () => {
    const etcd = await shareEtcd()
    const link = await startTcpProxy(etcd.port)
    onTestFinished(() => link.close())
    const cutOff = await startTarget('sqlite', etcdSettings({ endpoints: [`http://127.0.0.1:${link.port}`], prefix: etcd.prefix }))
    onTestFinished(() => cutOff.stop())
    const apiClient = restClient(`http://127.0.0.1:${cutOff.ports.api}`)
    onTestFinished(() => apiClient.close())
    const { tokens } = await cutOff.corpus()
    const ask = (): Promise<number> => codeOf(apiClient.call('ListGroups', {}, { token: tokens[0] }))
    expect(await ask()).toBe(0)
    await expectHealthy(cutOff, async () => {
      link.stall()
      expect([...new Set(await many(50, 50, ask))]).toEqual([14])
      link.resume()
      await expect.poll(ask).toBe(0)
    })
  })
})

test('the health check of this test reports a server that is blocked for longer', { timeout }, async () => {
  const held = await startTarget('sqlite', {}, [{ method: 'IdentitiesService/LookupIdentity', ms: 2 * roundMs }])
  onTestFinished(() => held.stop())
  const apiClient = restClient(`http://127.0.0.1:${held.ports.api}`)
  onTestFinished(() => apiClient.close())
  const { tokens } = await held.corpus()
  const request = { issuer: 'https://issuer.example', subject: 'x'.repeat(1500) }
  await expect(expectHealthy(held, () => apiClient.call('LookupIdentity', request, { token: tokens[0] }))).rejects.toThrow('to be less than')
})
