import type { JsonObject } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { itemsOf } from '../conformance/spec/spec-suite.ts'
import type { Reply } from '../support/api-clients.ts'
import { trustedUid } from '../../src/base/uid.ts'
import { OciClient } from '../registry/oci/oci-client.ts'
import { freshName, makeOrganisation, ok, roleUid, startTestServer, type TestServer } from '../support/test-server.ts'
import { describeOnChosenStore } from '../support/parts/require-part.ts'
import {
  canUpdate,
  changesOf,
  createCall,
  idOf,
  inOneForm,
  kindOf,
  kinds,
  listIn,
  listOf,
  parentIn,
  sentValues,
  targets,
  updateCall,
  updated,
  valuesIn,
  valuesOf,
  type Place,
  type Values,
} from './both-kinds.ts'

/** One write. `at` selects a record. `values` are those of a new one, `changes` those of an update. */
interface Step {
  readonly kind: string
  readonly version: 'v1' | 'v2'
  readonly action: 'create' | 'update' | 'remove'
  readonly at: number
  readonly values: Values
  readonly changes: Values
}

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.tuple(fc.constantFrom(...Object.keys(kinds)), fc.constantFrom('v1' as const, 'v2' as const)).chain(([kind, version]) =>
    fc.record({
      kind: fc.constant(kind),
      version: fc.constant(version),
      action: fc.constantFrom<Step['action']>('create', 'remove', ...(canUpdate(kind, version) ? (['update', 'update'] as const) : [])),
      at: fc.nat(100),
      values: valuesOf(kind),
      changes: changesOf(kind),
    }),
  ),
  { minLength: 30, maxLength: 40 },
)

/** Writes of one record at the same time. `isNew` creates it first, if `at` does not select one. */
interface Burst {
  readonly kind: string
  readonly isNew: boolean
  readonly at: number
  readonly values: Values
  readonly writes: readonly Pick<Step, 'version' | 'action' | 'values'>[]
}

/** Returns writes of several records, which all run at the same time. */
const bursts: fc.Arbitrary<Burst[]> = fc.array(
  fc.constantFrom(...Object.keys(kinds)).chain((kind) => {
    // A create after a delete makes another record.
    const actions = kindOf(kind).moves === true ? (['update'] as const) : (['update', 'update', 'update', 'remove'] as const)
    const write = fc.constantFrom('v1' as const, 'v2' as const).chain((version) => {
      const action = fc.constantFrom<Step['action']>(...actions.filter((one) => one === 'remove' || canUpdate(kind, version)))
      return fc.record({ version: fc.constant(version), action, values: changesOf(kind) })
    })
    const writes = fc.array(write, { minLength: 2, maxLength: 3 })
    return fc.record({ kind: fc.constant(kind), isNew: fc.boolean(), at: fc.nat(100), values: valuesOf(kind), writes })
  }),
  { minLength: 4, maxLength: 6 },
)

/** Returns the values after a write, and whether the write succeeds. `state` is undefined for a record that is gone. */
function after(
  kind: string,
  state: Values | undefined,
  { version, action, values }: Burst['writes'][number],
): { readonly state: Values | undefined; readonly code: number } {
  // A delete of version 1 also succeeds without the record.
  if (state === undefined) return { state, code: action === 'remove' && version === 'v1' ? 0 : 5 }
  if (action === 'remove') return { state: undefined, code: 0 }
  return { state: updated(kind, state, { version, values }), code: 0 }
}

function ordersOf<T>(items: readonly T[]): T[][] {
  return items.length === 0 ? [[]] : items.flatMap((one, at) => ordersOf(items.toSpliced(at, 1)).map((rest) => [one, ...rest]))
}

interface Stored {
  readonly kind: string
  readonly values: Values
}

/** Creates an organisation; returns its owner's token, and where records of each kind are created: tags in a repo that holds their targets. */
async function makePlace(server: TestServer): Promise<Place & { readonly token: string }> {
  const organisation = freshName('org')
  const { group, owner, token } = await makeOrganisation(server, organisation)
  const make = async (rpc: string, request: JsonObject): Promise<string> => String(ok(await server.rest.call(rpc, request, { token }))['uid'])
  const parent = await make('CreateGroup', { parent: group, group: { name: 'place' } })
  const accounts = await make('CreateGroup', { parent: group, group: { name: 'accounts' } })
  const repo = await make('CreateRepo', { parent: group, repo: { name: 'tagged' } })
  const oidc = { issuer: 'https://login.example', clientId: 'mapped', clientSecret: 'a secret' }
  const provider = await make('CreateIdentityProvider', { parent: group, identityProvider: { name: 'mapped', defaultRole: roleUid('viewer'), oidc } })
  const { host, port } = server.config.registry
  const act = { issuer: 'https://issuer.example', subject: 'pusher', audience: host }
  const pusher = await server.running.signIn.tokens.mint({ identityUid: trustedUid(owner), audiences: [host], act, restrictions: {} })
  const client = new OciClient(port, pusher.token)
  for (const target of targets) expect((await client.putManifest(`${organisation}/tagged`, target.digest, target)).status).toBe(201)
  client.close()
  const parents = {
    ...Object.fromEntries(Object.keys(kinds).map((kind) => [kind, parent])),
    tag: repo,
    association: accounts,
    mapping: provider,
    members: group,
  }
  return { token, make, parents }
}

describeOnChosenStore('records that both versions write', (store) => {
  let server: TestServer
  beforeAll(async () => {
    server = await startTestServer({ store })
  })
  afterAll(() => server.stop())

  test('each version reads what the other wrote, in any order', async () => {
    await fc.assert(
      fc.asyncProperty(steps, fc.constantFrom('rest' as const, 'grpc' as const), async (plan, transport) => {
        const place = await makePlace(server)
        const { token } = place
        const call = async (rpc: string, request: JsonObject): Promise<JsonObject> => ok(await server[transport].call(rpc, request, { token }))
        const model = new Map<string, Stored>()

        /** Expects that both versions show the record of the model, or that it is gone. */
        const expectSame = async (id: string, kind: string): Promise<void> => {
          const items = itemsOf(await call(...listOf(kind, id)), 'items')
          const got = await server[transport].call(`Get${kindOf(kind).v2.kind}`, { uid: id }, { token })
          const stored = model.get(id)
          if (stored === undefined) {
            expect(items).toEqual([])
            expect(got.code).toBe(5)
            return
          }
          const expected = inOneForm(kind, stored.values)
          expect(items.map((item) => [idOf(kind, item), inOneForm(kind, valuesIn(item))])).toEqual([[id, expected]])
          expect([idOf(kind, got.body), inOneForm(kind, valuesIn(got.body))]).toEqual([id, expected])
        }

        const write = async ({ kind, version, action, at, values, changes }: Step): Promise<void> => {
          const { v1, v2 } = kindOf(kind)
          const known = [...model].filter(([, stored]) => stored.kind === kind)
          const [id = '', stored] = known[at % Math.max(known.length, 1)] ?? []
          if (action === 'create' || stored === undefined) {
            const creates = await createCall(kind, { version, values }, place)
            const uid = idOf(kind, await call(...creates.call))
            model.set(uid, { kind, values: creates.values })
            return expectSame(uid, kind)
          }
          if (action === 'remove') {
            await (version === 'v1' ? call(v1.remove, { [v1.id ?? 'id']: id }) : call(`Delete${v2.kind}`, { uid: id }))
            model.delete(id)
          } else {
            const update = { version, values: changes }
            await call(...updateCall(kind, update, { id, parent: parentIn(place, kind), before: stored.values }))
            model.set(id, { kind, values: updated(kind, stored.values, update) })
          }
          return expectSame(id, kind)
        }

        for (const step of plan) await write(step)
        for (const [kind, { v2, plural }] of Object.entries(kinds)) {
          const ids = [...model].flatMap(([id, stored]) => (stored.kind === kind ? [id] : [])).toSorted()
          expect(itemsOf(await call(...listIn(place, kind)), 'items').map((item) => idOf(kind, item))).toEqual(ids)
          const listed = await call(`List${plural.charAt(0).toUpperCase()}${plural.slice(1)}`, {
            uidp: { descendantsOf: parentIn(place, kind) },
            pageSize: 200,
            orderBy: 'uid',
          })
          expect(
            itemsOf(listed, plural).map(({ uid }) => uid),
            v2.kind,
          ).toEqual(ids)
        }
      }),
      { numRuns: 4, endOnFailure: true },
    )
  })

  test('writes of both versions at the same time are those of some order, and both read the same', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(bursts, { minLength: 2, maxLength: 3 }), fc.constantFrom('rest' as const, 'grpc' as const), async (rounds, transport) => {
        const place = await makePlace(server)
        const { token } = place
        const call = (rpc: string, request: JsonObject): Promise<Reply> => server[transport].call(rpc, request, { token })
        const model = new Map<string, Stored>()

        /** Reads a record in one version, in one form; undefined if it is gone. */
        const read = async (id: string, kind: string, version: 'v1' | 'v2'): Promise<string | undefined> => {
          const got = version === 'v1' ? await call(...listOf(kind, id)) : await call(`Get${kindOf(kind).v2.kind}`, { uid: id })
          if (version === 'v2' && got.code === 5) return undefined
          const [record] = version === 'v1' ? itemsOf(ok(got), 'items') : [ok(got)]
          return record === undefined ? undefined : inOneForm(kind, valuesIn(record))
        }

        const write = (id: string, kind: string, { version, action, values }: Burst['writes'][number]): Promise<Reply> => {
          const { v1, v2 } = kindOf(kind)
          if (action === 'remove') return version === 'v1' ? call(v1.remove, { [v1.id ?? 'id']: id }) : call(`Delete${v2.kind}`, { uid: id })
          return call(...updateCall(kind, { version, values }, { id, parent: parentIn(place, kind), before: model.get(id)?.values ?? {} }))
        }

        const recordFor = async ({ kind, isNew, at, values, writes: [first] }: Burst): Promise<string> => {
          const known = [...model].filter(([, stored]) => stored.kind === kind)
          const found = known[at % Math.max(known.length, 1)]?.[0]
          if (found !== undefined && !isNew) return found
          const creates = await createCall(kind, { version: first?.version ?? 'v2', values }, place)
          const id = idOf(kind, ok(await call(...creates.call)))
          model.set(id, { kind, values: creates.values })
          return id
        }

        /** Runs the writes of a record together with reads in both versions, and keeps the outcome in the model. */
        const run = async (id: string, { kind, writes: planned }: Burst): Promise<void> => {
          const before = model.get(id)?.values
          const writes = planned.map((one) => ({ ...one, values: sentValues(kind, before ?? {}, one) }))
          const [replies, reads] = await Promise.all([
            Promise.all(writes.map((one) => write(id, kind, one))),
            Promise.all((['v1', 'v2', 'v1', 'v2'] as const).map((version) => read(id, kind, version))),
          ])
          const codes = replies.map(({ code }) => code)
          const form = (state: Values | undefined): string | undefined => (state === undefined ? undefined : inOneForm(kind, state))
          const seen = new Set([form(before)])
          const outcomes = new Map<string | undefined, Values | undefined>()
          for (const order of ordersOf([...writes.keys()])) {
            let state = before
            let isPossible = true
            for (const at of order) {
              const next = after(kind, state, writes[at] as Burst['writes'][number]) // a key
              isPossible &&= next.code === codes[at]
              state = next.state
              seen.add(form(state))
            }
            if (isPossible) outcomes.set(form(state), state)
          }
          for (const one of reads) expect([...seen], JSON.stringify({ kind, before, writes })).toContain(one)
          const [inV1, inV2] = [await read(id, kind, 'v1'), await read(id, kind, 'v2')]
          expect(inV1).toEqual(inV2)
          expect([...outcomes.keys()], JSON.stringify({ kind, before, writes, codes })).toContain(inV1)
          const values = outcomes.get(inV1)
          if (values === undefined) model.delete(id)
          else model.set(id, { kind, values })
        }

        for (const round of rounds) {
          const chosen = new Map<string, Burst>()
          for (const burst of round) chosen.set(await recordFor(burst), burst)
          await Promise.all([...chosen].map(([id, burst]) => run(id, burst)))
        }
        for (const [kind, { plural }] of Object.entries(kinds)) {
          const ids = [...model].flatMap(([id, stored]) => (stored.kind === kind ? [id] : [])).toSorted()
          expect(itemsOf(ok(await call(...listIn(place, kind))), 'items').map((item) => idOf(kind, item))).toEqual(ids)
          const listed = ok(
            await call(`List${plural.charAt(0).toUpperCase()}${plural.slice(1)}`, {
              uidp: { descendantsOf: parentIn(place, kind) },
              pageSize: 200,
              orderBy: 'uid',
            }),
          )
          expect(itemsOf(listed, plural).map(({ uid }) => uid)).toEqual(ids)
        }
      }),
      { numRuns: 3, endOnFailure: true },
    )
  })
})
