import { assertCanGrant } from '../authz/grant-check.ts'
import type { DescMessage } from '@bufbuild/protobuf'
import { ownerRoleUid } from './organisation-owners.ts'
import { builtInRoles } from '../base/roles.ts'
import { emptySet } from '../base/capability.ts'
import { DomainError } from '../base/errors.ts'
import type { CachedRecord } from '../cache/records/cached-record.ts'
import { resourceTypeOf } from './errors.ts'
import type { Planning } from './kind.ts'

/** A Kubernetes object that owns a record. */
export interface ObjectOwner {
  readonly clusterId: string
  readonly namespace: string
  readonly name: string
}

/** Returns the text that identifies the owner in a record: its parts, separated by slashes, which no part contains. */
export function managedByText({ clusterId, namespace, name }: ObjectOwner): string {
  return `${clusterId}/${namespace}/${name}`
}

/** Returns the owner that a record names; undefined if no Kubernetes object owns the record. */
export function parseManagedBy(managedBy: string): ObjectOwner | undefined {
  const [clusterId, namespace, name] = managedBy.split('/')
  return clusterId === undefined || namespace === undefined || name === undefined ? undefined : { clusterId, namespace, name }
}

const ownerCapabilities = builtInRoles.find((role) => role.uid === ownerRoleUid)?.capabilities ?? emptySet

function managedElsewhere(kind: string, record: CachedRecord): DomainError {
  const owner = parseManagedBy(record.managedBy)
  const object = owner === undefined ? record.managedBy : `${owner.namespace}/${owner.name}`
  const violation = {
    type: 'MANAGED_BY_KUBERNETES',
    subject: record.uid,
    description: `the Kubernetes object ${object} owns this ${kind}: change the object, or send the header Force-Ownership: true to take the record from it`,
  }
  const metadata = owner === undefined ? {} : { cluster: owner.clusterId, namespace: owner.namespace, name: owner.name }
  return DomainError.precondition([violation], { reason: 'MANAGED_BY_KUBERNETES', details: { metadata: { ...metadata, resourceType: resourceTypeOf(kind) } } })
}

function notOwned(kind: string, record: CachedRecord): DomainError {
  const description =
    record.managedBy === ''
      ? `no Kubernetes object owns this ${kind}: change it through the API`
      : `another Kubernetes object owns this ${kind}: ${record.managedBy}`
  return DomainError.precondition([{ type: 'NOT_OWNED', subject: record.uid, description }], { reason: 'NOT_OWNED' })
}

/** Returns the owner of a new record that is written under `ownership`; empty if it is not a Kubernetes object. */
export function firstOwner({ ownership }: Pick<Planning, 'ownership'>): string {
  return ownership.kind === 'object' ? ownership.managedBy : ''
}

/** Returns the fields that the owner of a record sets, after a write under `ownership`. */
export function ownedFields({ ownership }: Pick<Planning, 'ownership'>): readonly string[] {
  return ownership.kind === 'object' ? ownership.fields : []
}

/**
 * Returns the fields that the object set earlier in its record but no longer sets. The write resets them. Empty for a record that the object adopts. Ignores
 * fields that only later versions know.
 */
export function resetFields({ ownership }: Pick<Planning, 'ownership'>, desc: DescMessage, record: CachedRecord): readonly string[] {
  if (ownership.kind !== 'object' || record.managedBy !== ownership.managedBy) return []
  return record.ownedFields.filter((field) => !ownership.fields.includes(field) && desc.fields.some(({ name }) => name === field))
}

/**
 * Returns the owner of `record` after a write. Throws code 9 `MANAGED_BY_KUBERNETES` or `NOT_OWNED` if the caller must not write the record. Throws code 7 if
 * the caller may not take the record from its owner.
 */
export function nextOwner(planning: Planning, kind: string, record: CachedRecord): string {
  const { ownership } = planning
  if (ownership.kind === 'api') {
    if (record.managedBy === '') return ''
    if (!ownership.force) throw managedElsewhere(kind, record)
    assertCanGrant(planning.permissions, record.uid, ownerCapabilities)
    return ''
  }
  const isOwn = record.managedBy === ownership.managedBy || (ownership.adopts && record.managedBy === '')
  if (!isOwn) throw notOwned(kind, record)
  return ownership.managedBy
}
