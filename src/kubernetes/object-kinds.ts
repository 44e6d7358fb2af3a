import type { ObjectType, KubeObject } from './kube-api.ts'
import { objectTypes } from './object-types.ts'

/** A reference in an object's spec to what another record stands for: `{name}` in the same namespace, `{uid}` anywhere, `{builtIn}` for a role of the platform's own. */
export interface ReferenceRow {
  /** The field of the spec. */
  readonly field: 'parentRef' | 'identityRef' | 'roleRef'
  /** The kind of the record that is meant. */
  readonly kind: 'Group' | 'Identity' | 'Role'
  /** The field (proto name) of the record that holds its uid; `parent` for where the record lies. */
  readonly holds: string
  readonly optional: boolean
}

/** A column of its own that `kubectl get` prints. */
export interface PrintColumn {
  readonly name: string
  /** JSON path; where it finds several values, the first is printed. */
  readonly path: string
}

/** How one kind of record is shown and applied as Kubernetes objects. */
export interface ObjectKind {
  readonly type: ObjectType
  /** The kind of its records. */
  readonly record: 'Group' | 'Identity' | 'Role' | 'RoleBinding' | 'Repo'
  readonly shortName: string
  readonly category: 'platform-iam' | 'platform-registry'
  readonly columns: readonly PrintColumn[]
  readonly references: readonly ReferenceRow[]
  /** Records that the API owns are shown as objects. */
  readonly mirrored: boolean
  /** Fields of the record (proto names) that an object can't set: only operators may, or a reference stands for them. */
  readonly withheld: readonly string[]
}

const parent: ReferenceRow = { field: 'parentRef', kind: 'Group', holds: 'parent', optional: false }

/** Every kind that has objects: CRDs, mirrors, reconciling and RBAC follow from these rows. */
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
  },
} as const satisfies Record<string, ObjectKind>

/** A kind that has objects, by its record. */
export type RecordKind = keyof typeof objectKinds

/** The row of a kind, with the exact types of the table forgotten. */
export function rowOf(kind: RecordKind): ObjectKind {
  return objectKinds[kind]
}

/** The kinds that have objects. */
export const recordKinds = Object.keys(objectKinds) as readonly RecordKind[]

/** One object, as keys of the queue name it: `Group/<namespace>/<name>`. */
export interface ObjectKey {
  readonly kind: RecordKind
  readonly namespace: string
  readonly name: string
}

/** The text of a key. */
export function keyText({ kind, namespace, name }: ObjectKey): string {
  return `${kind}/${namespace}/${name}`
}

/** The key of an object. */
export function keyOfObject(kind: RecordKind, { metadata }: KubeObject): string {
  return keyText({ kind, namespace: metadata.namespace ?? '', name: metadata.name })
}

/** Reads what `keyText` wrote. Throws TypeError for anything else. */
export function parseKey(text: string): ObjectKey {
  const [kind = '', namespace, name] = text.split('/')
  if (!(kind in objectKinds) || namespace === undefined || name === undefined) throw new TypeError(`no key: ${text}`)
  // Looked up in the table right above.
  return { kind: kind as RecordKind, namespace, name }
}
