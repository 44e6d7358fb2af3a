import { clone, create } from '@bufbuild/protobuf'
import { DomainError, type PreconditionViolation } from '../../base/errors.ts'
import { resources, type ResourceRow } from '../../base/schema/schema.ts'
import { rootOf, rootParent, type Uid } from '../../base/uid.ts'
import { GroupSchema, OrgKind, OrgStatus, type Group } from '../../gen/taproot/iam/v2/groups_pb.ts'
import { RoleBindingSchema } from '../../gen/taproot/iam/v2/role_bindings_pb.ts'
import { nameOf, type KindIndex, type Resource, type CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { belowPrefix, founderKey, limitKey, ownersKey, quotaKey, recordKey, cascadeKey } from '../../store/keys.ts'
import type { Guard, Write } from '../../store/store.ts'
import type { ChangeSet } from '../../engine/change-set.ts'
import { mergeExtras, ownerRoleUid, ownersChanged } from '../../engine/organisation-owners.ts'
import { defineKind, type MutationDraft, type Extra, type Planning, type Records } from '../../engine/kind.ts'
import { limitNames } from '../../engine/quota/limits.ts'
import { quotaExceeded } from '../../engine/quota/quotas.ts'
import { planChild } from '../../engine/write.ts'
import { planDeleted, planNameTaken, planRenamed } from './held-names.ts'
import { roleBindingKind } from './role-bindings.ts'
import { messageOf } from '../../cache/records/record-types.ts'

type GroupRecord = Group & Resource

const index: KindIndex = {
  kind: 'Group',
  desc: GroupSchema,
  name: 'name',
  seenAtUid: true,
  foundByPath: true,
  filters: { segment: { uid: (uid) => uid.slice(uid.lastIndexOf('/') + 1) } },
  removedWith: [],
}

/** Returns the verified organisation with this name (docs/spec/iam.md#verified-groups); undefined if there is none. */
export function verifiedRoot(tables: RecordTables, name: string): CachedRecord | undefined {
  const record = tables.table('Group').child(rootParent, name)
  return record !== undefined && messageOf(record, 'Group').verified ? record : undefined
}

/**
 * Kinds whose records prevent the deletion of their group: all kinds in groups, except the group's own role bindings
 * (docs/spec/conventions.md#deletion-order).
 */
const blockingKinds: readonly ResourceRow[] = [...resources.values()].filter(
  (row) => row.parents.includes('Group') && row.kind !== 'RoleBinding' && !row.catalogue && !row.embedded,
)

function childCount(tables: RecordTables, row: ResourceRow, uid: Uid): number {
  if (!tables.hasKind(row.kind)) return 0
  if (row.singleton) return tables.get(row.kind, uid) === undefined ? 0 : 1
  return tables.table(row.kind).matching('parent', uid).size
}

/** Returns the records that prevent the deletion of the group `uid`, by kind. */
export function* blockersOfGroup(tables: RecordTables, uid: Uid): Generator<CachedRecord> {
  for (const { kind, singleton } of blockingKinds) {
    if (!tables.hasKind(kind)) continue
    const one = singleton ? tables.get(kind, uid) : undefined
    if (one !== undefined) yield one
    if (!singleton) yield* tables.table(kind).matching('parent', uid)
  }
}

function words(row: ResourceRow): string {
  return row.plural.replaceAll('_', ' ')
}

/** Throws code 9 if the group has children. Returns guards that fail if it gets any before the deletion. */
function assertEmpty(tables: RecordTables, uid: Uid): Guard[] {
  const held = blockingKinds.map((row) => ({ words: words(row), count: childCount(tables, row, uid) })).filter(({ count }) => count > 0)
  if (held.length > 0) {
    const precondition = held.map((child): PreconditionViolation => ({
      type: 'RESOURCE_NOT_EMPTY',
      subject: uid,
      description: `cannot delete group with child ${child.words} (${child.count})`,
    }))
    const kinds = held.map((child) => child.words).join(', ')
    throw new DomainError(9, `Precondition failed: cannot delete group with child ${kinds}`, { details: { precondition } })
  }
  return blockingKinds.map((row) => (row.singleton ? { kind: 'absent', key: recordKey(row.kind, uid) } : { kind: 'empty', prefix: belowPrefix(row.kind, uid) }))
}

function removal(planning: Planning, record: CachedRecord): Extra {
  const guards = assertEmpty(planning.tables, record.uid)
  const writes: Write[] = [{ kind: 'put', key: cascadeKey(record.uid), value: Buffer.from(index.kind) }]
  if (record.parent === rootParent) {
    writes.push({ kind: 'delete', key: ownersKey(record.uid) })
    const quotaKeys = [quotaKey(record.uid), ...limitNames.map((limit) => limitKey(record.uid, limit))]
    for (const key of quotaKeys) if (planning.tables.entry(key) !== undefined) writes.push({ kind: 'delete', key })
    const released = planDeleted(planning, { uid: record.uid, name: nameOf(index, record.message), createMs: record.createMs })
    writes.push(...(released.writes ?? []))
  }
  return { guards, writes }
}

/**
 * Checks `verified` and `kind`, which only operators can set (docs/spec/iam.md#verified-groups). Other callers are refused before the
 * values are checked. A subgroup has the kind of its root group, and an update may repeat it.
 */
function settleStanding(planning: Planning, draft: MutationDraft<GroupRecord>, current: Group): void {
  const { record } = draft
  const isRoot = draft.parent === rootParent
  const root = isRoot ? undefined : planning.tables.get('Group', rootOf(draft.uid))?.message
  if (root !== undefined && record.kind === root.kind) record.kind = OrgKind.UNSPECIFIED
  if (!isRoot && record.kind !== OrgKind.UNSPECIFIED) throw DomainError.invalid('kind', 'must be the kind of its root group')
  if (!planning.permissions.operator && (record.verified !== current.verified || record.kind !== current.kind)) throw DomainError.denied([], record.uid)
  if (!isRoot && record.verified) throw DomainError.invalid('verified', 'only a root group can be verified')
  if (record.verified && record.kind === OrgKind.UNSPECIFIED) throw DomainError.invalid('kind', 'is required for a verified group')
}

/** Returns the group with the kind and status of its root group (docs/spec/iam.md#verified-groups). */
function render(records: Records, record: GroupRecord): GroupRecord {
  if (!record.uid.includes('/')) return record
  const root = records.get('Group', rootOf(record.uid as Uid))?.message
  const shown = clone(GroupSchema, record)
  shown.kind = root?.kind ?? OrgKind.UNSPECIFIED
  shown.status = root?.status ?? OrgStatus.READY
  return shown
}

function createMsOf({ tables, nowMs }: Planning, uid: Uid): number {
  return tables.get(index.kind, uid)?.createMs ?? nowMs
}

/** The kind Group, which forms the tree of all resources. A root group is an organisation. */
export const groupKind = defineKind<GroupRecord>({
  index,
  desc: GroupSchema,
  uniqueName: true,
  create(planning, draft) {
    settleStanding(planning, draft, create(GroupSchema))
    const isRoot = draft.parent === rootParent
    draft.record.status = isRoot ? OrgStatus.READY : OrgStatus.UNSPECIFIED
    const { operators, selfService } = planning.services.settings.limits
    draft.record.resourceLimits = isRoot ? { ...(planning.permissions.operator ? operators : selfService) } : {}
    return isRoot ? planNameTaken(planning, { uid: draft.uid, name: draft.record.name }) : undefined
  },
  update(planning, draft, current) {
    settleStanding(planning, draft, current)
    if (current.verified && draft.record.name !== current.name) {
      throw DomainError.precondition([{ type: 'VERIFIED_NAME', subject: draft.uid, description: 'the name of a verified group cannot be changed' }])
    }
    if (draft.parent !== rootParent || draft.record.name === current.name) return undefined
    const uid = draft.uid
    return mergeExtras(
      planNameTaken(planning, { uid, name: draft.record.name }),
      planRenamed(planning, { uid, name: current.name, createMs: createMsOf(planning, uid) }, draft.record.name),
    )
  },
  remove: removal,
  render,
})

/**
 * Counts a root group that the caller creates. Throws code 8 `QUOTA_EXCEEDED` if the caller has created the maximum number, because
 * several organisations would avoid the limits of one. Operators are exempt.
 */
export function planFounded({ tables, caller, permissions, services }: Planning, changes: ChangeSet, root: Uid): void {
  if (permissions.operator) return
  const key = founderKey(caller.identity)
  const entry = tables.entry(key)
  // Only this function writes these entries.
  const founded = entry === undefined ? [] : (JSON.parse(Buffer.from(entry.value).toString()) as string[])
  const present = founded.filter((uid) => tables.get(index.kind, uid) !== undefined)
  const max = services.settings.organizationsPerPerson
  if (present.length >= max) throw quotaExceeded(caller.identity, { limit: 'organizationsPerPerson', max, use: present.length, amount: 1 })
  changes.guard(entry === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: entry.revision })
  changes.write({ kind: 'put', key, value: Buffer.from(JSON.stringify([...present, root])) })
}

/** Makes the caller the owner of the root group that the same transaction creates (docs/spec/iam.md#root-groups). */
export function planFirstOwner(planning: Planning, changes: ChangeSet, root: Uid): void {
  const draft = create(RoleBindingSchema, { identityUid: planning.caller.identity, roleUid: ownerRoleUid })
  planChild(roleBindingKind, planning, { changes, parent: root, record: draft })
  changes.add(ownersChanged(planning, root))
}
