import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import type { MethodRow } from '../../src/core/method.ts'
import { methods } from '../../src/core/schema.ts'
import { slowness } from '../budgets.ts'
import { sendGrpc } from '../fuzz/grpc-client.ts'
import { sendHttp } from '../fuzz/http-client.ts'
import { looseProto } from '../fuzz/loose-proto.ts'
import type { Corpus } from '../fuzz/protocol.ts'
import { Random } from '../fuzz/random.ts'
import { restDraft } from '../fuzz/rest-request.ts'
import { startTarget, type Target } from '../fuzz/target.ts'
import { caseName } from '../walk/method-case.ts'
import { otherDraft } from '../fuzz/other-draft.ts'
import { dearBody, dearRequest } from './dear-request.ts'

/** Requests of each method, transport and caller: a sample, or all with TAPROOT_COST=full. */
const perMethod = process.env['TAPROOT_COST'] === 'full' ? 200 : 1
const seed = inject('propertySeed') ?? Date.now() | 0
const boundMs = 60_000

/** How much slower this machine is than the one that the limits are made for. */
const factor = slowness()
/** What a request may cost, in milliseconds of the thread that serves all. */
const limits = { nobody: 10 * factor, outsider: 10 * factor, owner: 50 * factor } as const
type Caller = keyof typeof limits
const callers = Object.keys(limits) as Caller[]

/** A request may be dear once, for what is compiled or collected just then: the least of so many counts. */
const repeats = 6

let target: Target
let corpus: Corpus
beforeAll(async () => {
  target = await startTarget('sqlite')
  corpus = await target.corpus()
}, 300_000)
afterAll(() => target.stop())

function tokenOf(caller: Caller, method: MethodRow): string | undefined {
  if (caller === 'nobody') return undefined
  if (caller === 'outsider') return corpus.outsider
  return corpus.examples.find((example) => example.method === caseName(method))?.token ?? corpus.tokens[0]
}

/** One request, and how it is sent. */
interface Sending {
  readonly transport: 'rest' | 'grpc'
  readonly caller: Caller
  readonly number: number
}

async function send(method: MethodRow, { transport, caller, number }: Sending): Promise<string> {
  const random = new Random(seed, number)
  const { shape, request } = dearRequest({ method, corpus, random })
  const token = tokenOf(caller, method)
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
  if (transport === 'grpc') {
    const message = looseProto(method.input, request)
    const draft = {
      path: `/${method.service}/${method.rpc}`,
      headers: { 'content-type': 'application/grpc', te: 'trailers', ...headers },
      message,
      body: undefined,
      connection: undefined,
      ending: 'end',
    } as const
    await sendGrpc({ ...draft }, { port: target.ports.api, boundMs })
    return shape
  }
  await sendHttp(restDraft(random.pick(method.http), request, headers), { port: target.ports.api, boundMs })
  return shape
}

/** What the request costs the server's thread, and which it was. */
async function costOf(method: MethodRow, sending: Sending): Promise<{ readonly ms: number; readonly what: string }> {
  let [ms, shape] = [Infinity, '']
  for (let repeat = 0; repeat < repeats && ms >= limits[sending.caller]; repeat++) {
    const before = await target.work()
    shape = await send(method, sending)
    const after = await target.work()
    ms = Math.min(ms, after.totalMs - before.totalMs)
  }
  return { ms, what: `${caseName(method)} over ${sending.transport} by ${sending.caller}: ${shape}, TAPROOT_SEED=${seed} number ${sending.number}` }
}

/** Every method is in it, whatever the sample. */
const numbers = methods.flatMap((method, index) => Array.from({ length: perMethod }, (_, round) => ({ method, number: index * 200 + round })))

describe('what a request costs', () => {
  test.each(callers)('by %s is little, whatever its method and its body', { timeout: 3_600_000 }, async (caller) => {
    const dear: string[] = []
    for (const { method, number } of numbers) {
      const transports = perMethod === 1 ? [new Random(seed, -1 - number).pick(['rest', 'grpc'] as const)] : (['rest', 'grpc'] as const)
      for (const transport of transports) {
        const { ms, what } = await costOf(method, { transport, caller, number })
        if (ms >= limits[caller]) dear.push(`${ms.toFixed(1)} ms: ${what}`)
      }
    }
    expect(dear).toEqual([])
  })

  test.each(['nobody', 'owner'] as const)('beside the methods by %s is little: sign-ins, SCIM, the registry host', { timeout: 3_600_000 }, async (caller) => {
    const dear: string[] = []
    for (let number = 0; number < 60 * perMethod; number++) {
      const random = new Random(seed, 4_000_000 + number)
      const { row, draft } = otherDraft(corpus, random, `cost-${number}`)
      if (caller === 'nobody') draft.headers = draft.headers.filter(([name]) => name.toLowerCase() !== 'authorization')
      if (draft.body !== undefined || ['POST', 'PUT', 'PATCH'].includes(draft.verb))
        draft.body = dearBody(random, row.port === 'registry' ? 4 * 1024 * 1024 : 256 * 1024)
      let ms = Infinity
      for (let repeat = 0; repeat < repeats && ms >= limits[caller]; repeat++) {
        const before = await target.work()
        await sendHttp(draft, { port: target.ports[draft.port], boundMs })
        ms = Math.min(ms, (await target.work()).totalMs - before.totalMs)
      }
      if (ms >= limits[caller]) dear.push(`${ms.toFixed(1)} ms: ${row.name}, TAPROOT_SEED=${seed} number ${number}`)
    }
    expect(dear).toEqual([])
  })

  test('leaves no memory behind', { timeout: 3_600_000 }, async () => {
    const round = async (from: number): Promise<number> => {
      for (const { method, number } of numbers) await send(method, { transport: number % 2 === 0 ? 'rest' : 'grpc', caller: 'outsider', number: from + number })
      const { heap, external } = await target.memory()
      return heap + external
    }
    const before = await round(1_000_000)
    const after = await round(2_000_000)
    expect(after - before).toBeLessThan(4 * 1024 * 1024 + numbers.length * 2 * 1024)
  })

  test('keeps no other waiting: /healthz is answered while many come at once, and no turn of the loop takes 200 ms', { timeout: 3_600_000 }, async () => {
    await target.work()
    const health = async (): Promise<number> => (await fetch(`http://127.0.0.1:${target.ports.ops}/healthz`)).status
    const statuses: number[] = []
    const queue = [...numbers]
    const lane = async (caller: Caller): Promise<void> => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
        await send(next.method, { transport: next.number % 2 === 0 ? 'grpc' : 'rest', caller, number: 3_000_000 + next.number })
        statuses.push(await health())
      }
    }
    await Promise.all(callers.flatMap((caller) => [lane(caller), lane(caller)]))
    const { longestTurnMs } = await target.work()
    expect(new Set(statuses)).toEqual(new Set([200]))
    expect(longestTurnMs).toBeLessThan(200)
  })
})
