import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import fc from 'fast-check'
import { roleCapabilities } from '../../../src/authz/grants-index.ts'
import { capabilitiesAt } from '../../../src/authz/effective-permissions.ts'
import { containsAll } from '../../../src/base/capability.ts'
import type { RoleBinding } from '../../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { authorityOf } from '../../../src/kubernetes/grants.ts'
import { originLabel, uidAnnotation, type GrantSpec, type PlatformObject } from '../../../src/kubernetes/platform-object.ts'
import { KubeError, type ObjectRef, type ObjectType } from '../../../src/kubernetes/kube-api.ts'
import { objectTypes } from '../../../src/kubernetes/object-types.ts'
import { parseManagedBy } from '../../../src/engine/ownership.ts'
import type { CachedRecord } from '../../../src/cache/records/cached-record.ts'
import { freshName, ok, roleUid } from '../../support/test-server.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { campaignLength, timeoutUnlessSoaking } from '../../soak/factor.ts'
import { startControllerWorld, type ControllerWorld, type TestType } from '../controller-world.ts'
import { populate, type Population } from '../population.ts'
import { recordKinds, rowOf } from '../../../src/kubernetes/object-kinds.ts'

const signal = AbortSignal.timeout(3_600_000)
const polling = { timeout: 120_000, interval: 100 }
const runs = campaignLength({ short: 2, full: 5 })
const capabilities = ['CAP_IAM_GROUPS_LIST', 'CAP_IAM_GROUPS_DELETE', 'CAP_IAM_ROLES_LIST']

/** One action of a random user. */
type Step =
  | {
      readonly do: 'put'
      readonly type: TestType
      readonly space: number
      readonly name: string
      readonly spec: Readonly<Record<string, unknown>>
      readonly claims: string | undefined
    }
  | { readonly do: 'delete'; readonly type: TestType; readonly space: number; readonly name: string }
  | { readonly do: 'strip' | 'label'; readonly type: TestType; readonly space: number; readonly name: string }
  | { readonly do: 'grant'; readonly space: number; readonly spec: Readonly<Record<string, unknown>> }
  | { readonly do: 'withdraw'; readonly space: number }
  | { readonly do: 'role'; readonly uid: string; readonly capabilities: readonly string[] }

describeWithPart('kube-apiserver', 'grants during any sequence of events', () => {
  let world: ControllerWorld
  let population: Population

  beforeAll(async () => {
    world = await startControllerWorld()
    population = await populate(world.server)
  })
  afterAll(() => world?.stop())

  /** The groups of the first of two organisations, to which grants apply. */
  const home = (): readonly string[] => population.groups.slice(0, 3)

  function stepsOf(): fc.Arbitrary<readonly Step[]> {
    const types: readonly TestType[] = ['group', 'identity', 'role', 'roleBinding', 'repo']
    const type = fc.constantFrom(...types)
    // Silenced objects that matter are bindings above all.
    const silenced = fc.constantFrom(...types, ...Array.from({ length: 5 }, (): TestType => 'roleBinding'))
    const space = fc.nat(1)
    const name = fc.constantFrom('red', 'green', 'blue')
    const anyUid = fc.constantFrom(...population.uids)
    const role = fc.oneof(
      fc.constantFrom(...population.roles).map((uid) => ({ uid })),
      fc.constantFrom('owner', 'viewer').map((builtIn) => ({ builtIn })),
    )
    const references = {
      parentRef: fc.oneof(
        { arbitrary: fc.constantFrom(...home()).map((uid) => ({ uid })), weight: 4 },
        { arbitrary: anyUid.map((uid) => ({ uid })), weight: 1 },
      ),
      identityRef: fc.oneof(
        fc.constantFrom(...population.identities).map((uid) => ({ uid })),
        name.map((meant) => ({ name: meant })),
      ),
      roleRef: fc.oneof(
        role,
        name.map((meant) => ({ name: meant })),
      ),
    }
    const own = {
      capabilities: fc.subarray(capabilities, { minLength: 1 }),
      name: fc.constantFrom('alpha', 'beta', 'delta'),
      adoptionPolicy: fc.constantFrom('Never', 'ByUid', 'ByName'),
      deletionPolicy: fc.constantFrom('Delete', 'Orphan'),
    }
    const grant = fc.record({
      groupUid: fc.constantFrom(...home()),
      allowedKinds: fc.subarray(
        recordKinds.map((kind) => rowOf(kind).type.kind),
        { minLength: 2 },
      ),
      maxRole: role,
      allowAdoption: fc.boolean(),
    })
    const put = fc.record({
      do: fc.constant('put' as const),
      type,
      space,
      name,
      claims: fc.option(anyUid, { nil: undefined, freq: 1 }),
      spec: fc.record({ ...references, ...own }),
    })
    return fc.array(
      fc.oneof(
        { arbitrary: put, weight: 8 },
        { arbitrary: fc.record({ do: fc.constant('delete' as const), type, space, name }), weight: 1 },
        { arbitrary: fc.record({ do: fc.constantFrom('strip' as const, 'label' as const), type: silenced, space, name }), weight: 2 },
        { arbitrary: fc.record({ do: fc.constant('grant' as const), space, spec: grant }), weight: 3 },
        { arbitrary: fc.record({ do: fc.constant('withdraw' as const), space }), weight: 1 },
        {
          arbitrary: fc.record({ do: fc.constant('role' as const), uid: fc.constantFrom(...population.roles.slice(0, 3)), capabilities: own.capabilities }),
          weight: 2,
        },
      ),
      { minLength: 20, maxLength: 40 },
    )
  }

  const wide = (): Readonly<Record<string, unknown>> => ({
    namespaceSelector: {},
    groupUid: home()[0] ?? '',
    allowedKinds: recordKinds.map((kind) => rowOf(kind).type.kind),
    maxRole: { builtIn: 'owner' },
    allowAdoption: true,
  })

  /** Returns objects whose current generation the controller has not processed. */
  async function unseen(spaces: readonly string[]): Promise<readonly string[]> {
    const lists = await Promise.all(
      spaces.flatMap((namespace) => recordKinds.map((kind) => world.api.list(rowOf(kind).type, { namespace, limit: 500 }, signal))),
    )
    return (
      lists
        .flatMap(({ items }) => items as readonly PlatformObject[])
        // An object that looks like a mirror and has no record has no effect.
        .filter(({ metadata }) => metadata.labels?.[originLabel] === undefined)
        .flatMap(({ metadata, status }) => (status?.observedGeneration === metadata.generation ? [] : [metadata.name]))
    )
  }

  function specFor(type: TestType, given: Readonly<Record<string, unknown>>): Record<string, unknown> {
    const { parentRef, identityRef, roleRef, capabilities: wanted, ...others } = given
    if (type === 'roleBinding') return { parentRef, identityRef, roleRef, adoptionPolicy: others['adoptionPolicy'], deletionPolicy: others['deletionPolicy'] }
    if (type === 'role') return { ...others, parentRef, capabilities: wanted }
    return type === 'identity' ? { ...others, parentRef, serviceAccountRef: { name: 'anyone' } } : { ...others, parentRef }
  }

  /** Removes the finalizer like a user and deletes the object, before the controller restores the finalizer. */
  async function strip(type: ObjectType, ref: ObjectRef): Promise<void> {
    await world.stopControllers()
    try {
      await world.api.patch(type, ref, { metadata: { finalizers: null } }, signal)
      await world.api.delete(type, ref, {}, signal)
    } finally {
      world.startController()
    }
  }

  async function take(step: Step, spaces: readonly string[]): Promise<void> {
    const namespace = 'space' in step ? (spaces[step.space] ?? '') : ''
    switch (step.do) {
      case 'put':
        return world.put(
          step.type,
          namespace,
          step.name,
          specFor(step.type, step.spec),
          step.claims === undefined ? {} : { annotations: { [uidAnnotation]: step.claims } },
        )
      case 'delete':
        return world.api.delete(objectTypes[step.type], { namespace, name: step.name }, {}, signal)
      case 'strip':
        return strip(objectTypes[step.type], { namespace, name: step.name })
      case 'label':
        await world.api.patch(objectTypes[step.type], { namespace, name: step.name }, { metadata: { labels: { [originLabel]: 'api' } } }, signal)
        return
      case 'withdraw':
        return world.api.delete(objectTypes.grant, { name: namespace }, {}, signal)
      case 'grant': {
        await world.api.delete(objectTypes.grant, { name: namespace }, {}, signal)
        const spec = { ...step.spec, namespaceSelector: { matchNames: [namespace] } }
        await world.api.create(objectTypes.grant, { metadata: { name: namespace }, spec }, signal)
        return
      }
      case 'role': {
        const reply = await world.server.rest.call(
          'UpdateRole',
          { role: { uid: step.uid, capabilities: [...step.capabilities] } },
          { token: await world.server.operatorToken() },
        )
        // An object may own it now.
        if (reply.code !== 9) ok(reply)
      }
    }
  }

  const records = (): { kind: string; record: CachedRecord }[] => {
    const { tables } = world.server.running.engine.cache
    return recordKinds.flatMap((kind) => {
      const { byUid, size } = tables.table(kind)
      return [...byUid.items(0, size)].map((record) => ({ kind, record }))
    })
  }

  /** Returns whether it is the last owner that an organisation keeps, whatever the grant. */
  function isLastOwner(record: CachedRecord): boolean {
    const { tables } = world.server.running.engine.cache
    const bindings = tables.table('RoleBinding')
    const isOwner = ({ parent, message }: CachedRecord): boolean => parent === record.parent && (message as unknown as RoleBinding).roleUid === roleUid('owner')
    const owners = [...bindings.matching('parent', record.parent)].filter(isOwner)
    const known = owners.filter((owner) => owner.uid === record.uid || tables.get('Identity', bindings.valueOf(owner, 'identity') ?? '') !== undefined)
    return !record.parent.includes('/') && isOwner(record) && known.length === 1
  }

  /** Returns records of objects in this cluster that their current grants do not allow. */
  async function excess(): Promise<readonly string[]> {
    const { items } = await world.api.list(objectTypes.grant, { limit: 500 }, signal)
    const { tables } = world.server.running.engine.cache
    return records().flatMap(({ kind, record }) => {
      const owner = parseManagedBy(record.managedBy)
      if (owner === undefined) return []
      if (!home().some((group) => record.uid.startsWith(`${group}/`))) return [`${kind} ${record.uid} lies where no grant ever was`]
      if (kind !== 'RoleBinding' || isLastOwner(record)) return []
      const asked = { namespace: { name: owner.namespace, labels: {} }, objectKind: 'PlatformRoleBinding', place: record.parent }
      const authority = authorityOf(
        items.map(({ spec }) => spec as GrantSpec),
        asked,
        tables,
      )
      const role = tables.get('Role', (record.message as unknown as RoleBinding).roleUid)
      const isWithin = role === undefined || containsAll(capabilitiesAt(authority.permissions, record.parent), roleCapabilities(role))
      return authority.granted && !isWithin ? [`binding ${record.uid} of ${record.managedBy} gives more than its namespace may`] : []
    })
  }

  test(
    `grants during any sequence of events keep all records within their limits, and foreign records unchanged (${runs} histories)`,
    async () => {
      const foreign = (): readonly string[] =>
        records()
          .filter(({ record }) => !home().some((group) => record.uid === group || record.uid.startsWith(`${group}/`)))
          .map(({ kind, record }) => `${kind} ${record.uid} ${record.etag}`)
          .sort()
      const before = foreign()
      let owned = 0
      await fc.assert(
        fc.asyncProperty(stepsOf(), async (steps) => {
          const spaces = [freshName('left'), freshName('right')]
          for (const name of spaces) await world.api.create(objectTypes.namespace, { metadata: { name } }, signal)
          for (const [space] of spaces.entries()) await take({ do: 'grant', space, spec: wide() }, spaces)
          const takeIfPossible = (step: Step): Promise<void> =>
            take(step, spaces).catch((error: unknown) => {
              // References are immutable, a namespace's objects may be invalid, and an object to silence may not exist.
              if (!(error instanceof KubeError) || (error.reason !== 'invalid' && error.reason !== 'not_found')) throw error
            })
          const doAll = async (all: readonly Step[]): Promise<void> => {
            for (const step of all) await takeIfPossible(step)
          }
          await doAll(steps)
          await vi.waitFor(async () => expect([...(await excess()), ...(await unseen(spaces))]).toEqual([]), polling)
          // Every existing binding is silenced; bindings outside of their grants are then still deleted.
          await doAll(spaces.map((_, space) => ({ do: 'grant', space, spec: wide() })))
          await vi.waitFor(async () => expect(await unseen(spaces)).toEqual([]), polling)
          for (const name of ['red', 'green', 'blue'])
            await doAll([
              { do: 'strip', type: 'roleBinding', space: 0, name },
              { do: 'label', type: 'roleBinding', space: 1, name },
            ])
          await doAll(spaces.map((_, space) => ({ do: 'grant', space, spec: { ...wide(), maxRole: { builtIn: 'registry.pull' } } })))
          await vi.waitFor(async () => expect(await excess()).toEqual([]), polling)
          owned += records().filter(({ record }) => spaces.some((space) => record.managedBy.includes(`/${space}/`))).length
          expect(foreign()).toEqual(before)
        }),
        { numRuns: runs, endOnFailure: true },
      )
      // A property that never creates a record proves nothing.
      expect(owned).toBeGreaterThan(runs)
      await world.stopControllers()
      await world.startController().settled()
      expect(await excess()).toEqual([])
      expect(foreign()).toEqual(before)
    },
    timeoutUnlessSoaking(300_000),
  )
})
