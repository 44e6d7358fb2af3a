import fc from 'fast-check'
import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Clock } from '../../../src/base/runtime.ts'
import { freshName, makeMember, makeOrganisation, ok, roleUid, startTestServer, type TestServer } from '../../support/test-server.ts'
import { describeOnChosenStore } from '../../support/parts/require-part.ts'
import { askScim } from '../../iam/scim/directory.ts'
import { campaignLength, timeoutUnlessSoaking } from '../../soak/factor.ts'

const hourMs = 3_600_000
const yearMs = 365 * 24 * hourMs

/** Time that only the test moves. */
class ManualClock implements Clock {
  nowMs = Date.UTC(2026, 5, 15, 12)
  now(): number {
    return this.nowMs
  }
}

/** A token, as a client keeps it since its creation. It expires at its end or is revoked earlier, and never works again. */
interface Issued {
  readonly token: string
  readonly endMs: number
  diesMs: number
}

/** The naive model: all tokens ever made, the newest last, as docs/spec/scim.md#credential-states has them and not as the program keeps them. */
interface Model {
  readonly tokens: Issued[]
  enabled: boolean
  revoked: boolean
  etag: string
}

interface Real {
  readonly server: TestServer
  readonly clock: ManualClock
  readonly provider: string
  readonly owner: string
  /** What was done, for a run that did hardly anything. */
  readonly seen: Map<string, number>
}

type Reply = { readonly code: number; readonly body: JsonObject }

/** Calls over either transport, as chance has it, with a token that is valid at that time. */
async function call({ server, provider, owner }: Real, rpc: string, request: JsonObject, viaGrpc: boolean): Promise<Reply> {
  const apiClient = viaGrpc ? server.grpc : server.rest
  return await apiClient.call(
    rpc,
    { ...(rpc.startsWith('Get') ? { uid: provider } : { identityProviderUid: provider }), ...request },
    { token: await server.tokenFor(owner) },
  )
}

/** Whether the SCIM server accepts this token. */
async function opens({ server, provider }: Real, token: string): Promise<boolean> {
  const { status } = await askScim(`${server.config.baseUrl}/scim/v2/${provider}/Users?count=0`, 'GET', { token })
  expect([200, 401]).toContain(status)
  return status === 200
}

function isAlive(issued: Issued, nowMs: number): boolean {
  return nowMs < Math.min(issued.diesMs, issued.endMs)
}

function expectedState({ tokens, revoked }: Model, nowMs: number): string {
  const [newest, ...older] = tokens.toReversed()
  if (newest === undefined) return 'NOT_ISSUED'
  if (revoked) return 'REVOKED'
  if (older.some((issued) => isAlive(issued, nowMs))) return 'ROTATING'
  return isAlive(newest, nowMs) ? 'LIVE' : 'EXPIRED'
}

/** Everything that can be seen of the credentials is what the model says. */
async function expectSame(model: Model, real: Real, viaGrpc: boolean): Promise<void> {
  const { clock, provider, seen } = real
  const nowMs = clock.now()
  const { code, body } = await call(real, 'GetIdentityProvider', {}, viaGrpc)
  expect([code, body]).toEqual([0, expect.anything()])
  const scim = body['scim'] as JsonObject
  const state = expectedState(model, nowMs)
  seen.set(state, (seen.get(state) ?? 0) + 1)
  const [newest, ...older] = model.tokens.toReversed()
  const overlapping = older.find((issued) => isAlive(issued, nowMs))
  const timeOf = (ms: number | undefined): string | undefined => (ms === undefined || ms === Infinity ? undefined : new Date(ms).toISOString())
  expect(scim).toEqual({
    enabled: model.enabled,
    endpointUrl: expect.stringMatching(`/scim/v2/${provider}$`) as unknown,
    credentialState: `CREDENTIAL_STATE_${state}`,
    etag: model.etag,
    ...(timeOf(newest?.endMs) === undefined ? {} : { tokenExpireTime: timeOf(newest?.endMs) }),
    ...(overlapping === undefined ? {} : { previousTokenExpireTime: timeOf(Math.min(overlapping.diesMs, overlapping.endMs)) }),
  })
  await expectClient(model, real, state)
}

/** The SCIM server takes the tokens that the model says, while SCIM is on, and nothing else. */
async function expectClient({ tokens, enabled, revoked }: Model, real: Real, state: string): Promise<void> {
  const nowMs = real.clock.now()
  const newest = tokens.at(-1)?.token ?? ''
  const wrong = ['', 'cgscim_', `cgscim_${'0'.repeat(64)}`, `${newest}0`, newest.slice(0, -1), newest.toUpperCase(), newest.replace('cgscim_', '')]
  const works = tokens.map((issued) => enabled && !revoked && isAlive(issued, nowMs))
  const found = await Promise.all([...tokens.map(({ token }) => token), ...wrong].map((token) => opens(real, token)))
  expect({ state, enabled, found }).toEqual({ state, enabled, found: [...works, ...wrong.map(() => false)] })
  const reported = `${state}, ${enabled ? 'on' : 'off'}, ${works.filter(Boolean).length} of ${Math.min(works.length, 2)}`
  real.seen.set(reported, (real.seen.get(reported) ?? 0) + 1)
}

/** When a new token is to end: `undefined` asks for nothing, Infinity for never. */
function lifeRequest(lifeMs: number | undefined, nowMs: number): JsonObject {
  if (lifeMs === undefined) return {}
  return lifeMs === Infinity ? { neverExpires: true } : { expireTime: new Date(nowMs + lifeMs).toISOString() }
}

function endOf(lifeMs: number | undefined, nowMs: number): number {
  if (lifeMs !== undefined) return nowMs + lifeMs
  const end = new Date(nowMs)
  return end.setUTCFullYear(end.getUTCFullYear() + 1)
}

/** One random thing to do, after which all is compared. */
class Step implements fc.AsyncCommand<Model, Real> {
  readonly #title: string
  readonly #viaGrpc: boolean
  readonly #act: (model: Model, real: Real, viaGrpc: boolean) => Promise<void>

  constructor(title: string, viaGrpc: boolean, act: (model: Model, real: Real, viaGrpc: boolean) => Promise<void>) {
    this.#title = title
    this.#viaGrpc = viaGrpc
    this.#act = act
  }

  check(): boolean {
    return true
  }

  async run(model: Model, real: Real): Promise<void> {
    await this.#act(model, real, this.#viaGrpc)
    await expectSame(model, real, this.#viaGrpc)
  }

  toString(): string {
    return `${this.#title} over ${this.#viaGrpc ? 'gRPC' : 'REST'}`
  }
}

function issue(model: Model, reply: Reply, endMs: number): void {
  model.tokens.push({ token: String(reply.body['token']), endMs, diesMs: Infinity })
  model.etag = String(reply.body['etag'])
}

const generate = (lifeMs: number | undefined) => async (model: Model, real: Real, viaGrpc: boolean) => {
  const nowMs = real.clock.now()
  const reply = await call(real, 'GenerateScimToken', lifeRequest(lifeMs, nowMs), viaGrpc)
  expect(reply.code).toBe(model.tokens.length === 0 ? 0 : 9)
  if (reply.code === 0) issue(model, reply, endOf(lifeMs, nowMs))
}

const regenerate = (overlapMs: number | undefined, lifeMs: number | undefined, isStale: boolean) => async (model: Model, real: Real, viaGrpc: boolean) => {
  const nowMs = real.clock.now()
  const etag = isStale || model.etag === '' ? '0123456789abcdef' : model.etag
  const overlap = overlapMs === undefined ? {} : { overlap: `${overlapMs / 1000}s` }
  const reply = await call(real, 'RegenerateScimToken', { etag, ...overlap, ...lifeRequest(lifeMs, nowMs) }, viaGrpc)
  const newest = model.tokens.at(-1)
  expect(reply.code).toBe(newest === undefined ? 5 : isStale ? 10 : 0)
  if (reply.code !== 0 || newest === undefined) return
  for (const issued of model.tokens) {
    // Only the newest may go on working for a while.
    const graceMs = issued === newest && !model.revoked && isAlive(issued, nowMs) ? Math.min(overlapMs ?? hourMs, 24 * hourMs) : 0
    issued.diesMs = Math.min(issued.diesMs, nowMs + graceMs)
  }
  model.revoked = false
  issue(model, reply, endOf(lifeMs, nowMs))
}

const revoke = () => async (model: Model, real: Real, viaGrpc: boolean) => {
  const reply = await call(real, 'RevokeScimToken', {}, viaGrpc)
  expect(reply.code).toBe(model.tokens.length === 0 ? 5 : 0)
  if (reply.code !== 0) return
  for (const issued of model.tokens) issued.diesMs = Math.min(issued.diesMs, real.clock.now())
  model.revoked = true
  model.etag = String(reply.body['etag'])
  expect(reply.body['enabled']).toBe(model.enabled)
}

const enable = (enabled: boolean, isStale: boolean) => async (model: Model, real: Real, viaGrpc: boolean) => {
  const etag = isStale || model.etag === '' ? '0123456789abcdef' : model.etag
  const reply = await call(real, 'SetScimEnabled', { enabled, etag }, viaGrpc)
  expect(reply.code).toBe(model.tokens.length === 0 ? 5 : isStale ? 10 : 0)
  if (reply.code !== 0) return
  model.enabled = enabled
  model.etag = String(reply.body['etag'])
}

const wait = (ms: number) => async (_model: Model, real: Real) => {
  real.clock.nowMs += ms
  // Keys rotate by the same clock. A rotation that a jump causes ends before the next call; a token of a removed key could not make that call.
  await real.server.running.engine.signingKeys.maintain(AbortSignal.timeout(60_000))
}

const viaGrpc = fc.boolean()
const life = fc.constantFrom(undefined, Infinity, 1000, hourMs, 2 * hourMs, 2 * yearMs)
const overlap = fc.constantFrom(undefined, 0, 1000, 2 * hourMs, 48 * hourMs)
const stale = fc.integer({ min: 0, max: 9 }).map((chance) => chance === 0)
// Edges: the very millisecond of an end, and the one before.
const pause = fc.constantFrom(1, 999, 1000, hourMs - 1, hourMs, 24 * hourMs, yearMs)

const generates = fc.tuple(viaGrpc, life).map(([over, ms]) => new Step(`generate(${ms ?? ''})`, over, generate(ms)))
const regenerates = fc.tuple(viaGrpc, overlap, life, stale).map(([over, ...how]) => new Step(`regenerate(${how.join()})`, over, regenerate(...how)))
const revokes = viaGrpc.map((over) => new Step('revoke', over, revoke()))
// On more often than off: only then any token is good for anything.
const on = fc.integer({ min: 0, max: 3 }).map((chance) => chance > 0)
const enables = fc.tuple(viaGrpc, on, stale).map(([over, ...how]) => new Step(`enable(${how.join()})`, over, enable(...how)))
const waits = fc.tuple(viaGrpc, pause).map(([over, ms]) => new Step(`wait(${ms})`, over, wait(ms)))

const overRest = (title: string, act: ConstructorParameters<typeof Step>[2]): Step => new Step(title, false, act)
/** A way through all states, with SCIM on and off, up to the very millisecond of each end. */
const tour: [Step, Step[]] = [
  overRest('generate', generate(Infinity)),
  [
    overRest('rotate', regenerate(1000, 2 * hourMs, false)),
    overRest('a moment before the overlap ends', wait(999)),
    overRest('the overlap ends', wait(1)),
    overRest('off', enable(false, false)),
    overRest('on', enable(true, false)),
    overRest('a moment before it expires', wait(2 * hourMs - 1001)),
    overRest('it expires', wait(1)),
    overRest('replace an expired one', regenerate(1000, 1000, false)),
    overRest('rotate', regenerate(2 * hourMs, 1000, false)),
    overRest('both expire', wait(1000)),
    overRest('replace', regenerate(0, undefined, false)),
    overRest('rotate', regenerate(2 * hourMs, 1000, false)),
    overRest('the newest expires', wait(1000)),
    overRest('revoke', revoke()),
    overRest('replace a revoked one', regenerate(1000, Infinity, false)),
  ],
]

describeOnChosenStore('random calls of the SCIM token verbs', (store) => {
  const clock = new ManualClock()
  let server: TestServer
  beforeAll(async () => {
    server = await startTestServer({ store, clock })
  })
  afterAll(() => server.stop())

  /** A fresh provider of an organisation with two owners. */
  async function start(seen: Map<string, number>): Promise<{ model: Model; real: Real }> {
    const { group, owner } = await makeOrganisation(server)
    await makeMember(server, group, { role: 'owner' })
    const oidc = { issuer: 'https://login.idp.example', clientId: 'platform', clientSecret: 'secret' }
    const identityProvider = { name: freshName('idp'), defaultRole: roleUid('viewer'), oidc }
    const token = await server.operatorToken()
    const provider = String(ok(await server.rest.call('CreateIdentityProvider', { parent: group, identityProvider }, { token }))['uid'])
    return { model: { tokens: [], enabled: false, revoked: false, etag: '' }, real: { server, clock, provider, owner, seen } }
  }

  // docs/spec/scim.md#credential-states
  test(
    'random calls of the SCIM token verbs keep revoked, expired and rotated tokens in the states of the model',
    { timeout: timeoutUnlessSoaking(300_000) },
    async () => {
      const seen = new Map<string, number>()
      // Waiting twice as often as anything else: most of what there is to see is seen in time.
      const commands = fc.commands([waits, regenerates, waits, revokes, regenerates, enables, generates], { maxCommands: 30, size: 'max' })
      await fc.assert(
        fc.asyncProperty(generates, commands, async (first, steps) => {
          const { model, real } = await start(seen)
          await fc.asyncModelRun(() => ({ model, real }), [first, new Step('enable', false, enable(true, false)), ...steps])
        }),
        { numRuns: campaignLength({ short: 16, full: 40 }), endOnFailure: true, examples: [tour] },
      )
      for (const state of ['LIVE', 'ROTATING', 'EXPIRED', 'REVOKED'])
        expect([state, (seen.get(state) ?? 0) > campaignLength({ short: 3, full: 10 })]).toEqual([state, true])
      // Both tokens of a rotation, one of both, the newest alone; and none though there are some.
      const accepted = ['LIVE, on, 1 of 1', 'LIVE, on, 1 of 2', 'ROTATING, on, 2 of 2', 'ROTATING, on, 1 of 2']
      const refused = ['EXPIRED, on, 0 of 2', 'REVOKED, on, 0 of 2', 'LIVE, off, 0 of 2']
      expect([...seen.keys()]).toEqual(expect.arrayContaining([...accepted, ...refused]))
    },
  )
})
