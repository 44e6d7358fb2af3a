import { createHash } from 'node:crypto'
import type { Log } from '../base/log.ts'
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

/** Both sides that the controller stands between. */
export interface World {
  readonly services: Services
  readonly api: KubeApi
  /** The objects of each kind, in all namespaces. */
  readonly objects: Readonly<Record<RecordKind, Informer>>
  readonly grants: Informer
  readonly namespaces: Informer
  /** Of `grants` and `namespaces`. */
  readonly grantsByNamespace: GrantsByNamespace
  /** Of `objects`. */
  readonly claims: ObjectClaims
  /** Of `objects`. */
  readonly vanished: Vanished
  readonly events: EventRecorder
  readonly clock: Clock
  readonly cluster: Cluster
  readonly mirror: MirrorSettings
  /** Where audit lines go. */
  readonly auditLog: Log
}

/** The cluster that the objects are in. */
export interface Cluster {
  /** Part of every owner's name: no two clusters that share a store have the same. */
  readonly id: string
  /** Who signs the tokens of its service accounts. */
  readonly issuer: string
}

/** Which records are shown as objects, and where. */
export interface MirrorSettings {
  readonly enabled: boolean
  readonly namespace: string
  /** Uids or names; all root groups where empty. */
  readonly rootGroups: readonly string[]
  /** How many objects at most. */
  readonly limit: number
}

/** The uid that stands for a cluster where a change tells who made it: nobody signs in with it. */
export function clusterIdentity({ id }: Pick<Cluster, 'id'>): Uid {
  return trustedUid(createHash('sha256').update(`taproot:kubernetes:${id}`).digest('hex').slice(0, 40))
}
