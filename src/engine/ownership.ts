import type { DescMessage } from '@bufbuild/protobuf'
import { assertCanGrant, ownerRoleUid } from './grant-rules.ts'
import { builtInRoles } from '../base/roles.ts'
import { emptySet } from '../base/capability.ts'
import { DomainError } from '../base/errors.ts'
import type { CachedRecord } from '../cache/records/cached-record.ts'
import { resourceTypeOf } from './errors.ts'
import type { Planning } from './kind.ts'

/** A Kubernetes object, as the owner of a record. */
export interface ObjectOwner {
  readonly clusterId: string
  readonly namespace: string
  readonly name: string
}

/** The text that a record keeps of its owner: none of the parts holds a slash. */
export function managedByText({ clusterId, namespace, name }: ObjectOwner): string {
  return `${clusterId}/${namespace}/${name}`
}

/** The owner that a record names, or undefined where the API owns it. */
export function parseManagedBy(managedBy: string): ObjectOwner | undefined {
  const [clusterId, namespace, name] = managedBy.split('/')
  return clusterId === undefined || namespace === undefined || name === undefined ? undefined : { clusterId, namespace, name }
}

const ownerCapabilities = builtInRoles.find((role) => role.uid === ownerRoleUid)?.capabilities ?? emptySet

function managedElsewhere(kind: string, row: CachedRecord): DomainError {
  const owner = parseManagedBy(row.managedBy)
  const object = owner === undefined ? row.managedBy : `${owner.namespace}/${owner.name}`
  const violation = {
    type: 'MANAGED_BY_KUBERNETES',
    subject: row.uid,
    description: `the Kubernetes object ${object} owns this ${kind}: change the object, or take the record from it with the header force-ownership: true`,
  }
  const metadata = owner === undefined ? {} : { cluster: owner.clusterId, namespace: owner.namespace, name: owner.name }
  return DomainError.precondition([violation], { reason: 'MANAGED_BY_KUBERNETES', details: { metadata: { ...metadata, resourceType: resourceTypeOf(kind) } } })
}

function notOwned(kind: string, row: CachedRecord): DomainError {
  const description = row.managedBy === '' ? `this ${kind} belongs to the API` : `another Kubernetes object owns this ${kind}: ${row.managedBy}`
  return DomainError.precondition([{ type: 'NOT_OWNED', subject: row.uid, description }], { reason: 'NOT_OWNED' })
}

/** The owner of a record that is made on behalf of `ownership`. */
export function firstOwner({ ownership }: Pick<Planning, 'ownership'>): string {
  return ownership.kind === 'object' ? ownership.managedBy : ''
}

/** The fields that the owner of a record sets, after a write on behalf of `ownership`. */
export function ownedFields({ ownership }: Pick<Planning, 'ownership'>): readonly string[] {
  return ownership.kind === 'object' ? ownership.fields : []
}

/** The fields of the object's own record that the object set once and sets no more: the write resets them. None in a record that it adopts. Fields of later versions are left as they are. */
export function resetFields({ ownership }: Pick<Planning, 'ownership'>, desc: DescMessage, row: CachedRecord): readonly string[] {
  if (ownership.kind !== 'object' || row.managedBy !== ownership.managedBy) return []
  return row.ownedFields.filter((field) => !ownership.fields.includes(field) && desc.fields.some(({ name }) => name === field))
}

/**
 * The owner of `row` after a write. Throws code 9 `MANAGED_BY_KUBERNETES` or `NOT_OWNED` where the record is not the caller's to write, code 7 where it may not
 * force it.
 */
export function nextOwner(planning: Planning, kind: string, row: CachedRecord): string {
  const { ownership } = planning
  if (ownership.kind === 'api') {
    if (row.managedBy === '') return ''
    if (!ownership.force) throw managedElsewhere(kind, row)
    assertCanGrant(planning, row.uid, ownerCapabilities)
    return ''
  }
  const isOwn = row.managedBy === ownership.managedBy || (ownership.adopts && row.managedBy === '')
  if (!isOwn) throw notOwned(kind, row)
  return ownership.managedBy
}
