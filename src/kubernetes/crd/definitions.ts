import type { Comments } from './field-schema.ts'
import { objectSchema } from './kind-schema.ts'
import { namespaceName, roleLimitSchema, uid } from './reference-schema.ts'
import { conditionsSchema, observedGenerationSchema, unobservedStatus } from './status-schema.ts'
import type { StructuralSchema } from './structural-schema.ts'
import type { ObjectType } from '../kube-api.ts'
import { objectKinds, type ObjectKind, type PrintColumn } from '../object-kinds.ts'
import { apiGroup, objectTypes } from '../object-types.ts'

const namespaceSelector: StructuralSchema = {
  description: 'Selects the namespaces that have one of the names and all of the labels. An empty selector selects all.',
  type: 'object',
  properties: {
    matchNames: { description: 'Names of namespaces.', type: 'array', maxItems: 500, 'x-kubernetes-list-type': 'set', items: namespaceName },
    matchLabels: {
      description: 'Labels of namespaces.',
      type: 'object',
      maxProperties: 50,
      additionalProperties: { type: 'string', maxLength: 63, pattern: '^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$' },
    },
  },
}

const spec: StructuralSchema = {
  description: 'Rights of namespaces: the kinds of records that their objects can own, and the group in which they can.',
  type: 'object',
  required: ['namespaceSelector', 'groupUid', 'allowedKinds'],
  properties: {
    namespaceSelector,
    groupUid: {
      ...uid,
      description: 'Uid of the group at and below which the namespaces can own records. `/` means everywhere, including root groups.',
      pattern: `^/$|${uid.pattern ?? ''}`,
    },
    allowedKinds: {
      description: 'Kinds of objects that can own records in these namespaces.',
      type: 'array',
      minItems: 1,
      maxItems: 32,
      'x-kubernetes-list-type': 'set',
      items: { type: 'string', enum: Object.values(objectKinds).map(({ type }) => type.kind) },
    },
    maxRole: roleLimitSchema(
      'Maximum role: role bindings, roles and identities of the namespaces can confer at most its capabilities. If absent, they can confer none.',
    ),
    allowAdoption: { description: 'If true, objects of the namespaces can adopt records without an owner.', type: 'boolean', default: false },
    onNamespaceDelete: {
      description: 'What happens to the records of a deleted namespace: Delete removes them, Orphan leaves them to the API.',
      type: 'string',
      enum: ['Orphan', 'Delete'],
      default: 'Orphan',
    },
  },
}

const count: StructuralSchema = { type: 'integer', format: 'int64', minimum: 0 }

const status: StructuralSchema = {
  description: 'State that the controller reports. It is never used as input.',
  type: 'object',
  default: unobservedStatus,
  properties: {
    observedGeneration: observedGenerationSchema,
    resolved: {
      description: 'Names of the group and the role that the spec refers to.',
      type: 'object',
      properties: {
        group: { description: 'Name of the group; `/` for everywhere.', type: 'string', maxLength: 255 },
        maxRole: { description: 'Name of the maximum role.', type: 'string', maxLength: 255 },
      },
    },
    namespaces: {
      description: 'First 20 selected namespaces, by name.',
      type: 'array',
      maxItems: 20,
      'x-kubernetes-list-type': 'set',
      items: namespaceName,
    },
    namespaceCount: { description: 'Number of selected namespaces.', ...count },
    objectCount: { description: 'Number of objects in these namespaces whose record this grant covers.', ...count },
    conditions: conditionsSchema,
  },
}

/** The schema of PlatformNamespaceGrant. */
const grantSchema: StructuralSchema = {
  description: 'Lets namespaces own records at and below a group. Without a grant, the objects of a namespace have no effect.',
  type: 'object',
  required: ['spec'],
  properties: { spec, status },
}

/** A printer column of a CustomResourceDefinition. */
export interface ColumnDefinition {
  readonly name: string
  readonly type: 'string' | 'date' | 'boolean' | 'integer'
  readonly jsonPath: string
  readonly description: string
  /** If greater than 0, the column is printed only with `-o wide`. */
  readonly priority?: number
}

/** The used fields of a CustomResourceDefinition. */
export interface CustomResourceDefinition {
  readonly apiVersion: 'apiextensions.k8s.io/v1'
  readonly kind: 'CustomResourceDefinition'
  readonly metadata: { readonly name: string; readonly annotations: Readonly<Record<string, string>> }
  readonly spec: {
    readonly group: string
    readonly scope: 'Namespaced' | 'Cluster'
    readonly names: {
      readonly kind: string
      readonly listKind: string
      readonly plural: string
      readonly singular: string
      readonly shortNames: readonly string[]
      readonly categories?: readonly string[]
    }
    readonly versions: readonly [
      {
        readonly name: string
        readonly served: true
        readonly storage: true
        readonly subresources?: { readonly status: Readonly<Record<string, never>> }
        readonly additionalPrinterColumns: readonly ColumnDefinition[]
        readonly selectableFields?: readonly { readonly jsonPath: string }[]
        readonly schema: { readonly openAPIV3Schema: StructuralSchema }
      },
    ]
  }
}

const conditionColumn = (type: string, field: string): string => `.status.conditions[?(@.type=="${type}")].${field}`

const leading: readonly ColumnDefinition[] = [
  { name: 'Ready', type: 'string', jsonPath: conditionColumn('Ready', 'status'), description: 'The record matches the spec.' },
  { name: 'Synced', type: 'string', jsonPath: conditionColumn('Synced', 'status'), description: 'The last attempt to write the record succeeded.' },
]

const trailing: readonly ColumnDefinition[] = [
  { name: 'UID', type: 'string', jsonPath: '.status.uid', description: 'Uid of the record.' },
  { name: 'Parent', type: 'string', jsonPath: '.spec.parentRef.*', description: 'Group of the record, as the spec names it.' },
  { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp', description: 'Creation time of the object.' },
  { name: 'Reason', type: 'string', jsonPath: conditionColumn('Ready', 'reason'), description: 'Reason of the condition Ready.', priority: 1 },
  { name: 'Message', type: 'string', jsonPath: conditionColumn('Ready', 'message'), description: 'Message of the condition Ready.', priority: 1 },
]

const grantColumns: readonly ColumnDefinition[] = [
  { name: 'Ready', type: 'string', jsonPath: conditionColumn('Ready', 'status'), description: 'The group and the role of the grant exist.' },
  { name: 'Group', type: 'string', jsonPath: '.spec.groupUid', description: 'Group of the grant.' },
  { name: 'Max-Role', type: 'string', jsonPath: '.spec.maxRole.*', description: 'Maximum role.' },
  { name: 'Adoption', type: 'boolean', jsonPath: '.spec.allowAdoption', description: 'Whether objects can adopt records without an owner.' },
  { name: 'Namespaces', type: 'integer', jsonPath: '.status.namespaceCount', description: 'Number of selected namespaces.' },
  { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp', description: 'Creation time of the grant.' },
  { name: 'Group-Name', type: 'string', jsonPath: '.status.resolved.group', description: 'Name of the group.', priority: 1 },
  { name: 'Objects', type: 'integer', jsonPath: '.status.objectCount', description: 'Number of objects whose record this grant covers.', priority: 1 },
  { name: 'Message', type: 'string', jsonPath: conditionColumn('Ready', 'message'), description: 'Problem of the grant.', priority: 1 },
]

function ownColumn({ name, path }: PrintColumn): ColumnDefinition {
  return { name, type: 'string', jsonPath: path, description: path.startsWith('.status.') ? `${name} of the record.` : `${name} in the spec.` }
}

/** Returns the fields for `--field-selector`: those of the references, and the uid of the record. Kubernetes allows at most eight. */
function selectableFields(schema: StructuralSchema, { references }: ObjectKind): readonly { readonly jsonPath: string }[] {
  const spec = schema.properties?.['spec']?.properties ?? {}
  const ways = references.flatMap(({ field }) => Object.keys(spec[field]?.properties ?? {}).map((way) => ({ jsonPath: `.spec.${field}.${way}` })))
  return [...ways, { jsonPath: '.status.uid' }]
}

interface Definition {
  readonly type: ObjectType
  readonly shortName: string
  readonly categories?: readonly string[]
  readonly version: Pick<CustomResourceDefinition['spec']['versions'][0], 'schema' | 'additionalPrinterColumns' | 'selectableFields' | 'subresources'>
}

function definition({ type, shortName, categories, version }: Definition): CustomResourceDefinition {
  const { kind, plural, namespaced } = type
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    // Keeps the CRDs, and so the objects, when the Helm release is uninstalled.
    metadata: { name: `${plural}.${apiGroup}`, annotations: { 'helm.sh/resource-policy': 'keep' } },
    spec: {
      group: apiGroup,
      scope: namespaced ? 'Namespaced' : 'Cluster',
      names: { kind, listKind: `${kind}List`, plural, singular: kind.toLowerCase(), shortNames: [shortName], ...(categories && { categories }) },
      versions: [{ name: type.version, served: true, storage: true, ...version }],
    },
  }
}

function definitionOfKind(kind: ObjectKind, comments: Comments): CustomResourceDefinition {
  const { type, shortName, category, columns } = kind
  const openAPIV3Schema = objectSchema(kind, comments)
  return definition({
    type,
    shortName,
    categories: ['platform', category],
    version: {
      subresources: { status: {} },
      additionalPrinterColumns: [...leading, ...columns.map(ownColumn), ...trailing],
      selectableFields: selectableFields(openAPIV3Schema, kind),
      schema: { openAPIV3Schema },
    },
  })
}

/**
 * Returns the definitions of all kinds of object, in the order of the table of kinds, and of grants. Throws Error for a field without a
 * comment, and for a type or rule that a CRD cannot express.
 */
export function customResourceDefinitions(comments: Comments): readonly CustomResourceDefinition[] {
  const kinds = Object.values(objectKinds).map((kind) => definitionOfKind(kind, comments))
  // No category: a caller who may see the objects of a namespace may lack the right to see grants. Then `kubectl get platform` would fail.
  const grant = definition({
    type: objectTypes.grant,
    shortName: 'png',
    version: { subresources: { status: {} }, additionalPrinterColumns: grantColumns, schema: { openAPIV3Schema: grantSchema } },
  })
  return [...kinds, grant]
}
