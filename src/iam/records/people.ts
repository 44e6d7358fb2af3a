import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { ProviderFacts } from '../../auth/oidc/trust-domain.ts'
import { actorClaims, type Actor } from '../../auth/tokens/principal.ts'
import { isSuspended } from '../../authz/access.ts'
import { DomainError } from '../../base/errors.ts'
import type { MethodRow } from '../../base/schema/method.ts'
import { methods } from '../../base/schema/schema.ts'
import { isWithin, rootOf, rootParent, trustedUid, type Uid } from '../../base/uid.ts'
import type { TokenRestrictions } from '../../auth/tokens/token-restrictions.ts'
import { SessionSchema, type DeleteRequest } from '../../gen/taproot/auth/v1/auth_pb.ts'
import { DeleteIdentityRequestSchema, IdentitySchema, type Identity } from '../../gen/taproot/iam/v2/identities_pb.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { recordKey, cascadeKey } from '../../store/keys.ts'
import { assertNotSuspended } from '../../engine/authorize.ts'
import { ChangeSet } from '../../engine/change-set.ts'
import { commitPrepared, type MutationPlan } from '../../engine/commit.ts'
import type { Planning } from '../../engine/kind.ts'
import { denied, notFound } from '../../engine/errors.ts'
import { isPending, planJoined } from '../../engine/membership.ts'
import { apiOwnership, callerOf, innerContext, type Context, type Handler, type Services } from '../../engine/services.ts'
import { deleteHandler, emit, planChild } from '../../engine/write.ts'
import { findInvite, inviteTerms, planRedeem } from './group-invites.ts'
import { identityKind } from './identities.ts'
import { endRefreshTokens } from '../signin/refresh-tokens.ts'
import { planBinding } from './role-bindings.ts'
import { defaultRoleOf, unchangedProvider } from '../signin/sign-in-providers.ts'

/** Somebody whose token was verified, and who is no identity of a group (docs/spec/identities.md#registration). */
export interface Person {
  /** Derived from issuer and subject. */
  readonly uid: Uid
  readonly act: Actor
  /** What the token calls the person. */
  readonly name: string | undefined
  /** The token's e-mail, where the platform has no reason to believe it. */
  readonly emailUnverified: string | undefined
  /** The groups that the person is known in; absent where that is everywhere. */
  readonly trustedGroups?: readonly Uid[]
}

/** What somebody registers with. */
export interface Registration {
  readonly person: Person
  /** The providers that the person signs in by, as the sign-in found them. */
  readonly via: readonly ProviderFacts[]
  /** The code of an invite; empty where there is none. */
  readonly code?: string
  /** The uid that the caller believes they have; empty where they did not say. */
  readonly identityId?: string
  readonly validateOnly: boolean
  readonly requestId: string
  readonly signal: AbortSignal
}

/** Who registered, and the group that they joined; empty where they joined none. */
export interface Registered {
  readonly identity: Uid
  readonly group: Uid | ''
}

const registerMethod = methodNamed('Register')

function methodNamed(rpc: string): MethodRow {
  const found = methods.find((method) => method.rpc === rpc && method.service === 'taproot.auth.v1.Auth')
  if (found === undefined) throw new TypeError(`no method Auth/${rpc}`)
  return found
}

/** Remembers that the person has signed in by the provider: the default role is given once, and stays away once somebody took it away. */
export const firstSignInPrefix = 'x/first-sign-in/'

function firstSignInKey(provider: Uid, person: Uid): string {
  return `${firstSignInPrefix}${provider}/${person}`
}

/** The uid of the provider in the key of a first sign-in. */
export function providerOfFirstSignIn(key: string): Uid {
  return trustedUid(key.slice(firstSignInPrefix.length, key.lastIndexOf('/')))
}

const maxNameLength = 255

/** A name that an identity may have (docs/spec/identities.md#records-of-people), as near to what the token says as can be. */
function nameOf({ name, act }: Person): string {
  const wished = name ?? act.email?.split('@')[0] ?? act.subject
  const cleaned = wished
    .normalize('NFKD')
    .toLowerCase()
    .replaceAll(/[^a-z0-9 ._-]+/g, '-')
    .replaceAll(/^[- ]+|[- ]+$/g, '')
  return cleaned.slice(0, maxNameLength) || 'person'
}

/** What a person's record says of their address. */
export type Addresses = Pick<Identity, 'email' | 'emailUnverified'>

/**
 * What it says once they have signed in (docs/spec/identities.md#records-of-people): what their token says. Only an issuer that the platform knows is believed what address somebody has: others see it
 * beside the name. A sign-in that counts in some groups alone changes nothing of an address that was believed.
 */
export function addressesAfter(
  { act, trustedGroups, emailUnverified }: Omit<Person, 'name'>,
  { email: believed, emailUnverified: before }: Addresses,
): Addresses {
  const said = act.email ?? emailUnverified
  if (said === undefined || (trustedGroups !== undefined && believed !== '')) return { email: believed, emailUnverified: before }
  return trustedGroups === undefined && act.email !== undefined ? { email: said, emailUnverified: '' } : { email: '', emailUnverified: said }
}

function recordOf(person: Person, nowMs: number): Identity {
  const { act } = person
  const match = { iss: { case: 'issuer', value: act.issuer }, sub: { case: 'subject', value: act.subject } } as const
  return create(IdentitySchema, {
    name: nameOf(person),
    ...addressesAfter(person, { email: '', emailUnverified: '' }),
    lastSeenTime: timestampFromMs(nowMs),
    relationship: { case: 'claimMatch', value: match },
  })
}

/** The person as the caller of their own registration: rights of their own they have none. */
function contextOf({ person, requestId, signal, validateOnly }: Registration): Context {
  return innerContext({
    method: registerMethod,
    caller: {
      identity: person.uid,
      operator: false,
      actor: actorClaims(person.act),
      restrictions: {},
      permissions: () => ({ operator: false, grants: [] }),
    },
    requestId,
    signal,
    validateOnly,
    ownership: apiOwnership,
    authorize: () => undefined,
  })
}

/** Throws code 7 where nobody asked for this person: else anybody with a token of a known issuer could fill the store. A suspended organisation asks for nobody. */
function assertExpected({ tables, services, permissions }: Planning, { person, via, code = '' }: Registration): void {
  if (via.some(({ group }) => !isSuspended(tables, group)) || code !== '' || services.settings.selfServiceRootGroups) return
  // Somebody bound a role to them before they came (docs/spec/identities.md#registration, LookupIdentity).
  if (tables.table('RoleBinding').matching('identity', person.uid).size > 0) return
  for (const { group } of via) assertNotSuspended(tables, permissions, group)
  throw new DomainError(7, 'registration needs an invite, a role binding or an identity provider', { reason: 'NOT_INVITED' })
}

/** Makes the person's record where it is not there. */
function planPerson(planning: Planning, changes: ChangeSet, registration: Registration): void {
  const { person } = registration
  if (planning.tables.get('Identity', person.uid) !== undefined) return
  assertExpected(planning, registration)
  // The bindings of an earlier holder of the uid must be gone before it is used again.
  changes.guard({ kind: 'absent', key: cascadeKey(person.uid) })
  const record = recordOf(person, planning.nowMs)
  planChild(identityKind, planning, { changes, parent: rootParent, record, uid: person.uid })
}

/** The most default roles that one registration gives: with all else that it writes they fit into one transaction. */
const maxDefaultRoles = 8

/**
 * The providers whose default roles a registration gives: those of the invite's organisation, else of the only organisation whose providers the person signs in by.
 * Anybody may name another's issuer and client, so where there are several, or too many, none is given: who names a provider at the exchange has its role then.
 */
function givingProviders(tables: RecordTables, { via, code = '' }: Registration): readonly ProviderFacts[] {
  const invite = code === '' ? undefined : findInvite(tables, code)
  const giving = via.filter(({ group }) => !isSuspended(tables, group) && (invite === undefined || rootOf(group) === rootOf(invite.uid)))
  const organisations = new Set(giving.map(({ group }) => rootOf(group)))
  return organisations.size === 1 && giving.length <= maxDefaultRoles ? giving : []
}

/** Those of them that the person signs in by for the first time, in their order. */
async function firstSignIns({ store, cache }: Services, registration: Registration, signal: AbortSignal): Promise<readonly ProviderFacts[]> {
  const giving = givingProviders(cache.tables, registration)
  const before = await Promise.all(giving.map(({ uid }) => store.get(firstSignInKey(uid, registration.person.uid), signal)))
  return giving.filter((_provider, at) => before[at] === undefined)
}

/**
 * Gives the default roles of these providers. The provider must be as it is now until that is done: a role that was taken
 * out of it meanwhile is not given. A suspended organisation gives its roles at the first sign-in after it is open again. Returns the group that was joined first.
 */
function planFirstSignIns(planning: Planning, changes: ChangeSet, { person, first }: { person: Person; first: readonly ProviderFacts[] }): Uid | '' {
  let joined: Uid | '' = ''
  for (const provider of first) {
    if (isSuspended(planning.tables, provider.group)) continue
    const record = unchangedProvider(planning.tables, provider)
    if (record === undefined) throw new DomainError(7, 'the identity provider was changed during the sign-in: sign in again')
    const key = firstSignInKey(provider.uid, person.uid)
    changes.guard({ kind: 'unchanged', key: recordKey('IdentityProvider', record.uid), revision: record.revision })
    changes.guard({ kind: 'absent', key })
    changes.write({ kind: 'put', key, value: Buffer.from(String(planning.nowMs)) })
    const group = trustedUid(record.parent)
    if (planBinding(planning, changes, { group, identity: person.uid, role: defaultRoleOf(record) })) joined ||= group
  }
  return joined
}

/**
 * The address that counts for an invite of `group`: one that an issuer verified which the platform knows, or a provider of the group or of one above it. A foreign
 * provider may say of anybody that they have any address.
 */
function believedEmail({ act, trustedGroups }: Person, group: Uid): string | undefined {
  const isBelieved = trustedGroups === undefined || trustedGroups.some((known) => isWithin(group, known))
  return isBelieved ? act.email?.toLowerCase() : undefined
}

/**
 * Redeems the invite. Returns the group that was joined. Throws code 5 for a code that is not, or no longer, one; code 7 for an invite to another address, or of a suspended
 * organisation.
 */
function planInvite(planning: Planning, changes: ChangeSet, { person, code = '' }: Registration): Uid | '' {
  if (code === '') return ''
  const record = findInvite(planning.tables, code)
  if (record === undefined) throw notFound('GroupInvite', '')
  const { group, email } = inviteTerms(record)
  // Of a provider's people none is known outside its group: there is nothing that they could join elsewhere.
  if (person.trustedGroups?.some((known) => isWithin(group, known)) === false) throw notFound('GroupInvite', '')
  if (email !== undefined && email !== believedEmail(person, group)) {
    throw new DomainError(7, 'the invite is for another e-mail address: sign in with that address', { reason: 'INVITE_FOR_ANOTHER' })
  }
  assertNotSuspended(planning.tables, planning.permissions, group)
  planRedeem(planning, changes, { record, personUid: person.uid })
  return group
}

/**
 * The person joins the organisation of the invite, and the one whose provider they sign in by: there bindings that others made
 * count as theirs from then on. Returns the organisation that they joined by the sign-in alone.
 */
function planMembership(planning: Planning, changes: ChangeSet, { registration, given }: { registration: Registration; given: Uid | '' }): Uid | '' {
  const { tables } = planning
  const { uid: person } = registration.person
  if (given !== '') changes.add(planJoined(planning, person, rootOf(given)))
  const roots = givingProviders(tables, registration).map(({ group }) => rootOf(group))
  const joining = roots.find((root) => isPending(tables, person, root))
  if (given === '' && joining !== undefined) changes.add(planJoined(planning, person, joining))
  return given === '' ? (joining ?? '') : ''
}

/**
 * Makes a person known: their identity where it is new, the role of the invite whose code they bring, and at the first sign-in by a provider its default role, in one
 * transaction with the event. Does nothing for whom all that is done. Throws code 5 and 7 as planInvite, code 3 on `identity_id`, code 7 `NOT_INVITED` where nobody expects them.
 */
export async function registerPerson(services: Services, registration: Registration): Promise<Registered> {
  const { person, identityId = '' } = registration
  if (identityId !== '' && identityId !== person.uid) throw DomainError.invalid('identity_id', 'is not the uid of the person that this token belongs to')
  const context = contextOf(registration)
  return commitPrepared(services, context, {
    prepare: (signal) => firstSignIns(services, registration, signal),
    plan(planning, first: readonly ProviderFacts[]): MutationPlan<Registered> {
      const changes = new ChangeSet()
      planPerson(planning, changes, registration)
      const joined = planFirstSignIns(planning, changes, { person, first })
      const given = planInvite(planning, changes, registration) || joined
      const group = planMembership(planning, changes, { registration, given }) || given
      const result: Registered = { identity: person.uid, group }
      if (group !== '') emit(planning, context, { changes, subject: person.uid, group, body: { desc: SessionSchema, message: create(SessionSchema, result) } })
      return { changes, result }
    },
  })
}

/** Auth.Delete: a person removes their own identity, with its bindings and refresh tokens; every organisation that they own must keep another owner (docs/spec/identities.md#registration). */
export const deleteSelf: Handler = async (services, context, message) => {
  const { id } = message as DeleteRequest
  const caller = callerOf(context)
  // Others look like missing ones.
  if (id !== caller.identity || id.includes('/') || services.cache.tables.get('Identity', id) === undefined) throw notFound('Identity', id)
  if (isRestricted(caller.restrictions)) throw denied([], id)
  const answer = await deleteHandler(identityKind)(services, context, create(DeleteIdentityRequestSchema, { uid: id }))
  if (!context.validateOnly) await endRefreshTokens(services, caller.identity, context.signal)
  return { ...answer, message: create(context.method.output) }
}

/** True for a token that is not for all that its person may do. */
function isRestricted({ scopes, capabilities, trustedGroups }: TokenRestrictions): boolean {
  return scopes !== undefined || capabilities !== undefined || trustedGroups !== undefined
}
