import type { JsonObject } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { itemsOf } from '../conformance/spec/spec-suite.ts'
import type { Reply } from '../support/api-clients.ts'
import { freshName, makeOrganisation, ok, startTestServer, type TestServer } from '../support/test-server.ts'
import { describeOnChosenStore } from '../support/parts/require-part.ts'

/** The values of a record, the same for both versions. Absent ones are the defaults. */
type Values = Readonly<Record<string, string | readonly string[]>>

/** A kind of record: its methods, and its values as random texts and as each version writes them. */
interface BothKind {
  readonly plural: string
  readonly v1: {
    readonly create: string
    readonly parent: string
    readonly held: string
    readonly update: string
    readonly list: string
    readonly remove: string
  }
  readonly v2: { readonly kind: string; readonly held: string }
  readonly values: Readonly<Record<string, fc.Arbitrary<string | readonly string[]>>>
  /** Fields that every write in version 1 has, and every create. */
  readonly required: readonly string[]
  readonly toV1: (values: Values) => JsonObject
  readonly toV2: (values: Values) => JsonObject
}

const name = fc.stringMatching(/^[a-z0-9]{12}$/)
const description = fc.stringMatching(/^[a-z]{1,8}$/)
const same = (values: Values): JsonObject => ({ ...values }) as JsonObject

const capabilities = { 'groups.list': 'CAP_IAM_GROUPS_LIST', 'repo.list': 'CAP_REPO_LIST', 'tag.list': 'CAP_TAG_LIST' } as const
const tiers = { APPLICATION: 'CATALOG_TIER_APPLICATION', BASE: 'CATALOG_TIER_BASE', FIPS: 'CATALOG_TIER_FIPS' } as const

function service(of: string): Pick<BothKind['v1'], 'create' | 'update' | 'list' | 'remove'> {
  return { create: `${of}/Create`, update: `${of}/Update`, list: `${of}/List`, remove: `${of}/Delete` }
}

const kinds: Readonly<Record<string, BothKind>> = {
  group: {
    plural: 'groups',
    v1: { ...service('Groups'), parent: 'parent', held: 'group' },
    v2: { kind: 'Group', held: 'group' },
    values: { name, description },
    required: ['name'],
    toV1: same,
    toV2: same,
  },
  role: {
    plural: 'roles',
    v1: { ...service('Roles'), parent: 'parentId', held: 'role' },
    v2: { kind: 'Role', held: 'role' },
    values: { name, description, capabilities: fc.subarray(Object.keys(capabilities), { minLength: 1 }) },
    required: ['name', 'capabilities'],
    toV1: same,
    toV2: ({ capabilities: held, ...values }) => ({
      ...same(values),
      ...(held === undefined ? {} : { capabilities: [...held].map((one) => capabilities[one as keyof typeof capabilities]) }), // one of the keys
    }),
  },
  identity: {
    plural: 'identities',
    v1: { ...service('Identities'), parent: 'parentId', held: 'identity' },
    v2: { kind: 'Identity', held: 'identity' },
    values: { name, description, subject: fc.stringMatching(/^[a-z]{3,9}$/) },
    required: ['name', 'subject'],
    toV1: withMatch,
    toV2: withMatch,
  },
  repo: {
    plural: 'repos',
    v1: {
      create: 'Registry/CreateRepo',
      update: 'Registry/UpdateRepo',
      list: 'Registry/ListRepos',
      remove: 'Registry/DeleteRepo',
      parent: 'parentId',
      held: 'repo',
    },
    v2: { kind: 'Repo', held: 'repo' },
    values: {
      name,
      description,
      catalogTier: fc.constantFrom(...Object.keys(tiers)),
      activeTags: fc.uniqueArray(fc.stringMatching(/^[a-z0-9]{1,5}$/), { maxLength: 3 }),
    },
    required: ['name'],
    toV1: same,
    toV2: ({ catalogTier, ...values }) => ({
      ...same(values),
      ...(catalogTier === undefined ? {} : { catalogTier: tiers[catalogTier as keyof typeof tiers] }), // one of the keys
    }),
  },
}

function withMatch({ subject, ...values }: Values): JsonObject {
  return { ...same(values), ...(subject === undefined ? {} : { claimMatch: { issuer: 'https://issuer.example', subject: String(subject) } }) }
}

/** One write. `at` selects a record, `values` are the new ones. */
interface Step {
  readonly kind: string
  readonly version: 'v1' | 'v2'
  readonly action: 'create' | 'update' | 'remove'
  readonly at: number
  readonly values: Values
}

/** Returns steps whose values have those that `required` names, and any of the others. */
const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.constantFrom(...Object.keys(kinds)).chain((kind) =>
    fc.record({
      kind: fc.constant(kind),
      version: fc.constantFrom('v1' as const, 'v2' as const),
      action: fc.constantFrom('create' as const, 'update' as const, 'update' as const, 'remove' as const),
      at: fc.nat(100),
      values: fc.record(kinds[kind]?.values ?? {}, { requiredKeys: [...(kinds[kind]?.required ?? [])] }),
    }),
  ),
  { minLength: 20, maxLength: 30 },
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
    const values = fc.record(kinds[kind]?.values ?? {}, { requiredKeys: [...(kinds[kind]?.required ?? [])] })
    const action = fc.constantFrom('update' as const, 'update' as const, 'update' as const, 'remove' as const)
    const write = fc.record({ version: fc.constantFrom('v1' as const, 'v2' as const), action, values })
    const writes = fc.array(write, { minLength: 2, maxLength: 3 })
    return fc.record({ kind: fc.constant(kind), isNew: fc.boolean(), at: fc.nat(100), values, writes })
  }),
  { minLength: 4, maxLength: 6 },
)

/** Returns the values of a record in one form for both versions, with the defaults of those that are not set. */
function inOneForm(kind: string, values: Values): string {
  const fields = Object.keys(kinds[kind]?.values ?? {})
  return JSON.stringify(fields.map((field) => values[field] ?? (field === 'activeTags' ? [] : '')))
}

/** Returns the values that an answer has. */
function valuesIn(record: JsonObject): Values {
  const { claimMatch, catalogTier, capabilities: held, ...plain } = record
  const names = Object.entries(capabilities).flatMap(([name, number]) => [[name, name] as const, [number, name] as const])
  const tier = String(catalogTier ?? '').replace('CATALOG_TIER_', '')
  return {
    ...(plain as Values), // the fields of a kind are texts and lists of them
    ...(claimMatch === undefined || claimMatch === null ? {} : { subject: String((claimMatch as JsonObject)['subject']) }), // of an identity
    ...(Object.hasOwn(tiers, tier) ? { catalogTier: tier } : {}),
    ...(Array.isArray(held) ? { capabilities: held.map((one) => new Map<string, string>(names).get(String(one)) ?? String(one)) } : {}),
  }
}

/** Returns the values after a write, and whether the write succeeds. `state` is undefined for a record that is gone. */
function after(state: Values | undefined, { version, action, values }: Burst['writes'][number]): { readonly state: Values | undefined; readonly code: number } {
  // A delete of version 1 also succeeds without the record.
  if (state === undefined) return { state, code: action === 'remove' && version === 'v1' ? 0 : 5 }
  if (action === 'remove') return { state: undefined, code: 0 }
  return { state: version === 'v1' ? values : { ...state, ...values }, code: 0 }
}

function ordersOf<T>(items: readonly T[]): T[][] {
  return items.length === 0 ? [[]] : items.flatMap((one, at) => ordersOf(items.toSpliced(at, 1)).map((rest) => [one, ...rest]))
}

interface Stored {
  readonly kind: string
  readonly values: Values
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
        const { group, token } = await makeOrganisation(server)
        const parent = String(ok(await server.rest.call('CreateGroup', { parent: group, group: { name: freshName('place') } }, { token }))['uid'])
        const call = async (rpc: string, request: JsonObject): Promise<JsonObject> => ok(await server[transport].call(rpc, request, { token }))
        const model = new Map<string, Stored>()

        /** Expects that both versions show the record of the model, or that it is gone. */
        const expectSame = async (id: string, kind: string): Promise<void> => {
          const { v1, v2, toV1, toV2, values } = kinds[kind] as BothKind // a key
          const items = itemsOf(await call(v1.list, { id }), 'items')
          const got = await server[transport].call(`Get${v2.kind}`, { uid: id }, { token })
          const stored = model.get(id)
          if (stored === undefined) {
            expect(items).toEqual([])
            expect(got.code).toBe(5)
            return
          }
          const unset = Object.fromEntries(Object.keys(values).map((field) => [field, field === 'activeTags' ? [] : '']))
          const full = { ...unset, ...stored.values }
          const { catalogTier: _tier, ...plain } = full
          expect(items).toMatchObject([{ id, ...toV1(stored.values['catalogTier'] === undefined ? plain : full) }])
          expect(got.body).toMatchObject({ uid: id, ...toV2(stored.values['catalogTier'] === undefined ? plain : full) })
        }

        const write = async ({ kind, version, action, at, values }: Step): Promise<void> => {
          const { v1, v2, toV1, toV2 } = kinds[kind] as BothKind // a key
          const known = [...model].filter(([, stored]) => stored.kind === kind)
          const [id = '', stored] = known[at % Math.max(known.length, 1)] ?? []
          if (action === 'create' || stored === undefined) {
            const made =
              version === 'v1'
                ? await call(v1.create, { [v1.parent]: parent, [v1.held]: toV1(values) })
                : await call(`Create${v2.kind}`, { parent, [v2.held]: toV2(values) })
            const uid = String(made['id'] ?? made['uid'])
            model.set(uid, { kind, values })
            return expectSame(uid, kind)
          }
          if (action === 'remove') {
            await (version === 'v1' ? call(v1.remove, { id }) : call(`Delete${v2.kind}`, { uid: id }))
            model.delete(id)
          } else if (version === 'v1') {
            await call(v1.update, { id, ...toV1(values) })
            model.set(id, { kind, values })
          } else {
            const change = toV2(values)
            await call(`Update${v2.kind}`, { [v2.held]: { uid: id, ...change }, updateMask: Object.keys(change).join(',') })
            model.set(id, { kind, values: { ...stored.values, ...values } })
          }
          return expectSame(id, kind)
        }

        for (const step of plan) await write(step)
        for (const [kind, { v1, v2, plural }] of Object.entries(kinds)) {
          const ids = [...model].flatMap(([id, stored]) => (stored.kind === kind ? [id] : [])).toSorted()
          expect(itemsOf(await call(v1.list, { uidp: { childrenOf: parent } }), 'items').map(({ id }) => id)).toEqual(ids)
          const listed = await call(`List${plural.charAt(0).toUpperCase()}${plural.slice(1)}`, { uidp: { childrenOf: parent }, pageSize: 200 })
          expect(
            itemsOf(listed, plural).map(({ uid }) => uid),
            v2.kind,
          ).toEqual(ids)
        }
      }),
      { numRuns: 4 },
    )
  })

  test('writes of both versions at the same time are those of some order, and both read the same', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(bursts, { minLength: 2, maxLength: 3 }), fc.constantFrom('rest' as const, 'grpc' as const), async (rounds, transport) => {
        const { group, token } = await makeOrganisation(server)
        const parent = String(ok(await server.rest.call('CreateGroup', { parent: group, group: { name: freshName('place') } }, { token }))['uid'])
        const call = (rpc: string, request: JsonObject): Promise<Reply> => server[transport].call(rpc, request, { token })
        const model = new Map<string, Stored>()

        /** Reads a record in one version, in one form; undefined if it is gone. */
        const read = async (id: string, kind: string, version: 'v1' | 'v2'): Promise<string | undefined> => {
          const { v1, v2 } = kinds[kind] as BothKind // a key
          const got = version === 'v1' ? await call(v1.list, { id }) : await call(`Get${v2.kind}`, { uid: id })
          if (version === 'v2' && got.code === 5) return undefined
          const [record] = version === 'v1' ? itemsOf(ok(got), 'items') : [ok(got)]
          return record === undefined ? undefined : inOneForm(kind, valuesIn(record))
        }

        const write = (id: string, kind: string, { version, action, values }: Burst['writes'][number]): Promise<Reply> => {
          const { v1, v2, toV1, toV2 } = kinds[kind] as BothKind // a key
          if (action === 'remove') return version === 'v1' ? call(v1.remove, { id }) : call(`Delete${v2.kind}`, { uid: id })
          if (version === 'v1') return call(v1.update, { id, ...toV1(values) })
          const change = toV2(values)
          return call(`Update${v2.kind}`, { [v2.held]: { uid: id, ...change }, updateMask: Object.keys(change).join(',') })
        }

        const recordFor = async ({ kind, isNew, at, values, writes: [first] }: Burst): Promise<string> => {
          const known = [...model].filter(([, stored]) => stored.kind === kind)
          const found = known[at % Math.max(known.length, 1)]?.[0]
          if (found !== undefined && !isNew) return found
          const { v1, v2, toV1, toV2 } = kinds[kind] as BothKind // a key
          const made =
            first?.version === 'v1'
              ? await call(v1.create, { [v1.parent]: parent, [v1.held]: toV1(values) })
              : await call(`Create${v2.kind}`, { parent, [v2.held]: toV2(values) })
          const id = String(ok(made)['id'] ?? ok(made)['uid'])
          model.set(id, { kind, values })
          return id
        }

        /** Runs the writes of a record together with reads in both versions, and keeps the outcome in the model. */
        const run = async (id: string, { kind, writes }: Burst): Promise<void> => {
          const before = model.get(id)?.values
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
              const next = after(state, writes[at] as Burst['writes'][number]) // a key
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
        for (const [kind, { v1, plural }] of Object.entries(kinds)) {
          const ids = [...model].flatMap(([id, stored]) => (stored.kind === kind ? [id] : [])).toSorted()
          expect(itemsOf(ok(await call(v1.list, { uidp: { childrenOf: parent } })), 'items').map(({ id }) => id)).toEqual(ids)
          const listed = ok(await call(`List${plural.charAt(0).toUpperCase()}${plural.slice(1)}`, { uidp: { childrenOf: parent }, pageSize: 200 }))
          expect(itemsOf(listed, plural).map(({ uid }) => uid)).toEqual(ids)
        }
      }),
      { numRuns: 3, endOnFailure: true },
    )
  })
})
