import { createHash } from 'node:crypto'
import type { AuditTrail } from '../base/audit-line.ts'
import type { Clock } from '../base/runtime.ts'
import { trustedUid, type Uid } from '../base/uid.ts'
import type { Services } from '../engine/services.ts'
import type { RecordKind } from './object-kinds.ts'
import type { KubeApi } from './kube-api.ts'
import type { EventRecorder } from './runtime/events.ts'
import type { Informer } from './runtime/informer.ts'
import type { ObjectClaims } from './reconcile/claims.ts'
import type { GrantsByNamespace } from './reconcile/grants-by-namespace.ts'
import type { Vanished } from './reconcile/vanished.ts'

/** The state of the cluster and the platform, and the services with which the controller works. */
export interface World {
  readonly services: Services
  readonly api: KubeApi
  /** The objects of each kind, in all namespaces. */
  readonly objects: Readonly<Record<RecordKind, Informer>>
  readonly grants: Informer
  readonly namespaces: Informer
  /** Index of grants by the namespaces that they select. */
  readonly grantsByNamespace: GrantsByNamespace
  /** Index of `objects` by their unique part. */
  readonly claims: ObjectClaims
  /** Those of `objects` that a watch reported as deleted. */
  readonly vanished: Vanished
  readonly events: EventRecorder
  readonly clock: Clock
  readonly cluster: Cluster
  readonly mirror: MirrorSettings
  /** True if the controller may write Secrets. */
  readonly writesSecrets: boolean
  /** Receives audit lines. */
  readonly auditLog: AuditTrail
}

/** The cluster that contains the objects. */
export interface Cluster {
  /** Id of the cluster, a part of the name of every owner. Clusters that share a store must have different ids. */
  readonly id: string
  /** The issuer of service account tokens of the cluster. */
  readonly issuer: string
}

/** Selects the records that are mirrored as objects, and the namespace of the mirrors. */
export interface MirrorSettings {
  readonly enabled: boolean
  readonly namespace: string
  /** Uids or names of root groups; all if empty. */
  readonly rootGroups: readonly string[]
  /** Maximum number of mirrors. */
  readonly limit: number
}

/** Returns the uid that names a cluster as the author of a change. It belongs to no identity, so nothing can sign in with it. */
export function clusterIdentity({ id }: Pick<Cluster, 'id'>): Uid {
  return trustedUid(createHash('sha256').update(`taproot:kubernetes:${id}`).digest('hex').slice(0, 40))
}
