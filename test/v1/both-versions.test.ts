import type { JsonObject } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { itemsOf } from '../conformance/spec/spec-suite.ts'
import { freshName, makeOrganisation, ok, startTestServer, type TestServer } from '../support/test-server.ts'
import { describeOnStores } from '../support/parts/require-part.ts'

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

interface Stored {
  readonly kind: string
  readonly values: Values
}

describeOnStores('records that both versions write', (store) => {
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
})
