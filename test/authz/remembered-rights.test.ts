import fc from 'fast-check'
import { expect, test } from 'vitest'
import { GrantsIndex, grantsOf } from '../../src/authz/grants-index.ts'
import { decide, restrict, visibilityOf } from '../../src/authz/effective-permissions.ts'
import { setOf } from '../../src/base/capability.ts'
import { trustedUid, type Uid } from '../../src/base/uid.ts'
import { HeldAnswers } from '../../src/iam/signin/web/held-answers.ts'
import { WhoAmISchema } from '../../src/gen/taproot/auth/v1/auth_pb.ts'
import { createJsonEncoders } from '../../src/transport/json-encode.ts'
import { answerBinary } from '../../src/transport/grpc/unary-calls.ts'
import { create, fromBinary } from '@bufbuild/protobuf'
import type { Caller, Services } from '../../src/engine/services.ts'
import { builtInRoleRecords } from '../../src/iam/records/roles.ts'
import type { RecordCache } from '../../src/cache/record-cache.ts'
import type { HideListener, RecordListener } from '../../src/cache/record-tables.ts'
import { cascadeKey } from '../../src/store/keys.ts'
import { storeRevision } from '../../src/store/store.ts'
import { changeOf, emptyTables, newUid, one, picker, removalOf, type Pick as Chance, type Plain } from '../cache/records.ts'

const lists = setOf(['groups.list'])
const builtIns = builtInRoleRecords.map((record) => record.uid)

/** A snapshot with the caches of permissions over it. */
class World {
  readonly recordListeners: RecordListener[] = []
  readonly hideListeners: HideListener[] = []
  readonly tables = emptyTables({
    builtIns: builtInRoleRecords,
    listener: (...change) => this.recordListeners.forEach((listener) => listener(...change)),
    onHide: (...hidden) => this.hideListeners.forEach((listener) => listener(...hidden)),
  })
  readonly pick: Chance
  readonly root: Uid
  readonly identity: Uid
  readonly groups: Plain[] = []
  readonly bindings: Plain[] = []
  readonly grants: GrantsIndex
  readonly answers: HeldAnswers

  constructor(pick: Chance, count: number) {
    this.pick = pick
    this.root = newUid(pick)
    this.identity = newUid(pick, this.root)
    // The members of the record cache that these caches use.
    const source: Pick<RecordCache, 'tables' | 'onReset' | 'onRecord' | 'onHide'> = {
      tables: this.tables,
      onReset: () => () => undefined,
      onRecord: (listener) => {
        this.recordListeners.push(listener)
        return () => undefined
      },
      onHide: (listener) => {
        this.hideListeners.push(listener)
        return () => undefined
      },
    }
    const cache = source as RecordCache
    this.grants = new GrantsIndex(cache)
    this.answers = new HeldAnswers({ cache, grants: this.grants, clock: { now: () => 0 } } as Services)
    this.put({ kind: 'Group', uid: this.root, name: 'root', createMs: 1, updateMs: 1, filters: {} })
    for (let at = 0; at < count; at++) this.bind(this.addGroup())
  }

  put(plain: Plain): void {
    this.tables.apply([changeOf(plain)])
  }

  addGroup(): Plain {
    const parent = this.groups.length > 0 && this.pick(4) === 0 ? one(this.pick, this.groups.slice(0, 20)).uid : this.root
    const group = { kind: 'Group', uid: newUid(this.pick, parent), name: 'a', createMs: 1, updateMs: 1, filters: {} }
    this.groups.push(group)
    this.put(group)
    return group
  }

  bind({ uid }: Plain): void {
    const filters = { identity: this.identity, role: one(this.pick, builtIns), group: uid }
    const binding = { kind: 'RoleBinding', uid: newUid(this.pick, uid), name: '', createMs: 1, updateMs: 1, filters }
    this.bindings.push(binding)
    this.put(binding)
  }

  /** Changes a random record, on which the rights may or may not depend. */
  change(): void {
    const { pick } = this
    const group = one(pick, this.groups)
    const binding = one(pick, this.bindings)
    const act = pick(7)
    if (act === 0) this.put({ ...group, name: `name ${pick(1000)}` })
    else if (act === 1) this.bind(group)
    else if (act === 2) this.tables.apply([removalOf(binding)])
    else if (act === 3) this.put({ ...binding, filters: { ...binding.filters, role: one(pick, builtIns) } })
    else if (act === 4) this.put({ kind: 'Group', uid: this.root, name: `root ${pick(1000)}`, createMs: 1, updateMs: 1, filters: {} })
    else if (act === 5) this.tables.apply([{ key: cascadeKey(trustedUid(group.uid)), value: Buffer.from('Group'), revision: storeRevision(1) }])
    else this.put({ ...binding, uid: newUid(pick, group.uid), filters: { ...binding.filters, identity: newUid(pick, this.root) } })
  }

  caller(): Caller {
    const restrictions = {}
    const { identity } = this
    return { identity, operator: false, actor: {}, restrictions, permissions: () => this.grants.permissionsOf({ identity, operator: false, restrictions }) }
  }
}

const encode = createJsonEncoders()(WhoAmISchema)

/** Returns the permissions in an answer, in either form. */
async function heldIn(world: World, answers: HeldAnswers, form: 'http' | 'grpc'): Promise<unknown> {
  const answer = await answers.of(form, world.caller())
  if ('items' in answer) return JSON.parse(encode(create(WhoAmISchema, { capabilities: answer.items })))['capabilities']
  if (form === 'http') return JSON.parse(`[${Buffer.concat(answer.joined).toString()}]`)
  const page = { field: WhoAmISchema.field.capabilities, items: [], joined: answer.joined }
  const bytes = answerBinary(WhoAmISchema, { message: create(WhoAmISchema), page })
  return JSON.parse(encode(fromBinary(WhoAmISchema, bytes)))['capabilities']
}

test('cached permissions and who-am-I answers equal fresh ones, across any changes and during their computation', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer(), async (seed) => {
      const world = new World(picker(seed), 160)
      const { pick, tables, identity, grants } = world
      const restrictions = { scopes: [trustedUid(one(pick, world.groups).uid)] }
      for (let round = 0; round < 30; round++) {
        const form = pick(2) === 0 ? 'http' : 'grpc'
        const asked = heldIn(world, world.answers, form)
        // Changes that arrive during the computation of an answer, or right after it.
        for (let changes = pick(4); changes > 0; changes--) {
          if (pick(2) === 0) await new Promise((resolve) => setImmediate(resolve))
          world.change()
          const fresh = { operator: false, grants: grantsOf(tables, identity) }
          expect(grants.of(identity)).toEqual(fresh)
          expect(grants.permissionsOf({ identity, operator: false, restrictions })).toEqual(restrict(fresh, restrictions))
          const { uid } = one(pick, world.groups)
          expect(decide(grants.of(identity), uid, lists)).toEqual(decide(fresh, uid, lists))
          expect(visibilityOf(grants.of(identity), lists)).toEqual(visibilityOf(fresh, lists))
        }
        await asked
        const fresh = new HeldAnswers({
          cache: { tables, onReset: () => undefined, onRecord: () => undefined, onHide: () => undefined },
          grants,
          clock: { now: () => 0 },
        } as unknown as Services)
        expect(await heldIn(world, world.answers, form)).toEqual(await heldIn(world, fresh, form))
      }
    }),
    { numRuns: 6 },
  )
})

/** Creates a world in which the identity has many bindings at each of two groups, and a function that removes the first ones. */
function boundOften(count: number, others: number): { world: World; removeGroup: () => void } {
  const world = new World(picker(7), 0)
  const [group, other] = [world.addGroup(), world.addGroup()]
  for (let at = 0; at < count; at++) world.bind(group)
  for (let at = 0; at < others; at++) world.bind(other)
  const mark = { key: cascadeKey(trustedUid(group.uid)), value: Buffer.from('Group'), revision: storeRevision(1) }
  return { world, removeGroup: () => world.tables.apply([mark]) }
}

test('cached permissions end in the same turn in which bindings become hidden', async () => {
  const { world, removeGroup } = boundOften(1_000, 400)
  expect(await heldIn(world, world.answers, 'http')).toHaveLength(1_400)
  expect(world.grants.of(world.identity).grants).toHaveLength(2)
  removeGroup()
  expect(world.grants.of(world.identity).grants).toHaveLength(1)
  expect(await heldIn(world, world.answers, 'http')).toHaveLength(400)
})

test.each([2, 8])('bindings that become hidden in turn %i of a sliced computation of permissions are in no answer', async (turns) => {
  const { world, removeGroup } = boundOften(3_000, 1_100)
  const prepared = world.grants.prepare(world.identity, {})
  const asked = heldIn(world, world.answers, 'grpc')
  expect(prepared).toBeDefined()
  for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve))
  removeGroup()
  await prepared
  expect(world.grants.of(world.identity).grants).toHaveLength(1)
  expect(await asked).toHaveLength(1_100)
})
