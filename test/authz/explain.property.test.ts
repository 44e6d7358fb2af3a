import { create, fromJson, type Message } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { accessThrough } from '../../src/authz/access.ts'
import { fromEnumNumbers, has, setOf } from '../../src/base/capability.ts'
import { DomainError } from '../../src/base/errors.ts'
import type { MethodRow } from '../../src/base/schema/method.ts'
import type { TokenRestrictions } from '../../src/auth/access-tokens/token-restrictions.ts'
import { builtInRoles } from '../../src/base/roles.ts'
import { methods, registry, resources } from '../../src/base/schema/schema.ts'
import { rootOf, trustedUid, type Uid } from '../../src/base/uid.ts'
import { ExplainRequestSchema, ExplainResponseSchema, BindingEffect, Obstacle, type ExplainResponse } from '../../src/gen/taproot/iam/v2/access_pb.ts'
import { Capability } from '../../src/gen/taproot/common/v2/capability_pb.ts'
import { RoleSchema } from '../../src/gen/taproot/iam/v2/roles_pb.ts'
import { authorizeCall } from '../../src/engine/authorize.ts'
import { callerOfToken, type Caller, type Context, type Services } from '../../src/engine/services.ts'
import { explain } from '../../src/iam/records/explain.ts'
import { soakFactor, timeoutUnlessSoaking } from '../soak/factor.ts'
import { movedTo, placeOf } from '../conformance/walk/cases/method-case.ts'
import { load, allRestrictions, palette, plainWorlds, type LoadedWorld, type PlainWorld } from './random-world.ts'

const runs = 10_000 * soakFactor

/** A caller or asker, and the restrictions of its token. */
interface Bearer {
  readonly identity: Uid
  readonly operator: boolean
  readonly restrictions: TokenRestrictions
}

/** One case: a world, a question, its asker, and the change before the question is repeated. */
interface Case {
  readonly world: PlainWorld
  readonly asker: Bearer
  readonly identity: Uid
  readonly capability: string
  readonly resource: Uid
  /** The restrictions of the token of the identity in question. */
  readonly restrictions: TokenRestrictions
  readonly change: { readonly what: 'role' | 'role gone' | 'binding gone' | 'identity gone'; readonly at: number }
}

const cases: fc.Arbitrary<Case> = plainWorlds.chain((world) => {
  const everybody = [...world.identities, ...world.strangers]
  const everything = [...world.groups, ...world.repos, ...world.identities, ...world.roles.map(({ uid }) => uid), ...world.bindings.map(({ uid }) => uid)]
  const unnarrowed = fc.constant<TokenRestrictions>({})
  return fc.record({
    world: fc.constant(world),
    asker: fc.record({
      identity: fc.constantFrom(...world.identities),
      operator: fc.integer({ min: 0, max: 4 }).map((roll) => roll === 0),
      restrictions: fc.oneof({ arbitrary: unnarrowed, weight: 3 }, { arbitrary: allRestrictions(world), weight: 2 }),
    }),
    identity: fc.constantFrom(...everybody),
    capability: fc.constantFrom(...palette),
    resource: fc.oneof({ arbitrary: fc.constantFrom(...everything), weight: 9 }, { arbitrary: fc.constant(trustedUid('e'.repeat(40))), weight: 1 }),
    restrictions: allRestrictions(world),
    change: fc.record({ what: fc.constantFrom('role', 'role gone', 'binding gone', 'identity gone'), at: fc.nat({ max: 20 }) }),
  })
})

/** The outcome of a call, as far as rights decide it. */
type Outcome = 'allowed' | 'denied' | 'suspended' | 'hidden' | 'unknown'

function outcomeOf(error: unknown): Outcome {
  if (!(error instanceof DomainError)) throw error
  if (error.code === 16) return 'unknown'
  if (error.code === 5) return 'hidden'
  if (error.code !== 7) throw error
  return error.reason === 'ORGANIZATION_SUSPENDED' ? 'suspended' : 'denied'
}

const outcomes: Readonly<Record<Obstacle, Outcome>> = {
  [Obstacle.UNSPECIFIED]: 'allowed',
  [Obstacle.NO_REACH]: 'hidden',
  [Obstacle.MISSING_CAPABILITY]: 'denied',
  [Obstacle.ORGANIZATION_SUSPENDED]: 'suspended',
  [Obstacle.NOT_REGISTERED]: 'unknown',
}

/** Returns the kind of record at which a method is authorised; undefined for methods that are not authorised at a record. */
function kindAt(method: MethodRow): string | undefined {
  if (method.scope !== 'scoped' && method.verb !== 'get') return undefined
  const last = placeOf(method)?.at(-1)
  if (last === undefined || last === 'resource') return undefined
  if (last === 'group') return 'Group'
  if (last === 'repo_id') return 'Repo'
  const isParent = last === 'parent' || (last === 'parent_id' && method.rpc === 'Create')
  return isParent ? resources.get(method.kind ?? '')?.parents.find((parent) => parent !== '/') : method.kind
}

const placed = methods.flatMap((method) => {
  const kind = kindAt(method)
  // A method for operators needs more than its capabilities.
  return kind === undefined || method.capabilities.length === 0 || method.operators ? [] : [{ method, kind }]
})

function messageAt(method: MethodRow, uid: string): Message {
  return fromJson(method.input, movedTo(method, {}, uid), { registry })
}

/** Returns the services that decide about rights. */
function servicesOf({ tables, grants }: LoadedWorld): Services {
  return { cache: { tables }, grants, clock: { now: () => 0 } } as unknown as Services
}

/** Returns the caller that the pipeline creates from a verified token. */
function callerFor(loaded: LoadedWorld, { identity, operator, restrictions }: Bearer): Caller {
  return callerOfToken(servicesOf(loaded), { identityUid: identity, operator, restrictions, act: { issuer: '', subject: '', audience: '' }, issuedAtMs: 10 })
}

/** Returns the outcome of a call before its handler runs. */
function callOutcome(loaded: LoadedWorld, bearer: Bearer, call: { method: MethodRow; message: Message }): Outcome {
  try {
    authorizeCall(loaded.tables, callerFor(loaded, bearer).permissions(), call)
    return 'allowed'
  } catch (error) {
    return outcomeOf(error)
  }
}

function explainMethod(): MethodRow {
  const method = methods.find(({ service, rpc }) => service === 'taproot.iam.v2.AccessService' && rpc === 'Explain')
  if (method === undefined) throw new Error('no method Explain')
  return method
}

const ofExplain = explainMethod()

/** Asks like the pipeline: creates the caller, authorises it, and runs the handler. */
async function ask(loaded: LoadedWorld, asker: Bearer, question: { identity: string; capability: string; resource: string }): Promise<ExplainResponse> {
  const message = create(ExplainRequestSchema, question)
  const caller = callerFor(loaded, asker)
  authorizeCall(loaded.tables, caller.permissions(), { method: ofExplain, message })
  const context = { method: ofExplain, caller } as unknown as Context
  const { message: answer } = await explain(servicesOf(loaded), context, message)
  expect(answer.$typeName).toBe(ExplainResponseSchema.typeName)
  return answer as ExplainResponse
}

function isIn(uid: string, group: string): boolean {
  return uid === group || uid.startsWith(`${group}/`)
}

/** Returns whether a bearer has a capability at a group, computed from the documented rules and not from the code. */
function holds(world: PlainWorld, { identity, operator, restrictions }: Bearer, asked: { capability: string; at: string }): boolean {
  const { scopes, capabilities, trustedGroups, roles = [] } = restrictions
  const { capability, at } = asked
  const grants = (role: string): boolean => {
    const builtIn = builtInRoles.find(({ uid }) => uid === role)
    const custom = world.roles.find(({ uid }) => uid === role)
    return has(builtIn?.capabilities ?? fromEnumNumbers(custom?.numbers ?? []), capability)
  }
  const home = identity.includes('/') ? identity.slice(0, identity.lastIndexOf('/')) : undefined
  const bound = world.bindings.filter((binding) => binding.identity === identity && (home === undefined || isIn(binding.group, home)))
  // A scope has what was granted there or above, and not what was granted below it (docs/spec/tokens.md#narrowing).
  const isInScope = (group: string): boolean => scopes === undefined || scopes.some((scope) => isIn(at, scope) && isIn(scope, group))
  // A provider grants only for its group and below: bindings above do not count through it. The author of a role mapping held the role there.
  const trusted = bound.filter(({ group }) => trustedGroups === undefined || trustedGroups.some((known) => isIn(group, known)))
  const given = [...trusted, ...roles].some(({ group, role }) => isIn(at, group) && isInScope(group) && grants(role))
  if (capabilities !== undefined && !has(capabilities, capability)) return false
  if (scopes !== undefined && !scopes.some((scope) => isIn(at, scope))) return false
  // A person known only through a provider is no operator.
  return (operator && trustedGroups === undefined) || given
}

/** Changes the plain world and the loaded world in the same way. */
function changed(world: PlainWorld, loaded: LoadedWorld, { what, at }: Case['change']): PlainWorld {
  const role = world.roles[at % Math.max(1, world.roles.length)]
  const binding = world.bindings[at % world.bindings.length]
  const identity = world.identities[at % world.identities.length]
  if (what === 'role' && role !== undefined) {
    const numbers = role.numbers.slice(1)
    loaded.commit('Role', role.uid, create(RoleSchema, { name: 'changed', capabilities: [...numbers] }))
    return { ...world, roles: world.roles.map((one) => (one === role ? { ...one, numbers } : one)) }
  }
  if (what === 'role gone' && role !== undefined) {
    loaded.commit('Role', role.uid)
    return { ...world, roles: world.roles.filter((one) => one !== role) }
  }
  if (what === 'binding gone' && binding !== undefined) {
    loaded.commit('RoleBinding', binding.uid)
    return { ...world, bindings: world.bindings.filter((one) => one !== binding) }
  }
  if (what === 'identity gone' && identity !== undefined) {
    loaded.commit('Identity', identity)
    return { ...world, identities: world.identities.filter((one) => one !== identity) }
  }
  return world
}

/** Counts how often each outcome occurred: a property that never tries an outcome proves nothing about it. */
const seen = new Map<string, number>()

function count(what: string): void {
  seen.set(what, (seen.get(what) ?? 0) + 1)
}

/** Checks the answer against every method that needs just this capability, and against the documented rules. */
function assertAgrees(world: PlainWorld, loaded: LoadedWorld, { given, answer }: { given: Case; answer: ExplainResponse }): void {
  const { identity, capability, resource, restrictions } = given
  const whole: Bearer = { identity, operator: false, restrictions: {} }
  const outcome = outcomes[answer.obstacle]
  count(`answer: ${outcome}`)
  expect(answer.allowed).toBe(outcome === 'allowed')
  const calls = placed.filter(
    ({ method, kind }) => method.capabilities.length === 1 && method.capabilities[0] === capability && loaded.tables.get(kind, resource),
  )
  for (const { method } of calls) {
    count('method compared')
    const call = { method, message: messageAt(method, resource) }
    expect(callOutcome(loaded, whole, call), method.rpc).toBe(outcome)
    // A token without session roles never has more rights than the identity. If the identity lacks a right, the token is refused too.
    const { roles: _roles, ...restricted } = restrictions
    if (callOutcome(loaded, { ...whole, restrictions: restricted }, call) === 'allowed') expect(answer.allowed).toBe(true)
  }
  const isAllowed = holds(world, whole, { capability, at: resource }) && world.identities.includes(identity) && !world.suspended.has(rootOf(resource))
  expect(answer.allowed).toBe(isAllowed)
}

/** Checks that the answer shows all that the asker may list, nothing else, and the reasons for the verdict. */
function assertExplains(world: PlainWorld, loaded: LoadedWorld, { given, answer }: { given: Case; answer: ExplainResponse }): void {
  const { asker, identity, capability, resource } = given
  const mayList = (group: string): boolean => holds(world, asker, { capability: 'role_bindings.list', at: group })
  const above = world.bindings.filter((binding) => binding.identity === identity && isIn(resource, binding.group))
  expect(answer.bindings.map(({ uid }) => uid).toSorted()).toEqual(
    above
      .filter(({ group }) => mayList(group))
      .map(({ uid }) => uid)
      .toSorted(),
  )
  const places = resource.split('/').map((_, at, segments) => segments.slice(0, segments.length - at).join('/'))
  expect(answer.withheldGroups).toEqual(places.filter((group) => !mayList(group)))
  const granting = answer.bindings.map(({ effect }) => effect === BindingEffect.GRANTS)
  expect(granting).toEqual(granting.toSorted((one, other) => Number(other) - Number(one)))
  const isGranted = holds(world, { identity, operator: false, restrictions: {} }, { capability, at: resource })
  expect(granting.includes(true) || answer.inherited).toBe(isGranted)
  if (answer.inherited) count('inherited')
  if (answer.inherited) expect(answer.withheldGroups.length).toBeGreaterThan(0)
  for (const { uid, effect } of answer.bindings) {
    count(`effect: ${effect}`)
    const binding = above.find((one) => one.uid === uid)
    const alone = { ...world, bindings: binding === undefined ? [] : [binding] }
    expect(effect === BindingEffect.GRANTS).toBe(holds(alone, { identity, operator: false, restrictions: {} }, { capability, at: resource }))
  }
  const listed = accessThrough(loaded.tables, places.map(trustedUid), setOf([capability]))
  expect(listed.some((record) => loaded.tables.table('RoleBinding').valueOf(record, 'identity') === identity)).toBe(isGranted)
}

function textOf({ code, message, reason, details }: DomainError, uid: string): string {
  return JSON.stringify({ code, message, reason, details }).replaceAll(uid, '<uid>')
}

/** Checks refusals: for askers who may not list bindings there, and for identities that they may not know. */
async function assertRefusedRightly(world: PlainWorld, loaded: LoadedWorld, { given, error }: { given: Case; error: DomainError }): Promise<void> {
  const { asker, identity, resource, capability } = given
  const mayList = (at: string): boolean => holds(world, asker, { capability: 'role_bindings.list', at })
  const isThere = ['Group', 'Repo', 'Identity', 'Role', 'RoleBinding'].some((kind) => loaded.tables.get(kind, resource) !== undefined)
  if (error.code === 16)
    return expect(world.identities.includes(asker.identity) || (asker.operator && asker.restrictions.trustedGroups === undefined)).toBe(false)
  if (error.code === 7) return expect(mayList(resource) && !world.suspended.has(rootOf(resource))).toBe(false)
  expect(error.code).toBe(5)
  if (!mayList(resource) || !isThere) return expect(error.details.resource?.resourceName).toBe(resource)
  count('identity withheld')
  const reads = world.identities.includes(identity) && holds(world, asker, { capability: 'identity.list', at: identity })
  expect(reads || world.bindings.some((binding) => binding.identity === identity && mayList(binding.group))).toBe(false)
  const missing = `${identity.slice(0, -4)}ffff`
  const other = await ask(loaded, asker, { identity: missing, capability, resource }).then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  expect(other).toBeInstanceOf(DomainError)
  expect(textOf(other as DomainError, missing)).toBe(textOf(error, identity))
}

async function check(world: PlainWorld, loaded: LoadedWorld, given: Case): Promise<void> {
  const { asker, identity, capability, resource } = given
  let answer: ExplainResponse
  try {
    answer = await ask(loaded, asker, { identity, capability, resource })
  } catch (error) {
    if (!(error instanceof DomainError)) throw error
    count(`refused: ${error.code}`)
    return assertRefusedRightly(world, loaded, { given, error })
  }
  expect(holds(world, asker, { capability: 'role_bindings.list', at: resource })).toBe(true)
  assertAgrees(world, loaded, { given, answer })
  assertExplains(world, loaded, { given, answer })
}

describe('explain agrees with the API', () => {
  test(
    `explain agrees with the API in ${runs} random sets of records, questions and tokens, before and after a change`,
    { timeout: timeoutUnlessSoaking(300_000) },
    async () => {
      await fc.assert(
        fc.asyncProperty(cases, async (given) => {
          const loaded = load(given.world)
          await check(given.world, loaded, given)
          await check(changed(given.world, loaded, given.change), loaded, given)
        }),
        { numRuns: runs },
      )
      const reached = ['allowed', 'denied', 'hidden', 'suspended', 'unknown'].map((outcome) => `answer: ${outcome}`)
      const effects = Object.values(BindingEffect)
        .filter((effect) => effect !== BindingEffect.UNSPECIFIED)
        .map((effect) => `effect: ${effect}`)
      for (const what of [...reached, ...effects, 'inherited', 'identity withheld', 'method compared', 'refused: 5', 'refused: 7'])
        expect(seen.get(what) ?? 0, what).toBeGreaterThan(0)
    },
  )

  test('explain shows at most 100 of very many bindings, the granting one first', async () => {
    const group = trustedUid('1'.repeat(40))
    const child = (kind: number, at: number): Uid => trustedUid(`${group}/${kind}${at.toString(16).padStart(15, '0')}`)
    const identity = child(3, 0)
    const roles = Array.from({ length: 150 }, (_, at) => ({
      uid: child(2, at),
      numbers: at === 149 ? [Capability.CAP_REPO_LIST] : [Capability.CAP_IAM_ROLES_LIST],
    }))
    const bindings = roles.map(({ uid: role }, at) => ({ uid: child(9, at), group, identity, role }))
    const world = { groups: [group], suspended: new Set<Uid>(), roles, identities: [identity], strangers: [], repos: [], bindings }
    const operator: Bearer = { identity: trustedUid('2'.repeat(40)), operator: true, restrictions: {} }
    const answer = await ask(load(world), operator, { identity, capability: 'repo.list', resource: group })
    expect(answer).toMatchObject({ allowed: true, inherited: false })
    expect(answer.bindings).toHaveLength(100)
    expect(answer.bindings[0]).toMatchObject({ uid: child(9, 149), effect: BindingEffect.GRANTS })
  })

  test('explain is compared with API methods of every kind that it covers', () => {
    expect([...new Set(placed.map(({ kind }) => kind))]).toEqual(expect.arrayContaining(['Group', 'Identity', 'Role', 'RoleBinding', 'Repo']))
  })
})
