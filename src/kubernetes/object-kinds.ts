import type { ObjectType, KubeObject } from './kube-api.ts'
import { objectTypes } from './object-types.ts'

/** A reference in an object's spec to another record: `{name}` in the same namespace, `{uid}` anywhere, or `{builtIn}` for a built-in role. */
export interface ReferenceRow {
  /** The field of the spec. */
  readonly field: 'parentRef' | 'identityRef' | 'roleRef'
  /** The kind of the referenced record. */
  readonly kind: 'Group' | 'Identity' | 'Role'
  /** The record's field (proto name) that contains the uid; `parent` if the reference sets the group of the record. */
  readonly holds: string
  readonly optional: boolean
}

/** An extra column that `kubectl get` prints. */
export interface PrintColumn {
  readonly name: string
  /** JSON path of the value. If it matches several values, the first is printed. */
  readonly path: string
}

/** How Kubernetes objects represent one kind of record. */
export interface ObjectKind {
  readonly type: ObjectType
  /** The kind of its records. */
  readonly record: 'Group' | 'Identity' | 'Role' | 'RoleBinding' | 'Repo' | 'Subscription'
  readonly shortName: string
  readonly category: 'platform-iam' | 'platform-registry' | 'platform-events'
  readonly columns: readonly PrintColumn[]
  readonly references: readonly ReferenceRow[]
  /** True if records that the API owns are mirrored as objects. */
  readonly mirrored: boolean
  /** Fields of the record (proto names) that an object cannot set, because only operators may, or because a reference replaces them. */
  readonly withheld: readonly string[]
  /** What happens to a record that confers or shows more than the grants of its namespace allow. */
  readonly onExcess: 'keep' | 'delete' | 'pause'
  /** How often the status is refreshed from state that no event reports, in milliseconds. */
  readonly refreshMs?: number
}

const parent: ReferenceRow = { field: 'parentRef', kind: 'Group', holds: 'parent', optional: false }

/** All kinds of record with Kubernetes objects. CRDs, mirrors, reconciling and RBAC are derived from these rows. */
export const objectKinds = {
  Group: {
    type: objectTypes.group,
    record: 'Group',
    shortName: 'pg',
    category: 'platform-iam',
    columns: [{ name: 'Record', path: '.spec.name' }],
    references: [{ ...parent, optional: true }],
    mirrored: true,
    withheld: ['verified', 'kind'],
    onExcess: 'keep',
  },
  Identity: {
    type: objectTypes.identity,
    record: 'Identity',
    shortName: 'pid',
    category: 'platform-iam',
    columns: [
      { name: 'Issuer', path: ".spec['claimMatch','staticKeys']['issuer','issuerPattern']" },
      { name: 'Subject', path: ".spec['claimMatch','staticKeys','awsIdentity','serviceAccountRef']['subject','subjectPattern','arn','arnPattern','name']" },
    ],
    references: [parent],
    mirrored: false,
    withheld: ['service_principal'],
    onExcess: 'keep',
  },
  Role: {
    type: objectTypes.role,
    record: 'Role',
    shortName: 'prole',
    category: 'platform-iam',
    columns: [],
    references: [parent],
    mirrored: false,
    withheld: [],
    onExcess: 'keep',
  },
  RoleBinding: {
    type: objectTypes.roleBinding,
    record: 'RoleBinding',
    shortName: 'prb',
    category: 'platform-iam',
    columns: [
      { name: 'Role', path: '.spec.roleRef.*' },
      { name: 'Identity', path: '.spec.identityRef.*' },
    ],
    references: [
      parent,
      { field: 'identityRef', kind: 'Identity', holds: 'identity_uid', optional: false },
      { field: 'roleRef', kind: 'Role', holds: 'role_uid', optional: false },
    ],
    mirrored: true,
    withheld: ['identity_uid', 'role_uid'],
    onExcess: 'delete',
  },
  Repo: {
    type: objectTypes.repo,
    record: 'Repo',
    shortName: 'prepo',
    category: 'platform-registry',
    columns: [],
    references: [parent],
    mirrored: false,
    withheld: [],
    onExcess: 'keep',
  },
  Subscription: {
    type: objectTypes.subscription,
    record: 'Subscription',
    shortName: 'psub',
    category: 'platform-events',
    columns: [
      { name: 'State', path: '.status.state' },
      { name: 'Sink', path: '.spec.sink' },
    ],
    references: [parent],
    mirrored: true,
    withheld: [],
    onExcess: 'pause',
    refreshMs: 30_000,
  },
} as const satisfies Record<string, ObjectKind>

/** A kind of record that has objects. */
export type RecordKind = keyof typeof objectKinds

/** Returns the row of a kind, typed as the general `ObjectKind`. */
export function rowOf(kind: RecordKind): ObjectKind {
  return objectKinds[kind]
}

/** All kinds of record that have objects. */
export const recordKinds = Object.keys(objectKinds) as readonly RecordKind[]

/** The kinds whose records must stay within the grants, even if their objects are missing. */
export const limitedKinds: readonly RecordKind[] = recordKinds.filter((kind) => rowOf(kind).onExcess !== 'keep')

/** The kind, namespace and name of an object. As text: `Group/<namespace>/<name>`. */
export interface ObjectKey {
  readonly kind: RecordKind
  readonly namespace: string
  readonly name: string
}

/** Returns the key as text. */
export function keyText({ kind, namespace, name }: ObjectKey): string {
  return `${kind}/${namespace}/${name}`
}

/** Returns the key of an object as text. */
export function keyOfObject(kind: RecordKind, { metadata }: KubeObject): string {
  return keyText({ kind, namespace: metadata.namespace ?? '', name: metadata.name })
}

/** Parses the output of `keyText`. Throws TypeError for other text. */
export function parseKey(text: string): ObjectKey {
  const [kind = '', namespace, name] = text.split('/')
  if (!(kind in objectKinds) || namespace === undefined || name === undefined) throw new TypeError(`not the key of an object: ${text}`)
  // a cast: checked against the table above
  return { kind: kind as RecordKind, namespace, name }
}
