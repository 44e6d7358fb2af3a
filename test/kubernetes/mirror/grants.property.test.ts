import { afterAll, beforeAll, expect, test } from 'vitest'
import fc from 'fast-check'
import { systemRandom } from '../../../src/server/runtime.ts'
import { Capability } from '../../../src/gen/taproot/common/v2/capability_pb.ts'
import { roleCapabilities } from '../../../src/authz/grants-index.ts'
import { containsAll, emptySet, fromEnumNumbers, union, type CapabilitySet } from '../../../src/base/capability.ts'
import { builtInRoles } from '../../../src/base/roles.ts'
import { objectKinds, recordKinds, rowOf, type RecordKind } from '../../../src/kubernetes/object-kinds.ts'
import { uidAnnotation, type GrantSpec, type PlatformObject } from '../../../src/kubernetes/platform-object.ts'
import type { KubeApi, KubeObject } from '../../../src/kubernetes/kube-api.ts'
import { objectTypes } from '../../../src/kubernetes/object-types.ts'
import { createInformer, type Informer } from '../../../src/kubernetes/runtime/informer.ts'
import { gather } from '../../../src/kubernetes/reconcile/gather.ts'
import { planObject, type ObjectPlan } from '../../../src/kubernetes/reconcile/plan.ts'
import type { ObjectFacts } from '../../../src/kubernetes/reconcile/facts.ts'
import { ObjectClaims } from '../../../src/kubernetes/reconcile/claims.ts'
import { GrantsByNamespace } from '../../../src/kubernetes/reconcile/grants-by-namespace.ts'
import type { World } from '../../../src/kubernetes/world.ts'
import type { CachedRecord } from '../../../src/cache/records/cached-record.ts'
import { startTestServer, type TestServer } from '../../support/test-server.ts'
import { campaignLength, timeoutUnlessSoaking } from '../../soak/factor.ts'
import { ownedRecords, populate, type Population } from '../population.ts'

const signal = AbortSignal.timeout(3_600_000)
const runs = campaignLength({ short: 10_000, full: 50_000 })
const clusterId = 'cluster-1'
const namespaces = ['one', 'two'] as const
const capabilityNumbers = {
  CAP_IAM_GROUPS_LIST: Capability.CAP_IAM_GROUPS_LIST,
  CAP_IAM_GROUPS_DELETE: Capability.CAP_IAM_GROUPS_DELETE,
  CAP_IAM_ROLES_LIST: Capability.CAP_IAM_ROLES_LIST,
  CAP_REPO_LIST: Capability.CAP_REPO_LIST,
} as const

/** Prefixes of event types, and the capability that a subscription to them needs. */
const capabilityOfTypes = {
  'dev.taproot.api.iam.group.': 'CAP_IAM_GROUPS_LIST',
  'dev.taproot.api.iam.roles.': 'CAP_IAM_ROLES_LIST',
  'dev.taproot.registry.push.v1': 'CAP_REPO_LIST',
} as const satisfies Record<string, keyof typeof capabilityNumbers>

let server: TestServer
let population: Population

beforeAll(async () => {
  server = await startTestServer()
  population = await populate(server)
  await ownedRecords(server, population, { clusterId, namespaces })
})
afterAll(() => server?.stop())

/** One case: the grants, and one object with a request. */
interface Case {
  readonly grants: readonly GrantSpec[]
  readonly object: PlatformObject
  readonly kind: RecordKind
  readonly surroundings: { readonly namespaceGoes: boolean; readonly crdGoes: boolean }
}

function cases(): fc.Arbitrary<Case> {
  const allKinds = recordKinds.map((kind) => rowOf(kind).type.kind)
  const anyUid = fc.constantFrom(...population.uids)
  const anyRole = fc.oneof(
    fc.constantFrom(...population.roles).map((uid) => ({ uid })),
    fc.constantFrom('owner', 'viewer', 'editor').map((builtIn) => ({ builtIn })),
  )
  const grant = fc.record({
    namespaceSelector: fc.oneof(
      fc.subarray([...namespaces]).map((matchNames) => ({ matchNames })),
      fc.constantFrom('a', 'b').map((team) => ({ matchLabels: { team } })),
    ),
    groupUid: fc.oneof(fc.constant('/'), fc.constantFrom(...population.groups)),
    allowedKinds: fc.oneof(fc.constant(allKinds), fc.subarray(allKinds)),
    maxRole: fc.option(anyRole, { nil: undefined }),
    allowAdoption: fc.option(fc.boolean(), { nil: undefined }),
    onNamespaceDelete: fc.constantFrom('Delete', 'Orphan', undefined),
  })
  // In most cases an existing reference, sometimes any text.
  const reference = (meant: readonly string[]): fc.Arbitrary<object> =>
    fc.oneof(
      { arbitrary: fc.constantFrom(...meant).map((uid) => ({ uid })), weight: 6 },
      { arbitrary: anyUid.map((uid) => ({ uid })), weight: 1 },
      { arbitrary: fc.constantFrom(...population.objectNames).map((name) => ({ name })), weight: 2 },
    )
  const spec = fc.record({
    name: fc.option(fc.constantFrom(...population.names), { nil: undefined }),
    parentRef: fc.option(reference(population.groups), { nil: undefined }),
    identityRef: reference(population.identities),
    roleRef: fc.oneof(reference(population.roles), anyRole),
    capabilities: fc.subarray(Object.keys(capabilityNumbers), { minLength: 1 }),
    sink: fc.constant('https://hooks.example/taproot'),
    types: fc.subarray(Object.keys(capabilityOfTypes), { minLength: 1 }),
    deletionPolicy: fc.constantFrom('Delete', 'Orphan'),
    adoptionPolicy: fc.constantFrom('Never', 'ByUid', 'ByName'),
  })
  const claims = fc.record({
    annotation: fc.option(anyUid, { nil: undefined, freq: 1 }),
    statusUid: fc.option(anyUid, { nil: undefined }),
    resolved: fc.option(fc.record({ parent: anyUid, identity: anyUid, role: anyUid }), { nil: undefined }),
    isGoing: fc.nat(4).map((n) => n === 0),
  })
  return fc
    .record({
      grants: fc.array(grant, { maxLength: 3 }),
      kind: fc.constantFrom(...recordKinds),
      namespace: fc.constantFrom(...namespaces),
      name: fc.constantFrom(...population.objectNames),
      spec,
      claims,
      surroundings: fc.record({ namespaceGoes: fc.boolean(), crdGoes: fc.boolean() }),
    })
    .map(({ grants, kind, namespace, name, spec: given, claims: said, surroundings }) => {
      const metadata = {
        ...{ namespace, name, uid: 'u', resourceVersion: '5', generation: 1 },
        ...(said.annotation !== undefined && { annotations: { [uidAnnotation]: said.annotation } }),
        ...(said.isGoing && { deletionTimestamp: '2026-01-01T00:00:00Z' }),
      }
      const status = { ...(said.statusUid !== undefined && { uid: said.statusUid }), ...(said.resolved !== undefined && { resolved: said.resolved }) }
      // As JSON of the API server: undefined members are absent.
      const json = JSON.parse(JSON.stringify({ metadata, spec: specOf(kind, given), status })) as PlatformObject
      return { grants: JSON.parse(JSON.stringify(grants)) as GrantSpec[], object: json, kind, surroundings }
    })
}

/** Returns the fields that the CRD of this kind has. */
function specOf(kind: RecordKind, given: Readonly<Record<string, unknown>>): object {
  const policies = ['name', 'parentRef', 'deletionPolicy', 'adoptionPolicy']
  const own = { Group: [], Identity: [], Repo: [], Role: ['capabilities'], RoleBinding: ['identityRef', 'roleRef'], Subscription: ['sink', 'types'] }[kind]
  return Object.fromEntries(
    [...policies, ...own].filter((field) => !['RoleBinding', 'Subscription'].includes(kind) || field !== 'name').map((field) => [field, given[field]]),
  )
}

function informer(type: Informer['type'], ...objects: readonly KubeObject[]): Informer {
  // Never called, because it only holds the observations of the test.
  const api = {} as KubeApi
  const made = createInformer({ api, type, log: server.running.engine.services.log, random: systemRandom })
  for (const object of objects) made.observe(object)
  return made
}

function worldOf({ grants, object, kind, surroundings }: Case): World {
  const going = { metadata: { name: 'it', uid: 'u', resourceVersion: '1', deletionTimestamp: '2026-01-01T00:00:00Z' } }
  const there = { metadata: { name: 'it', uid: 'u', resourceVersion: '1' } }
  const get: World['api']['get'] = ({ kind: asked }) => {
    const goes = asked === 'Namespace' ? surroundings.namespaceGoes : surroundings.crdGoes
    return Promise.resolve(goes ? going : there)
  }
  const labelled = namespaces.map((name, index) => ({ metadata: { name, uid: name, resourceVersion: '1', labels: { team: ['a', 'b'][index] ?? '' } } }))
  const objects = Object.fromEntries(recordKinds.map((each) => [each, informer(rowOf(each).type, ...(each === kind ? [object] : []))]))
  const known = {
    grants: informer(objectTypes.grant, ...grants.map((spec, index) => ({ metadata: { name: `g${index}`, uid: `g${index}`, resourceVersion: '1' }, spec }))),
    namespaces: informer(objectTypes.namespace, ...labelled),
  }
  return {
    services: server.running.engine.services,
    cluster: { id: clusterId, issuer: 'https://issuer.example' },
    mirror: { enabled: false, namespace: 'mirrors', rootGroups: [], limit: 0 },
    // The tested code calls only `get`.
    api: { get } as unknown as World['api'],
    objects: objects as World['objects'],
    ...known,
    grantsByNamespace: new GrantsByNamespace(known.grants, known.namespaces),
    claims: new ObjectClaims(objects as World['objects']),
  } as unknown as World
}

const cached = (kind: RecordKind, uid: string): CachedRecord | undefined => server.running.engine.cache.tables.get(kind, uid)

function capabilitiesOfRole({ uid, builtIn }: { uid?: string; builtIn?: string } = {}): CapabilitySet {
  const found = builtInRoles.find((role) => role.uid === uid || role.name === builtIn)
  if (found !== undefined) return found.capabilities
  const record = uid === undefined ? undefined : cached('Role', uid)
  return record === undefined ? emptySet : roleCapabilities(record)
}

/** Returns the rights of the grants, computed from the documented rules and not from the code. */
function said({ grants, object, kind }: Case, place: string): { granted: boolean; adoption: boolean; deletes: boolean; most: CapabilitySet } {
  const team = object.metadata.namespace === 'one' ? 'a' : 'b'
  const applying = grants.filter(({ namespaceSelector: { matchNames, matchLabels }, groupUid, allowedKinds }) => {
    const isMeant = (matchNames ?? [object.metadata.namespace]).includes(object.metadata.namespace) && (matchLabels?.['team'] ?? team) === team
    const isThere = groupUid === '/' || place === groupUid || place.startsWith(`${groupUid}/`)
    return isMeant && isThere && allowedKinds.includes(objectKinds[kind].type.kind)
  })
  return {
    granted: applying.length > 0,
    adoption: applying.some(({ allowAdoption }) => allowAdoption === true),
    deletes: applying.length > 0 && applying.every(({ onNamespaceDelete }) => onNamespaceDelete === 'Delete'),
    most: applying.map(({ maxRole }) => capabilitiesOfRole(maxRole)).reduce(union, emptySet),
  }
}

/** Returns the capabilities that the plan newly gives to an identity. */
function givenBy({ kind, object }: Case, facts: ObjectFacts): CapabilitySet {
  if (kind === 'RoleBinding' && facts.references.found) return capabilitiesOfRole({ uid: facts.references.role ?? '' })
  if (kind === 'Subscription') {
    const { types } = object.spec as unknown as { types: readonly (keyof typeof capabilityOfTypes)[] }
    return fromEnumNumbers(types.map((type) => capabilityNumbers[capabilityOfTypes[type]]))
  }
  if (kind !== 'Role') return emptySet
  const { capabilities } = object.spec as unknown as { capabilities: readonly (keyof typeof capabilityNumbers)[] }
  return fromEnumNumbers(capabilities.map((name) => capabilityNumbers[name]))
}

function assertWithin(given: Case, facts: ObjectFacts, { record: step }: ObjectPlan): void {
  const { object, kind } = given
  const own = `${clusterId}/${object.metadata.namespace}/${object.metadata.name}`
  if (step.do === 'nothing') return
  if (step.do === 'create') {
    const rights = said(given, step.parent)
    expect(rights.granted).toBe(true)
    expect(object.metadata.deletionTimestamp).toBeUndefined()
    expect(containsAll(rights.most, givenBy(given, facts))).toBe(true)
    // An object with a uid never creates a record, unless its references changed their meaning.
    if (object.metadata.annotations?.[uidAnnotation] !== undefined) expect(object.status?.resolved).toBeDefined()
    return
  }
  const record = cached(kind, step.uid)
  expect(record).toBeDefined()
  if (record === undefined) return
  const rights = said(given, record.parent)
  if (step.do === 'update') {
    expect(object.metadata.deletionTimestamp).toBeUndefined()
    expect(rights.granted).toBe(true)
    expect(containsAll(rights.most, givenBy(given, facts))).toBe(true)
    if (record.managedBy === own) return
    expect({ managedBy: record.managedBy, adopts: step.adopts, allowed: rights.adoption }).toEqual({ managedBy: '', adopts: true, allowed: true })
    expect(object.spec.adoptionPolicy).not.toBe('Never')
    if (object.metadata.annotations?.[uidAnnotation] !== step.uid) expect(object.spec.adoptionPolicy).toBe('ByName')
    return
  }
  expect(record.managedBy).toBe(own)
  if (step.do === 'release') return
  if (object.metadata.deletionTimestamp === undefined) {
    // Only a binding with too many rights is deleted without its object.
    expect(kind).toBe('RoleBinding')
    expect(containsAll(rights.most, capabilitiesOfRole({ uid: server.running.engine.cache.tables.table('RoleBinding').valueOf(record, 'role') ?? '' }))).toBe(
      false,
    )
    return
  }
  expect({ granted: rights.granted, crdGoes: given.surroundings.crdGoes }).toEqual({ granted: true, crdGoes: false })
  expect(given.surroundings.namespaceGoes ? rights.deletes : object.spec.deletionPolicy === 'Delete').toBe(true)
}

test(
  `whatever objects and grants contain, planned changes stay within the grants (${runs} cases)`,
  async () => {
    const planned = new Map<string, number>()
    await fc.assert(
      fc.asyncProperty(cases(), async (given) => {
        const facts = await gather(worldOf(given), { row: rowOf(given.kind), object: given.object }, signal)
        const plan = planObject(facts)
        planned.set(plan.record.do, (planned.get(plan.record.do) ?? 0) + 1)
        assertWithin(given, facts, plan)
      }),
      { numRuns: runs },
    )
    // A property that never reaches a case proves nothing about it.
    const fewest = Math.min(...['create', 'update', 'delete', 'release'].map((step) => planned.get(step) ?? 0))
    expect({ fewest, planned: Object.fromEntries(planned) }).toSatisfy(({ fewest: count }: { fewest: number }) => count > runs / 1_000)
  },
  timeoutUnlessSoaking(300_000),
)
