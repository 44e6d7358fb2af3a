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

/** The Kubernetes and platform state that the controller works on. */
export interface World {
  readonly services: Services
  readonly api: KubeApi
  /** The objects of each kind, in all namespaces. */
  readonly objects: Readonly<Record<RecordKind, Informer>>
  readonly grants: Informer
  readonly namespaces: Informer
  /** Index of `grants` and `namespaces`. */
  readonly grantsByNamespace: GrantsByNamespace
  /** Of `objects`. */
  readonly claims: ObjectClaims
  /** Of `objects`. */
  readonly vanished: Vanished
  readonly events: EventRecorder
  readonly clock: Clock
  readonly cluster: Cluster
  readonly mirror: MirrorSettings
  /** Whether the controller may write Secrets. */
  readonly writesSecrets: boolean
  /** Destination of audit lines. */
  readonly auditLog: AuditTrail
}

/** The cluster that the objects are in. */
export interface Cluster {
  /** Part of every owner's name. Clusters that share a store have different ids. */
  readonly id: string
  /** The issuer of its service account tokens. */
  readonly issuer: string
}

/** Which records are mirrored as objects, and where. */
export interface MirrorSettings {
  readonly enabled: boolean
  readonly namespace: string
  /** Uids or names of root groups; all if empty. */
  readonly rootGroups: readonly string[]
  /** The maximum number of mirrors. */
  readonly limit: number
}

/** The uid that names a cluster as the author of a change. It belongs to no identity, so it can't sign in. */
export function clusterIdentity({ id }: Pick<Cluster, 'id'>): Uid {
  return trustedUid(createHash('sha256').update(`taproot:kubernetes:${id}`).digest('hex').slice(0, 40))
}
