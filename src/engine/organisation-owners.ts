import type { CachedRecord } from '../cache/records/cached-record.ts'
import { builtInRoles } from '../base/roles.ts'
import { DomainError } from '../base/errors.ts'
import { randomHex } from '../base/runtime.ts'
import { rootParent, type Uid } from '../base/uid.ts'
import type { RoleBinding } from '../gen/taproot/iam/v2/role_bindings_pb.ts'
import type { RecordTables } from '../cache/record-tables.ts'
import { ownersKey } from '../store/keys.ts'
import type { Extra, Planning } from './kind.ts'
import { messageOf } from '../cache/records/record-types.ts'

function builtInUid(name: string): Uid {
  const role = builtInRoles.find((candidate) => candidate.name === name)
  if (role === undefined) throw new TypeError(`no built-in role ${name}`)
  return role.uid
}

/** Uid of the built-in role `owner`. Identities with this role on a root group are its owners. */
export const ownerRoleUid = builtInUid('owner')

const builtInUids: ReadonlySet<string> = new Set(builtInRoles.map((role) => role.uid))

/** True if the uid is that of a built-in role, which no caller can change. */
export function isBuiltInRole(uid: string): boolean {
  return builtInUids.has(uid)
}

/** Returns the role binding in a record of kind RoleBinding. */
export function bindingOf(record: CachedRecord): RoleBinding {
  // The table of a kind contains only messages of that kind.
  return messageOf(record, 'RoleBinding')
}

/** Returns the role bindings that make their identities owners of the root group `root`. */
export function ownerBindings(tables: RecordTables, root: Uid): CachedRecord[] {
  const bindings = tables.table('RoleBinding')
  return [...bindings.matching('parent', root)].filter((record) => bindings.valueOf(record, 'role') === ownerRoleUid)
}

/** True if a binding of `role` to `group` makes its identity the owner of an organisation. */
export function makesOwner(group: string, role: string): boolean {
  return role === ownerRoleUid && !group.includes('/') && group !== rootParent
}

/** Returns the write that marks the owners of the root group `root` as changed. Guards made by `ownersUnchanged` then fail. */
export function ownersChanged(planning: Planning, root: Uid): Extra {
  return { writes: [{ kind: 'put', key: ownersKey(root), value: Buffer.from(randomHex(planning.services.random, 8)) }] }
}

/** Returns a guard that fails if the owners of the root group `root` change before the transaction commits. */
export function ownersUnchanged(planning: Planning, root: Uid): Extra {
  const key = ownersKey(root)
  const entry = planning.tables.entry(key)
  return { guards: [entry === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: entry.revision }] }
}

/**
 * Returns the guards and writes for removing those owner bindings of `root` that are `leaving`. Another owner must remain (code 9 `LAST_OWNER`; operators are
 * exempt), and the owners must not change in the meantime.
 */
export function ownersLeave(planning: Planning, root: Uid, leaving: (record: CachedRecord) => boolean): Extra {
  // A binding to a person who never signed in does not count as an owner.
  const stay = ownerBindings(planning.tables, root).filter(
    (record) => !leaving(record) && planning.tables.get('Identity', bindingOf(record).identityUid) !== undefined,
  )
  if (stay.length === 0 && !planning.permissions.operator) {
    const violation = { type: 'LAST_OWNER', subject: root, description: 'a root group needs at least one owner: bind another owner first' }
    throw DomainError.precondition([violation], { reason: 'LAST_OWNER' })
  }
  return mergeExtras(ownersUnchanged(planning, root), ownersChanged(planning, root))
}

/** Merges the guards and writes of several rules. */
export function mergeExtras(...extras: readonly (Extra | undefined)[]): Extra {
  return { guards: extras.flatMap((extra) => extra?.guards ?? []), writes: extras.flatMap((extra) => extra?.writes ?? []) }
}
