import type { KubeObject, ObjectMeta } from './kube-api.ts'

/** Holds an object until the controller has dealt with its record. */
export const finalizer = 'taproot.dev/record'
/** Annotation: the uid of the object's record. Written by the controller; kept by backups. A hint, never authority. */
export const uidAnnotation = 'taproot.dev/uid'
/** Label of objects that show a record of the API's own; its value is `api`. */
export const originLabel = 'taproot.dev/origin'

/** Another record, as a spec names it: exactly one of them. */
export interface ObjectReference {
  /** An object of the right kind in the same namespace. */
  readonly name?: string
  readonly uid?: string
  /** A role of the platform's own, e.g. `viewer`. */
  readonly builtIn?: string
}

/** What every spec has beside the fields of its record. */
export interface PlatformSpec {
  readonly parentRef?: ObjectReference
  readonly identityRef?: ObjectReference
  readonly roleRef?: ObjectReference
  /** What becomes of the record when the object is deleted. */
  readonly deletionPolicy?: 'Delete' | 'Orphan'
  /** Which record that nobody owns the object may take over, where its grant allows that at all. */
  readonly adoptionPolicy?: 'Never' | 'ByUid' | 'ByName'
  readonly [field: string]: unknown
}

/** `Ready` and `Synced` are always there once the object was seen; the others only while they are true. */
export type ConditionType = 'Ready' | 'Synced' | 'InConflict' | 'Reconciling' | 'Stalled'

/** One condition (listType map, by `type`). */
export interface Condition {
  readonly type: ConditionType
  readonly status: 'True' | 'False' | 'Unknown'
  readonly reason: string
  readonly message: string
  readonly observedGeneration: number
  readonly lastTransitionTime: string
}

/** What the controller says of an object. */
export interface PlatformStatus {
  readonly uid?: string
  readonly etag?: string
  readonly observedGeneration?: number
  /** When the record was last brought to what the object says. */
  readonly lastSyncTime?: string
  /** The uids that the references stood for then. */
  readonly resolved?: { readonly parent?: string; readonly identity?: string; readonly role?: string }
  /** Fields of a spec that the record has and this one does not name. */
  readonly extraFields?: readonly string[]
  readonly conditions?: readonly Condition[]
}

/** An object of one of our kinds. The API server has checked it against the kind's CRD. */
export interface PlatformObject extends KubeObject {
  readonly metadata: ObjectMeta & { readonly namespace: string }
  readonly spec: PlatformSpec
  readonly status?: PlatformStatus
}

/** What namespaces may own, and where: the spec of a PlatformNamespaceGrant. */
export interface GrantSpec {
  /** Which namespaces; an empty one means all. */
  readonly namespaceSelector: { readonly matchNames?: readonly string[]; readonly matchLabels?: Readonly<Record<string, string>> }
  /** The uid of the group at and below which they may own records; `/` for everywhere, root groups included. */
  readonly groupUid: string
  /** The kinds of objects, e.g. `PlatformGroup`. */
  readonly allowedKinds: readonly string[]
  /** What they may give at most: no role binding, role or identity may confer more. Nothing where absent. */
  readonly maxRole?: ObjectReference
  readonly allowAdoption?: boolean
  /** What becomes of the records of a namespace that is deleted. */
  readonly onNamespaceDelete?: 'Orphan' | 'Delete'
}

/** One condition of a grant: `Ready` is always there, `Stalled` only while it is true. */
export type GrantCondition = Omit<Condition, 'type'> & { readonly type: Extract<Condition['type'], 'Ready' | 'Stalled'> }

/** What the controller says of a grant. */
export interface GrantStatus {
  readonly observedGeneration: number
  /** The names of the group and of the highest role. */
  readonly resolved: { readonly group?: string; readonly maxRole?: string }
  /** The first of the namespaces that it selects. */
  readonly namespaces: readonly string[]
  readonly namespaceCount: number
  /** Objects of these namespaces with a record that the grant covers. */
  readonly objectCount: number
  readonly conditions: readonly GrantCondition[]
}

/** A cached object of one of our kinds. */
export function asPlatformObject(object: KubeObject): PlatformObject {
  // The kind's CRD gives it a namespace and a spec.
  return object as PlatformObject
}

/** True for an object that shows a record of the API's, also one that was left where no mirrors are kept any more: it says nothing. */
export function isMirror({ metadata }: KubeObject): boolean {
  return metadata.labels?.[originLabel] === 'api'
}
