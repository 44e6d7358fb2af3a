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

/** Returns the text that identifies the owner in a record: none of the parts contains a slash. */
export function managedByText({ clusterId, namespace, name }: ObjectOwner): string {
  return `${clusterId}/${namespace}/${name}`
}

/** Returns the owner that a record names; undefined if the API owns it. */
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

/** Returns the owner of a new record written under `ownership`. */
export function firstOwner({ ownership }: Pick<Planning, 'ownership'>): string {
  return ownership.kind === 'object' ? ownership.managedBy : ''
}

/** Returns the fields that the owner of a record sets, after a write under `ownership`. */
export function ownedFields({ ownership }: Pick<Planning, 'ownership'>): readonly string[] {
  return ownership.kind === 'object' ? ownership.fields : []
}

/**
 * Returns the fields that the object set earlier in its own record but no longer sets: the write resets them. Empty for a record that it adopts. Ignores fields
 * of later versions.
 */
export function resetFields({ ownership }: Pick<Planning, 'ownership'>, desc: DescMessage, row: CachedRecord): readonly string[] {
  if (ownership.kind !== 'object' || row.managedBy !== ownership.managedBy) return []
  return row.ownedFields.filter((field) => !ownership.fields.includes(field) && desc.fields.some(({ name }) => name === field))
}

/**
 * Returns the owner of `row` after a write. Throws code 9 `MANAGED_BY_KUBERNETES` or `NOT_OWNED` if the caller must not write the record, and code 7 if it may
 * not force it.
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
