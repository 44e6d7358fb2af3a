import { builtInRoles } from '../../base/roles.ts'
import { isUid, rootParent, trustedUid, type Uid } from '../../base/uid.ts'
import { managedByText } from '../../engine/ownership.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { managedKey } from '../../store/keys.ts'
import type { ObjectKind, ReferenceRow, ObjectKey } from '../object-kinds.ts'
import type { ObjectReference, PlatformObject } from '../platform-object.ts'
import type { Cluster } from '../world.ts'
import type { ResolvedReferences } from './facts.ts'

/** Returns the uid of the record of `kind` that the object owns; undefined if it has none. */
export function ownedUid(tables: RecordTables, kind: string, managedBy: string): Uid | undefined {
  const entry = tables.entry(managedKey(kind, managedBy))
  return entry === undefined ? undefined : trustedUid(Buffer.from(entry.value).toString())
}

/** Returns true if an object of this name owns a record, even if the object is missing. */
export function ownsRecord(tables: RecordTables, { id }: Pick<Cluster, 'id'>, { kind, namespace, name }: ObjectKey): boolean {
  return ownedUid(tables, kind, managedByText({ clusterId: id, namespace, name })) !== undefined
}

function meantBy({ name, uid, builtIn }: ObjectReference): string {
  if (name !== undefined) return `the object ${name}`
  return builtIn === undefined ? `the record ${uid ?? ''}` : `the built-in role ${builtIn}`
}

function resolve(tables: RecordTables, cluster: Cluster, at: { row: ReferenceRow; reference: ObjectReference; namespace: string }): Uid | undefined {
  const { row, reference, namespace } = at
  const { name, uid, builtIn } = reference
  if (builtIn !== undefined) return builtInRoles.find((role) => role.name === builtIn)?.uid
  if (name !== undefined) return ownedUid(tables, row.kind, managedByText({ clusterId: cluster.id, namespace, name }))
  return uid !== undefined && isUid(uid) ? uid : undefined
}

/** Resolves the references of `object` as of `tables`. A reference by uid is not checked here; its users check whether the record exists. */
export function resolveReferences(tables: RecordTables, cluster: Cluster, { row, object }: { row: ObjectKind; object: PlatformObject }): ResolvedReferences {
  const found: { [Field in ReferenceRow['field']]?: Uid } = {}
  for (const wanted of row.references) {
    const reference = object.spec[wanted.field]
    if (reference === undefined) continue
    const uid = resolve(tables, cluster, { row: wanted, reference, namespace: object.metadata.namespace })
    if (uid === undefined) return { found: false, field: wanted.field, meant: meantBy(reference) }
    found[wanted.field] = uid
  }
  const { parentRef, identityRef, roleRef } = found
  return {
    found: true,
    parent: parentRef ?? rootParent,
    ...(identityRef === undefined ? {} : { identity: identityRef }),
    ...(roleRef === undefined ? {} : { role: roleRef }),
  }
}
