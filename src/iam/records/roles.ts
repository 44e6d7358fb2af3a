import { assertCanGrant } from '../../authz/grant-check.ts'
import { create } from '@bufbuild/protobuf'
import { builtInRoles } from '../../base/roles.ts'
import { capabilityByEnumNumber, fromEnumNumbers, membersOf, type CapabilitySet } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import type { Capability } from '../../gen/taproot/common/v2/capability_pb.ts'
import { RoleSchema, type Role } from '../../gen/taproot/iam/v2/roles_pb.ts'
import { recordOfEnvelope } from '../../cache/records/record-factory.ts'
import type { KindIndex, Resource, CachedRecord } from '../../cache/records/cached-record.ts'
import { usedByPrefix } from '../../store/keys.ts'
import { storeRevision } from '../../store/store.ts'
import { isBuiltInRole } from '../../engine/organisation-owners.ts'
import { defineKind, type MutationDraft, type Planning } from '../../engine/kind.ts'
import { envelopeOf } from '../../engine/record-codec.ts'

const index: KindIndex = {
  kind: 'Role',
  desc: RoleSchema,
  name: 'name',
  foundByPath: true,
  filters: {},
  removedWith: [],
}

/** Converts the capabilities into values of the schema's enum, sorted by number. */
function numbersOf(set: CapabilitySet): Capability[] {
  // a cast: the table of capabilities is built from this enum
  return membersOf(set).map(({ number }) => number as Capability)
}

/** Creation time of the built-in roles, in milliseconds since 1970. */
const builtInTimeMs = Date.UTC(2026, 0, 1)

/** The built-in roles as records. Every record cache starts with them. */
export const builtInRoleRecords: readonly CachedRecord[] = builtInRoles.map((role) => {
  const record = create(RoleSchema, { name: role.name, description: role.description, capabilities: numbersOf(role.capabilities) })
  const facts = { etag: role.uid.slice(0, 16), createMs: builtInTimeMs, updateMs: builtInTimeMs, managedBy: '' }
  return recordOfEnvelope(index, { uid: role.uid, envelope: envelopeOf(RoleSchema, record, facts), revision: storeRevision(0) })
})

/** Sorts the capabilities and removes duplicates. Throws code 3 for capabilities that custom roles cannot have (docs/spec/iam.md#custom-roles). */
function settleCapabilities(record: Role): void {
  const bad = record.capabilities.filter((number) => {
    const capability = capabilityByEnumNumber(number)
    return capability === undefined || capability.internal
  })
  if (record.capabilities.length === 0) throw DomainError.invalid('capabilities', 'at least one is required')
  if (bad.length > 0) throw DomainError.invalid('capabilities', `unknown or reserved: ${bad.slice(0, 10).join(', ')}`)
  record.capabilities = numbersOf(fromEnumNumbers(record.capabilities))
}

function check(planning: Planning, draft: MutationDraft<Role & Resource>): undefined {
  settleCapabilities(draft.record)
  assertCanGrant(planning.permissions, draft.parent, fromEnumNumbers(draft.record.capabilities))
}

/** The kind Role: a named set of capabilities, for a group and everything below it. Built-in roles are available everywhere. */
export const roleKind = defineKind<Role & Resource>({
  index,
  desc: RoleSchema,
  uniqueName: true,
  create: check,
  update(planning, draft) {
    if (isBuiltInRole(draft.uid)) throw DomainError.denied([], draft.uid)
    return check(planning, draft)
  },
  remove(planning, record) {
    if (isBuiltInRole(record.uid)) throw DomainError.denied([], record.uid)
    const uses = planning.tables.table('RoleBinding').matching('role', record.uid).size
    if (uses > 0) {
      const violation = { type: 'ROLE_IN_USE', subject: record.uid, description: `cannot delete role with ${uses} role ${uses === 1 ? 'binding' : 'bindings'}` }
      throw DomainError.precondition([violation], { reason: 'ROLE_IN_USE' })
    }
    return { guards: [{ kind: 'empty', prefix: usedByPrefix('RoleBinding.role', record.uid) }] }
  },
})
