import { assertCanGrant } from '../../authz/grant-check.ts'
import { clone, create } from '@bufbuild/protobuf'
import { decide } from '../../authz/effective-permissions.ts'
import { roleCapabilities } from '../../authz/grants-index.ts'
import { emptySet } from '../../base/capability.ts'
import { DomainError, type FieldViolation } from '../../base/errors.ts'
import { isUid, isWithin, parentOf, rootOf, rootParent, trustedUid, type Uid } from '../../base/uid.ts'
import {
  BatchCreateRoleBindingsResponseSchema,
  RoleBindingGroupSchema,
  RoleBindingIdentitySchema,
  RoleBindingRoleSchema,
  RoleBindingSchema,
  type BatchCreateRoleBindingsRequest,
  type RoleBinding,
  type RoleBindingIdentity,
} from '../../gen/taproot/iam/v2/role_bindings_pb.ts'
import type { KindIndex, Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { nameKey, recordKey } from '../../store/keys.ts'
import { ChangeSet } from '../../engine/change-set.ts'
import { commitPrepared, type MutationPlan } from '../../engine/commit.ts'
import { alreadyExists, fromStore } from '../../engine/errors.ts'
import { bindingOf, isBuiltInRole, makesOwner, mergeExtras, ownersChanged, ownersLeave } from '../../engine/organisation-owners.ts'
import { onceByKey, type Idempotent } from '../../engine/idempotency.ts'
import { defineKind, type MutationDraft, type Extra, type Planning, type Records } from '../../engine/kind.ts'
import { invite, isMember, isPerson, notYetBound, planBound, planUnbound } from '../../engine/membership.ts'
import { rendered } from '../../engine/shown.ts'
import type { Handler, Services } from '../../engine/services.ts'
import { emit, planChild, planCreate, rememberKey } from '../../engine/write.ts'
import { messageOf } from '../../cache/records/record-types.ts'

type BindingRecord = RoleBinding & Resource

const index: KindIndex = {
  kind: 'RoleBinding',
  desc: RoleBindingSchema,
  filters: {
    identity: { field: 'identity_uid', of: 'Identity' },
    role: { field: 'role_uid', of: 'Role' },
    group: { parent: true },
  },
  removedWith: [
    { kind: 'Identity', filter: 'identity' },
    { kind: 'Group', filter: 'parent' },
  ],
}

/**
 * Returns true if the identity can have a role on `group`: it is a person, or belongs to the group or one above it
 * (docs/spec/iam.md#role-bindings).
 */
function mayBeBound(tables: RecordTables, identity: string, group: string): boolean {
  if (!isUid(identity)) return false
  const home = parentOf(identity)
  // The uid may be that of another tenant's root group. The result does not reveal this; a role binding to it grants nothing.
  if (home === rootParent) return !isBuiltInRole(identity) && !isWithin(group, identity)
  return isWithin(group, home) && tables.get('Identity', identity) !== undefined
}

/** Returns the role if it can be bound on `group`: a built-in role, or a custom role of the group or one above it. */
export function bindableRole(tables: RecordTables, role: string, group: string): CachedRecord | undefined {
  const record = tables.get('Role', role)
  if (record === undefined) return undefined
  return isBuiltInRole(role) || isWithin(group, record.parent) ? record : undefined
}

/** Error for a role that is missing, not visible or not usable here. */
export const noSuchRole = 'is not a role that can be bound here: use a built-in role, or one of this group or a group above it'

/** Error for an identity that is missing, not visible or not usable here. */
export const noSuchIdentity = 'is not an identity that can be bound here: use a person, or an identity of this group or a group above it'

/** Returns true if the caller has any access to the record. Otherwise the record is treated as missing. */
function isSeen({ permissions }: Pick<Planning, 'permissions'>, uid: string): boolean {
  return decide(permissions, uid, emptySet).kind !== 'hidden'
}

/** Returns the role if it can be bound on `group`, and is built-in or visible to the caller. */
export function bindableBy(planning: Pick<Planning, 'tables' | 'permissions'>, role: string, group: string): CachedRecord | undefined {
  return isBuiltInRole(role) || isSeen(planning, role) ? bindableRole(planning.tables, role, group) : undefined
}

/**
 * Returns true if the caller can refer to the identity. It can refer to itself, to visible identities, and to any person, even before
 * registration.
 */
function mayBeNamed(planning: Planning, identity: string): boolean {
  return !identity.includes('/') || identity === planning.caller.identity || isSeen(planning, identity)
}

/**
 * Throws code 3 for invalid references of a role binding. Records that are missing, invisible, of another tenant or unusable get the same
 * error (docs/spec/iam.md#references-in-bodies). References that the stored role binding already has are allowed.
 */
function referenceViolations(planning: Planning, { record, parent: group }: MutationDraft<BindingRecord>, current?: RoleBinding): FieldViolation[] {
  const { tables } = planning
  const { identityUid: identity, roleUid: role } = record
  const found: FieldViolation[] = []
  const isNamed = identity === current?.identityUid || mayBeNamed(planning, identity)
  if (identity === '') found.push({ field: 'identity_uid', description: 'is required' })
  else if (!isNamed || !mayBeBound(tables, identity, group)) found.push({ field: 'identity_uid', description: noSuchIdentity })
  const bindable = role === current?.roleUid ? bindableRole(tables, role, group) : bindableBy(planning, role, group)
  if (role === '') found.push({ field: 'role_uid', description: 'is required' })
  else if (bindable === undefined) found.push({ field: 'role_uid', description: noSuchRole })
  return found
}

/** Checks a role binding before it is stored, including that the caller may grant its role. */
function check(planning: Planning, draft: MutationDraft<BindingRecord>, current?: RoleBinding): void {
  const { record, parent } = draft
  const violations = referenceViolations(planning, draft, current)
  if (violations.length > 0) throw DomainError.invalidFields(violations)
  const role = bindableRole(planning.tables, record.roleUid, parent)
  if (role !== undefined) assertCanGrant(planning.permissions, parent, roleCapabilities(role))
}

/**
 * Returns the current state of the bound identity. If no person has registered, it has only the uid. If the caller cannot see the identity, its name is the
 * subject of its tokens, which the caller knows.
 */
export function renderIdentity(records: Pick<Records, 'get'>, uid: string, isSeen: boolean): RoleBindingIdentity {
  const record = records.get('Identity', uid)
  if (record === undefined) return create(RoleBindingIdentitySchema, { uid })
  const { name, description, email, relationship } = messageOf(record, 'Identity')
  const match = relationship.case === 'claimMatch' ? relationship.value : undefined
  const issuer = match?.iss.case === 'issuer' ? match.iss.value : ''
  const subject = match?.sub.case === 'subject' ? match.sub.value : ''
  return create(RoleBindingIdentitySchema, { uid, issuer, subject, ...(isSeen ? { name, description, email } : { name: subject }) })
}

/** Returns the role binding with its identity, group and role, and without the input fields (docs/spec/iam.md#role-binding-fields). */
function render(records: Records, record: BindingRecord): BindingRecord {
  const shown = clone(RoleBindingSchema, record)
  const groupUid = parentOf(record.uid as Uid)
  const group = records.get('Group', groupUid)?.message
  const role = records.get('Role', record.roleUid)?.message
  const { identityUid: identity } = record
  const isSeen = !isPerson(identity) || records.ask(({ tables }) => isMember(tables, identity, rootOf(record.uid as Uid)))
  shown.identity = renderIdentity(records, identity, isSeen)
  shown.group = create(RoleBindingGroupSchema, { uid: groupUid, name: group?.name ?? '', description: group?.description ?? '' })
  shown.role = create(RoleBindingRoleSchema, { uid: record.roleUid, name: role?.name ?? '', description: role?.description ?? '' })
  shown.identityUid = ''
  shown.roleUid = ''
  return shown
}

/** Plans how a role binding change affects the owners of a root group. */
function ownersAfter(planning: Planning, { uid, parent, record }: MutationDraft<BindingRecord>, current: RoleBinding): Extra | undefined {
  const group = parent as Uid // a cast: role bindings are in groups
  const staysOwner = makesOwner(group, record.roleUid)
  if (!makesOwner(group, current.roleUid)) return staysOwner ? ownersChanged(planning, group) : undefined
  return staysOwner ? ownersChanged(planning, group) : ownersLeave(planning, group, (record) => record.uid === uid)
}

/** Plans how a role binding change affects whether a person is a member of the organisation, or pending there. */
function membersAfter(planning: Planning, { uid, parent, record }: MutationDraft<BindingRecord>, current: RoleBinding): Extra | undefined {
  const { identityUid: identity } = record
  if (identity === current.identityUid) return undefined
  return mergeExtras(planBound(planning, { identity, group: parent as Uid }), planUnbound(planning, { identity: current.identityUid, uid }))
}

/** Returns the unique key of a role binding. */
function bindingClaim(group: string, identity: string, role: string): string {
  return nameKey(index.kind, group, `${identity} ${role}`)
}

/** The kind RoleBinding: an identity has a role on a group and everything below it (docs/spec/iam.md#role-bindings). */
export const roleBindingKind = defineKind<BindingRecord>({
  index,
  desc: RoleBindingSchema,
  uniqueName: false,
  claims: (uid, record) => [
    {
      key: bindingClaim(parentOf(uid), record.identityUid, record.roleUid),
      taken: () => alreadyExists(index.kind, 'this identity already has this role on this group'),
    },
  ],
  references: (record) => [
    { relation: 'identity', kind: 'Identity', uid: record.identityUid, presence: record.identityUid.includes('/') ? 'required' : 'derived' },
    { relation: 'role', kind: 'Role', uid: record.roleUid, presence: isBuiltInRole(record.roleUid) ? 'built_in' : 'required' },
  ],
  create(planning, draft) {
    check(planning, draft)
    const group = draft.parent as Uid // a cast: role bindings are in groups
    const bound = planBound(planning, { identity: draft.record.identityUid, group })
    return makesOwner(group, draft.record.roleUid) ? mergeExtras(bound, ownersChanged(planning, group)) : bound
  },
  update(planning, draft, current) {
    check(planning, draft, current)
    return mergeExtras(ownersAfter(planning, draft, current), membersAfter(planning, draft, current))
  },
  remove(planning, record) {
    const { identityUid: identity, roleUid } = bindingOf(record)
    const unbound = planUnbound(planning, { identity, uid: record.uid })
    return makesOwner(record.parent, roleUid)
      ? mergeExtras(
          unbound,
          ownersLeave(planning, record.parent as Uid, (other) => other.uid === record.uid),
        )
      : unbound
  },
  render,
})

/**
 * Plans a role binding that an earlier decision granted: by an invite, or as default role of a provider. Keeps an existing role binding.
 * Returns false if the role cannot be bound there any more.
 */
export function planBinding(planning: Planning, changes: ChangeSet, { group, identity, role }: { group: Uid; identity: Uid; role: string }): boolean {
  const { tables } = planning
  if (bindableRole(tables, role, group) === undefined || tables.get('Group', group) === undefined) return false
  const claim = bindingClaim(group, identity, role)
  if (changes.claims.some(({ key }) => key === claim)) return true
  changes.guard({ kind: 'exists', key: recordKey('Group', group) })
  const bindings = tables.table(index.kind)
  const held = [...bindings.matching('identity', identity, group)].find((record) => record.parent === group && bindings.valueOf(record, 'role') === role)
  if (held !== undefined) {
    changes.guard({ kind: 'unchanged', key: recordKey(index.kind, held.uid), revision: held.revision })
    return true
  }
  const record = create(RoleBindingSchema, { identityUid: identity, roleUid: role })
  planChild(roleBindingKind, planning, { changes, parent: group, record })
  if (makesOwner(group, role)) changes.add(ownersChanged(planning, group))
  return true
}

/** Returns the items of a batch as single creations. The batch may set one role for all of them (docs/spec/iam.md#role-binding-batches). */
function batchItems(request: BatchCreateRoleBindingsRequest): RoleBinding[] {
  const violations: FieldViolation[] = []
  const items = request.requests.map((item, at) => {
    const binding = item.roleBinding ?? create(RoleBindingSchema)
    if (item.parent !== '' && item.parent !== request.parent)
      violations.push({ field: `requests[${at}].parent`, description: 'must be empty or equal to parent' })
    if (request.roleUid !== '' && binding.roleUid !== '' && binding.roleUid !== request.roleUid) {
      violations.push({ field: `requests[${at}].role_binding.role_uid`, description: 'must be empty or equal to `role_uid`' })
    }
    return create(RoleBindingSchema, { identityUid: binding.identityUid, roleUid: binding.roleUid === '' ? request.roleUid : binding.roleUid })
  })
  if (violations.length > 0) throw DomainError.invalidFields(violations)
  return items
}

/** Runs `work` for one item. Errors name the position of the item. */
function onItem<T>(at: number, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof DomainError) || error.details.badRequest === undefined) throw error
    throw DomainError.invalidFields(error.details.badRequest.map(({ field, description }) => ({ field: `requests[${at}].role_binding.${field}`, description })))
  }
}

/** Marks persons whose first role binding is in the batch as pending, after `rehearse` found that the batch is valid. */
async function inviteFor(
  services: Services,
  batch: { persons: readonly Uid[]; root: Uid; rehearse: () => Promise<unknown> },
  signal: AbortSignal,
): Promise<void> {
  const { persons, root, rehearse } = batch
  if (notYetBound(services.cache.tables, persons, root).length === 0) return
  await rehearse()
  const first = notYetBound(services.cache.tables, persons, root)
  try {
    if (first.length > 0) await invite(services, { persons: first, root }, signal)
  } catch (error) {
    throw fromStore(error)
  }
}

/**
 * BatchCreateRoleBindings: creates all role bindings or none, in the order of the request, with one event
 * (docs/spec/iam.md#role-binding-batches).
 */
export const batchCreateRoleBindings: Handler = async (services, context, message) => {
  const request = message as BatchCreateRoleBindingsRequest
  const items = batchItems(request)
  const answer = (records: readonly Resource[]) => {
    const shown = records.map((record) => rendered(roleBindingKind, services, record) as RoleBinding)
    return create(BatchCreateRoleBindingsResponseSchema, { roleBindings: shown })
  }
  const plan = (planning: Planning, memory: Idempotent | undefined): MutationPlan<Resource[]> => {
    const changes = new ChangeSet()
    const seen = new Set<string>()
    const records = items.map((item, at) => {
      const pair = `${item.identityUid} ${item.roleUid}`
      if (seen.has(pair)) throw DomainError.invalid(`requests[${at}].role_binding`, 'repeats an earlier item')
      seen.add(pair)
      return onItem(at, () => planCreate(roleBindingKind, planning, { changes, parent: request.parent, draft: item }))
    })
    // The uids are random, and the unique key of each role binding is guarded. A guard for each record too would exceed the limit of a
    // transaction in the largest batch.
    for (const { uid } of records) changes.unguard(recordKey(index.kind, trustedUid(uid)))
    emit(planning, context, { changes, subject: request.parent, body: { desc: BatchCreateRoleBindingsResponseSchema, message: answer(records) } })
    rememberKey(memory, changes, { uids: records.map((record) => record.uid), nowMs: planning.nowMs })
    return { changes, result: records }
  }
  const call = { context, message, parent: request.parent }
  const persons = items.map(({ identityUid }) => identityUid).filter((uid) => isUid(uid) && isPerson(uid))
  const made = (memory: Idempotent | undefined): Promise<Resource[]> => {
    const dryRun = { prepare: () => undefined, plan: (planning: Planning) => plan(planning, memory) }
    const { caller, signal, ownership, also } = context
    const dry = { caller, signal, ownership, also, validateOnly: true, authorize: () => context.authorize() }
    const rehearse = () => commitPrepared(services, dry, dryRun)
    const batch = { persons: persons.map(trustedUid), root: rootOf(trustedUid(request.parent)), rehearse }
    // Runs only after the access check. A dry run writes nothing.
    const prepare = () => (context.validateOnly ? undefined : inviteFor(services, batch, signal))
    return commitPrepared(services, context, { prepare, plan: dryRun.plan })
  }
  const outcome = await onceByKey(services, call, made)
  if (outcome.kind === 'made') return { message: answer(outcome.made), subject: request.parent }
  const cachedRecords = outcome.uids.map((uid) => services.cache.tables.get(index.kind, uid)).filter((record) => record !== undefined)
  return { message: answer(cachedRecords.map((record) => record.message)), subject: request.parent }
}
