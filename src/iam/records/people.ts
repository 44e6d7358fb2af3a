import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { ProviderFacts } from '../../auth/oidc/trust-domain.ts'
import { actorClaims, type Actor } from '../../auth/access-tokens/principal.ts'
import { isSuspended } from '../../authz/access.ts'
import { DomainError } from '../../base/errors.ts'
import type { MethodRow } from '../../base/schema/method.ts'
import { methods } from '../../base/schema/schema.ts'
import { isWithin, rootOf, rootParent, trustedUid, type Uid } from '../../base/uid.ts'
import type { TokenRestrictions } from '../../auth/access-tokens/token-restrictions.ts'
import { SessionSchema, type DeleteRequest } from '../../gen/taproot/auth/v1/auth_pb.ts'
import { DeleteIdentityRequestSchema, IdentitySchema, type Identity } from '../../gen/taproot/iam/v2/identities_pb.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { recordKey, cascadeKey } from '../../store/keys.ts'
import { assertNotSuspended } from '../../engine/authorize.ts'
import { ChangeSet } from '../../engine/change-set.ts'
import { commitPrepared, type MutationPlan } from '../../engine/commit.ts'
import type { Planning } from '../../engine/kind.ts'
import { notFound } from '../../engine/errors.ts'
import { isPending, planJoined } from '../../engine/membership.ts'
import { apiOwnership, callerOf, innerContext, type Context, type Handler, type Services } from '../../engine/services.ts'
import { deleteHandler, emit, planChild } from '../../engine/write.ts'
import { findInvite, inviteTerms, planRedeem } from './group-invites.ts'
import { identityKind } from './identities.ts'
import { endRefreshTokens } from '../signin/refresh-tokens.ts'
import { planBinding } from './role-bindings.ts'
import { defaultRoleOf, unchangedProvider } from '../signin/sign-in-providers.ts'

/** A person with a verified token, who is not an identity of a group (docs/spec/identities.md#registration). */
export interface Person {
  /** The uid, which is derived from issuer and subject. */
  readonly uid: Uid
  readonly act: Actor
  /** Name of the person in the token. */
  readonly name: string | undefined
  /** E-mail address in the token, if the platform does not trust the issuer to verify it. */
  readonly emailUnverified: string | undefined
  /** Groups in which the sign-in applies. Absent if it applies everywhere. */
  readonly trustedGroups?: readonly Uid[]
}

/** Input of a registration. */
export interface Registration {
  readonly person: Person
  /** Identity providers with the issuer of the sign-in. */
  readonly via: readonly ProviderFacts[]
  /** Code of an invite. Empty if there is none. */
  readonly code?: string
  /** The uid that the caller expects for the person; empty if the request has none. */
  readonly identityId?: string
  readonly validateOnly: boolean
  readonly requestId: string
  readonly signal: AbortSignal
}

/** Result of a registration: the person and the joined group, which is empty if none was joined. */
export interface Registered {
  readonly identity: Uid
  readonly group: Uid | ''
}

const registerMethod = methodNamed('Register')

function methodNamed(rpc: string): MethodRow {
  const found = methods.find((method) => method.rpc === rpc && method.service === 'taproot.auth.v1.Auth')
  if (found === undefined) throw new TypeError(`there is no method Auth/${rpc}`)
  return found
}

/**
 * Key prefix of first sign-ins of a person by a provider. A default role is granted only at the first one, so a removed role does not come
 * back.
 */
export const firstSignInPrefix = 'x/first-sign-in/'

function firstSignInKey(provider: Uid, person: Uid): string {
  return `${firstSignInPrefix}${provider}/${person}`
}

/** Returns the uid of the provider in the key of a first sign-in. */
export function providerOfFirstSignIn(key: string): Uid {
  return trustedUid(key.slice(firstSignInPrefix.length, key.lastIndexOf('/')))
}

const maxNameLength = 255

/** Returns a valid name of an identity, as similar as possible to the name in the token (docs/spec/identities.md#records-of-people). */
function nameOf({ name, act }: Person): string {
  const wished = name ?? act.email?.split('@')[0] ?? act.subject
  const cleaned = wished
    .normalize('NFKD')
    .toLowerCase()
    .replaceAll(/[^a-z0-9 ._-]+/g, '-')
    .replaceAll(/^[- ]+|[- ]+$/g, '')
  return cleaned.slice(0, maxNameLength) || 'person'
}

/** E-mail addresses in the record of a person. */
export type Addresses = Pick<Identity, 'email' | 'emailUnverified'>

/**
 * Returns the addresses after a sign-in, from the token (docs/spec/identities.md#records-of-people). A token of a trusted issuer sets
 * `email`; other tokens set `emailUnverified`. A sign-in that applies only in some groups does not change a trusted address.
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

/** Returns the context of a registration: the person is the caller, and has no permissions. */
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

/**
 * Throws code 7 if no invite, role binding or identity provider allows this person to register. Otherwise everyone with a token of a known
 * issuer could fill the store. Those of suspended organisations do not count.
 */
function assertExpected({ tables, services, permissions }: Planning, { person, via, code = '' }: Registration): void {
  if (via.some(({ group }) => !isSuspended(tables, group)) || code !== '' || services.settings.selfServiceRootGroups) return
  // A role binding may exist before the registration, by the uid from LookupIdentity (docs/spec/identities.md#registration).
  if (tables.table('RoleBinding').matching('identity', person.uid).size > 0) return
  for (const { group } of via) assertNotSuspended(tables, permissions, group)
  throw new DomainError(7, 'registration needs an invite, a role binding or an identity provider', { reason: 'NOT_INVITED' })
}

/** Creates the record of the person if it is missing. */
function planPerson(planning: Planning, changes: ChangeSet, registration: Registration): void {
  const { person } = registration
  if (planning.tables.get('Identity', person.uid) !== undefined) return
  assertExpected(planning, registration)
  // If a deleted person had this uid, the role bindings of that person must be deleted first.
  changes.guard({ kind: 'absent', key: cascadeKey(person.uid) })
  const record = recordOf(person, planning.nowMs)
  planChild(identityKind, planning, { changes, parent: rootParent, record, uid: person.uid })
}

/** Maximum number of default roles per registration, so that all writes fit into one transaction. */
const maxDefaultRoles = 8

/**
 * Returns the providers whose default roles a registration grants. With an invite, these are the providers of its organisation. Otherwise,
 * these are the providers of the only organisation that uses this sign-in. Everyone can configure a foreign issuer and client. So with
 * several organisations or too many providers, nothing is granted until the exchange names a provider.
 */
function givingProviders(tables: RecordTables, { via, code = '' }: Registration): readonly ProviderFacts[] {
  const invite = code === '' ? undefined : findInvite(tables, code)
  const giving = via.filter(({ group }) => !isSuspended(tables, group) && (invite === undefined || rootOf(group) === rootOf(invite.uid)))
  const organisations = new Set(giving.map(({ group }) => rootOf(group)))
  return organisations.size === 1 && giving.length <= maxDefaultRoles ? giving : []
}

/** Returns those of the providers with which the person signs in for the first time, in their order. */
async function firstSignIns({ store, cache }: Services, registration: Registration, signal: AbortSignal): Promise<readonly ProviderFacts[]> {
  const giving = givingProviders(cache.tables, registration)
  const before = await Promise.all(giving.map(({ uid }) => store.get(firstSignInKey(uid, registration.person.uid), signal)))
  return giving.filter((_provider, at) => before[at] === undefined)
}

/**
 * Plans the default roles of these providers. A guard on each provider fails the transaction if the default role is removed meanwhile. A
 * suspended organisation grants its roles at the first sign-in after the suspension. Returns the first joined group.
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
 * Returns the person's verified address for an invite of `group`. Counts only addresses from trusted issuers and from providers of the
 * group or groups above it, since other providers could claim any address.
 */
function believedEmail({ act, trustedGroups }: Person, group: Uid): string | undefined {
  const isBelieved = trustedGroups === undefined || trustedGroups.some((known) => isWithin(group, known))
  return isBelieved ? act.email?.toLowerCase() : undefined
}

/**
 * Plans that the person uses the invite. Returns the joined group. Throws code 5 for an unknown or used code. Throws code 7 for an invite
 * to another address, or of a suspended organisation.
 */
function planInvite(planning: Planning, changes: ChangeSet, { person, code = '' }: Registration): Uid | '' {
  if (code === '') return ''
  const record = findInvite(planning.tables, code)
  if (record === undefined) throw notFound('GroupInvite', '')
  const { group, email } = inviteTerms(record)
  // The sign-in applies only in the groups of the provider, so the person cannot join other groups.
  if (person.trustedGroups?.some((known) => isWithin(group, known)) === false) throw notFound('GroupInvite', '')
  if (email !== undefined && email !== believedEmail(person, group)) {
    throw new DomainError(7, 'the invite is for another e-mail address: sign in with that address', { reason: 'INVITE_FOR_ANOTHER' })
  }
  assertNotSuspended(planning.tables, planning.permissions, group)
  planRedeem(planning, changes, { record, personUid: person.uid })
  return group
}

/**
 * Plans that the person joins the organisations of the invite and of the sign-in provider. Role bindings that others created there then
 * apply. Returns the organisation that was joined by the sign-in alone.
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
 * Registers a person: creates the identity, and grants the role of the invite and the default role of a first sign-in. One transaction also writes the event.
 * Does nothing if all of this exists. Throws code 5 and 7 as planInvite, code 3 on `identity_id`, and code 7 `NOT_INVITED` if no one expects the person.
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

/**
 * Auth.Delete: deletes the caller's own person, with its role bindings and refresh tokens. Each organisation that it owns must have
 * another owner (docs/spec/identities.md#registration).
 */
export const deleteSelf: Handler = async (services, context, message) => {
  const { id } = message as DeleteRequest
  const caller = callerOf(context)
  // Any uid except the caller's own is treated as missing.
  const isThere = services.cache.tables.get('Identity', id) !== undefined
  if (id !== caller.identity || id.includes('/') || !isThere) throw notFound('Identity', id, { concealed: isThere })
  if (isRestricted(caller.restrictions)) throw DomainError.denied([], id)
  const answer = await deleteHandler(identityKind)(services, context, create(DeleteIdentityRequestSchema, { uid: id }))
  if (!context.validateOnly) await endRefreshTokens(services, caller.identity, context.signal)
  return { ...answer, message: create(context.method.output) }
}

/** Returns true if the token restricts its person to a part of the person's permissions. */
function isRestricted({ scopes, capabilities, trustedGroups }: TokenRestrictions): boolean {
  return scopes !== undefined || capabilities !== undefined || trustedGroups !== undefined
}
