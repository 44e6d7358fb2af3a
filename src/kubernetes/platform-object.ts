import type { KubeObject, ObjectMeta } from './kube-api.ts'

/** Finalizer that keeps an object until the controller has dealt with its record. */
export const finalizer = 'taproot.dev/record'
/** Annotation with the uid of the object's record. The controller writes it and backups keep it. It is a hint and grants nothing. */
export const uidAnnotation = 'taproot.dev/uid'
/** Label of mirrors; its value is `api`. */
export const originLabel = 'taproot.dev/origin'

/** A reference to another record. Exactly one field is set. */
export interface ObjectReference {
  /** An object of the right kind in the same namespace. */
  readonly name?: string
  readonly uid?: string
  /** A built-in role, e.g. `viewer`. */
  readonly builtIn?: string
}

/** The spec fields that all kinds share and that are not in the record. */
export interface PlatformSpec {
  readonly parentRef?: ObjectReference
  readonly identityRef?: ObjectReference
  readonly roleRef?: ObjectReference
  /** What happens to the record when the object is deleted. */
  readonly deletionPolicy?: 'Delete' | 'Orphan'
  /** Which record without an owner the object may adopt, if its grant allows adoption. */
  readonly adoptionPolicy?: 'Never' | 'ByUid' | 'ByName'
  /** Of a subscription: no deliveries. */
  readonly suspend?: boolean
  /** Of a subscription: the Secret for its shared secret. */
  readonly secretName?: string
  readonly [field: string]: unknown
}

/** Condition types. `Ready` and `Synced` are present from the first look on; the others only while they are true. */
export type ConditionType = 'Ready' | 'Synced' | 'InConflict' | 'Reconciling' | 'Stalled'

/** One condition (a list of type map, keyed by `type`). */
export interface Condition {
  readonly type: ConditionType
  readonly status: 'True' | 'False' | 'Unknown'
  readonly reason: string
  readonly message: string
  readonly observedGeneration: number
  readonly lastTransitionTime: string
}

/** The status that the controller writes. */
export interface PlatformStatus {
  readonly uid?: string
  readonly etag?: string
  readonly observedGeneration?: number
  /** When the record last matched the object. */
  readonly lastSyncTime?: string
  /** The uids of the references at that time. */
  readonly resolved?: { readonly parent?: string; readonly identity?: string; readonly role?: string }
  /** Spec fields that the record has and this object leaves out. */
  readonly extraFields?: readonly string[]
  /** Of a subscription: whether events are delivered, and why not. */
  readonly state?: string
  readonly stateReason?: string
  readonly conditions?: readonly Condition[]
}

/** An object of a platform kind, validated against its CRD by the API server. */
export interface PlatformObject extends KubeObject {
  readonly metadata: ObjectMeta & { readonly namespace: string }
  readonly spec: PlatformSpec
  readonly status?: PlatformStatus
}

/** The spec of a PlatformNamespaceGrant: what namespaces may own, and where. */
export interface GrantSpec {
  /** The selected namespaces; all if empty. */
  readonly namespaceSelector: { readonly matchNames?: readonly string[]; readonly matchLabels?: Readonly<Record<string, string>> }
  /** The uid of the group at and below which they may own records; `/` means everywhere, including root groups. */
  readonly groupUid: string
  /** The kinds of objects, e.g. `PlatformGroup`. */
  readonly allowedKinds: readonly string[]
  /** The highest role that they may grant: no role binding, role or identity may confer more. If absent, they may grant nothing. */
  readonly maxRole?: ObjectReference
  readonly allowAdoption?: boolean
  /** What happens to the records of a deleted namespace. */
  readonly onNamespaceDelete?: 'Orphan' | 'Delete'
}

/** One condition of a grant. `Ready` is always present, `Stalled` only while it is true. */
export type GrantCondition = Omit<Condition, 'type'> & { readonly type: Extract<Condition['type'], 'Ready' | 'Stalled'> }

/** The status of a grant, written by the controller. */
export interface GrantStatus {
  readonly observedGeneration: number
  /** The names of the group and of the maximum role. */
  readonly resolved: { readonly group?: string; readonly maxRole?: string }
  /** The first of the selected namespaces. */
  readonly namespaces: readonly string[]
  readonly namespaceCount: number
  /** The number of objects in these namespaces with a record that the grant covers. */
  readonly objectCount: number
  readonly conditions: readonly GrantCondition[]
}

/** Casts a cached object of a platform kind. */
export function asPlatformObject(object: KubeObject): PlatformObject {
  // The CRD requires a namespace and a spec.
  return object as PlatformObject
}

/** True for a mirror, including one that remains after mirroring was turned off. A mirror requests nothing. */
export function isMirror({ metadata }: KubeObject): boolean {
  return metadata.labels?.[originLabel] === 'api'
}
