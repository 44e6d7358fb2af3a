import { create } from '@bufbuild/protobuf'
import { DomainError, type FieldViolation } from '../../base/errors.ts'
import { isUid, parentOf, rootOf, type Uid } from '../../base/uid.ts'
import {
  BatchDeleteExternalGroupRoleMappingsResponseSchema,
  ExternalGroupRoleMappingSchema,
  type BatchDeleteExternalGroupRoleMappingsRequest,
  type ExternalGroupRoleMapping,
} from '../../gen/taproot/iam/v2/external_group_role_mappings_pb.ts'
import type { KindIndex, Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { nameKey, recordKey } from '../../store/keys.ts'
import { ChangeSet } from '../../engine/change-set.ts'
import { commit, type MutationPlan } from '../../engine/commit.ts'
import { alreadyExists } from '../../engine/errors.ts'
import { defineKind, type MutationDraft, type Planning } from '../../engine/kind.ts'
import { nextOwner } from '../../engine/ownership.ts'
import type { Context, Handler, Services } from '../../engine/services.ts'
import { rendered } from '../../engine/shown.ts'
import { emit } from '../../engine/write.ts'
import { assertCanConfer, mappingOf } from './granted-capabilities.ts'

type MappingRecord = ExternalGroupRoleMapping & Resource

const index: KindIndex = {
  kind: 'ExternalGroupRoleMapping',
  desc: ExternalGroupRoleMappingSchema,
  filters: { identity_provider_uid: { parent: true }, external_group_id: { field: 'external_group_id' } },
  removedWith: [{ kind: 'IdentityProvider', filter: 'parent' }],
}

/** Requires all three fields, although the contract marks them optional. The scope must be the organisation (docs/spec/identities.md#group-mappings). */
function assertComplete({ uid, record }: MutationDraft<MappingRecord>): void {
  const violations: FieldViolation[] = []
  if (record.externalGroupId === '') violations.push({ field: 'external_group_id', description: 'is required' })
  if (record.roleUid === '') violations.push({ field: 'role_uid', description: 'is required' })
  if (record.scope === '') violations.push({ field: 'scope', description: 'is required' })
  else if (record.scope !== rootOf(uid)) violations.push({ field: 'scope', description: 'must be the root group of the provider' })
  if (violations.length > 0) throw DomainError.invalidFields(violations)
}

/**
 * External group role mappings: a group at an identity provider confers a role during a session (docs/spec/identities.md#group-mappings). Mappings cannot be
 * changed.
 */
export const externalGroupRoleMappingKind = defineKind<MappingRecord>({
  index,
  desc: ExternalGroupRoleMappingSchema,
  uniqueName: false,
  claims: (uid, { roleUid, scope, externalGroupId }) => [
    {
      key: nameKey(index.kind, parentOf(uid), `${roleUid} ${scope} ${externalGroupId}`),
      taken: () => alreadyExists(index.kind, 'this group already has this role at this scope'),
    },
  ],
  create(planning, draft) {
    assertComplete(draft)
    draft.record.identityProviderUid = draft.parent
    return assertCanConfer(planning, { role: draft.record.roleUid, at: draft.record.scope, field: 'role_uid' })
  },
})

/** A role that a session has because of a group in its token, and the role's scope. */
export interface GroupMappedRole {
  readonly roleUid: string
  readonly scope: Uid
  /** The mapping that confers the role. */
  readonly mapping: Uid
  readonly externalGroupId: string
}

/**
 * Returns the roles that the mappings of the provider confer on a member of `groups`, ordered by uid of the mapping. Empty for a deleted
 * provider. Look up each role when it is used, because a deleted role grants nothing.
 */
export function mappingsFor(tables: RecordTables, provider: Uid, groups: readonly string[]): GroupMappedRole[] {
  const table = tables.table(index.kind)
  const own = table.matching('parent', provider)
  const found = new Map<Uid, CachedRecord>()
  for (const group of new Set(groups)) {
    const named = table.matching('external_group_id', group)
    // Other organisations may have any number of mappings for groups with the same names.
    for (const record of named.size < own.size ? named : own) {
      if (record.parent === provider && table.valueOf(record, 'external_group_id') === group) found.set(record.uid, record)
    }
  }
  const records = [...found.values()].toSorted((one, other) => (one.uid < other.uid ? -1 : 1))
  return records.map((record) => {
    const { roleUid, scope, externalGroupId } = mappingOf(record)
    // The scope was checked when the mapping was created.
    return { roleUid, scope: scope as Uid, mapping: record.uid, externalGroupId }
  })
}

/** Maximum number of mappings per transaction. Each needs two writes of the 127 that a transaction can have. */
const batchSize = 60

/**
 * Returns the uids to delete, without duplicates. Throws code 3 if one is not a mapping of this provider; then nothing is deleted
 * (docs/spec/identities.md#mapping-batches).
 */
function namedMappings({ parent, names }: BatchDeleteExternalGroupRoleMappingsRequest): Uid[] {
  const violations: FieldViolation[] = []
  for (const [at, name] of names.entries()) {
    if (!isUid(name) || parentOf(name) !== parent) violations.push({ field: `names[${at}]`, description: 'is not a mapping of this identity provider' })
  }
  if (violations.length > 0) throw DomainError.invalidFields(violations)
  return [...new Set(names)] as Uid[]
}

async function deleteBatch(services: Services, context: Context, batch: { parent: Uid; uids: readonly Uid[] }): Promise<ExternalGroupRoleMapping[]> {
  const { parent, uids } = batch
  return await commit(services, context, (planning: Planning): MutationPlan<ExternalGroupRoleMapping[]> => {
    const { tables } = planning
    const changes = new ChangeSet()
    const records = uids.map((uid) => tables.get(index.kind, uid)).filter((record) => record !== undefined)
    for (const record of records) {
      nextOwner(planning, index.kind, record)
      changes.remove(externalGroupRoleMappingKind, record)
    }
    const mappings = records.map((record) => rendered(externalGroupRoleMappingKind, services, record.message) as ExternalGroupRoleMapping)
    if (records.length > 0) {
      const message = create(BatchDeleteExternalGroupRoleMappingsResponseSchema, { parent, externalGroupRoleMappings: mappings })
      changes.guard({ kind: 'exists', key: recordKey('IdentityProvider', parent) })
      emit(planning, context, { changes, subject: parent, body: { desc: context.method.output, message } })
    }
    return { changes, result: mappings }
  })
}

/**
 * BatchDeleteExternalGroupRoleMappings: deletes mappings and skips missing ones (docs/spec/identities.md#mapping-batches). A long list
 * needs several transactions, each with its own event. If one fails, the earlier deletions stay, and a repeated call continues.
 */
export const batchDeleteMappings: Handler = async (services, context, message) => {
  const request = message as BatchDeleteExternalGroupRoleMappingsRequest
  const uids = namedMappings(request)
  const deleted: ExternalGroupRoleMapping[] = []
  for (let at = 0; at < uids.length; at += batchSize) {
    // a cast: the scope of the call is a uid
    deleted.push(...(await deleteBatch(services, context, { parent: request.parent as Uid, uids: uids.slice(at, at + batchSize) })))
  }
  const { parent } = request
  return { message: create(BatchDeleteExternalGroupRoleMappingsResponseSchema, { parent, externalGroupRoleMappings: deleted }), subject: parent }
}
