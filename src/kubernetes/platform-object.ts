import type { KubeObject, ObjectMeta } from './kube-api.ts'

/** Finalizer that keeps a deleted object until the controller has handled its record. */
export const finalizer = 'taproot.dev/record'
/** Annotation with the uid of the object's record. The controller writes it, and backups keep it. It is only a hint and grants nothing. */
export const uidAnnotation = 'taproot.dev/uid'
/** Label of mirrors. Its value is `api`. */
export const originLabel = 'taproot.dev/origin'

/** A reference to another record. Exactly one field is set. */
export interface ObjectReference {
  /** Name of an object of the required kind in the same namespace. */
  readonly name?: string
  readonly uid?: string
  /** A built-in role, e.g. `viewer`. */
  readonly builtIn?: string
}

/** The fields of a spec that all kinds have and that are not in the record. */
export interface PlatformSpec {
  readonly parentRef?: ObjectReference
  readonly identityRef?: ObjectReference
  readonly roleRef?: ObjectReference
  /** What happens to the record when the object is deleted. */
  readonly deletionPolicy?: 'Delete' | 'Orphan'
  /** Which record without an owner the object may adopt, if its grant allows adoption. */
  readonly adoptionPolicy?: 'Never' | 'ByUid' | 'ByName'
  /** For a subscription: pauses deliveries. */
  readonly suspend?: boolean
  /** For a subscription: the name of the Secret for its shared secret. */
  readonly secretName?: string
  readonly [field: string]: unknown
}

/** Condition types. `Ready` and `Synced` are present once the controller has handled the object; the others only while they are true. */
export type ConditionType = 'Ready' | 'Synced' | 'InConflict' | 'Reconciling' | 'Stalled'

/** A condition. The list of conditions is a map, keyed by `type`. */
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
  /** When the record last matched the object, as RFC 3339 text. */
  readonly lastSyncTime?: string
  /** The uids of the references at that time. */
  readonly resolved?: { readonly parent?: string; readonly identity?: string; readonly role?: string }
  /** Spec fields that are set in the record but not in this object. */
  readonly extraFields?: readonly string[]
  /** For a subscription: whether events are delivered, and why not. */
  readonly state?: string
  readonly stateReason?: string
  readonly conditions?: readonly Condition[]
}

/** An object of a platform kind. The API server has validated it against its CRD. */
export interface PlatformObject extends KubeObject {
  readonly metadata: ObjectMeta & { readonly namespace: string }
  readonly spec: PlatformSpec
  readonly status?: PlatformStatus
}

/** The spec of a PlatformNamespaceGrant: which records namespaces may own, and in which group. */
export interface GrantSpec {
  /** The selected namespaces; all if it is empty. */
  readonly namespaceSelector: { readonly matchNames?: readonly string[]; readonly matchLabels?: Readonly<Record<string, string>> }
  /** The uid of the group at and below which the namespaces may own records; `/` means everywhere, including root groups. */
  readonly groupUid: string
  /** The kinds of objects, e.g. `PlatformGroup`. */
  readonly allowedKinds: readonly string[]
  /** The maximum role that they may grant: no role binding, role or identity may confer more. If absent, they may grant nothing. */
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
  /** The first of the selected namespaces, by name. */
  readonly namespaces: readonly string[]
  readonly namespaceCount: number
  /** The number of objects in these namespaces with a record that the grant covers. */
  readonly objectCount: number
  readonly conditions: readonly GrantCondition[]
}

/** Casts a cached object of a platform kind. */
export function asPlatformObject(object: KubeObject): PlatformObject {
  // a cast: the CRD requires a namespace and a spec
  return object as PlatformObject
}

/** Returns true for a mirror, including one that is left after mirroring was turned off. A mirror does not request a record. */
export function isMirror({ metadata }: KubeObject): boolean {
  return metadata.labels?.[originLabel] === 'api'
}
