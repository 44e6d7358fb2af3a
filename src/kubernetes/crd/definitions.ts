import type { Comments } from './field-schema.ts'
import { objectSchema } from './kind-schema.ts'
import { namespaceName, roleLimitSchema, uid } from './reference-schema.ts'
import { conditionsSchema, observedGenerationSchema, unobservedStatus } from './status-schema.ts'
import type { StructuralSchema } from './structural-schema.ts'
import type { ObjectType } from '../kube-api.ts'
import { objectKinds, type ObjectKind, type PrintColumn } from '../object-kinds.ts'
import { apiGroup, objectTypes } from '../object-types.ts'

const namespaceSelector: StructuralSchema = {
  description: 'Which namespaces: those that have one of the names and all of the labels. An empty one means all.',
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
  description: 'What namespaces may own, and where.',
  type: 'object',
  required: ['namespaceSelector', 'groupUid', 'allowedKinds'],
  properties: {
    namespaceSelector,
    groupUid: {
      ...uid,
      description: 'The uid of the group at and below which they may own records; / for everywhere, root groups included.',
      pattern: `^/$|${uid.pattern ?? ''}`,
    },
    allowedKinds: {
      description: 'The kinds of objects that they may apply.',
      type: 'array',
      minItems: 1,
      maxItems: 32,
      'x-kubernetes-list-type': 'set',
      items: { type: 'string', enum: Object.values(objectKinds).map(({ type }) => type.kind) },
    },
    maxRole: roleLimitSchema('What they may give at most: no binding, role or identity may confer more. Nothing where absent.'),
    allowAdoption: { description: 'Their objects may adopt records without an owner.', type: 'boolean', default: false },
    onNamespaceDelete: {
      description: 'What becomes of the records of a namespace that is deleted: they are left to the API (Orphan), or go too.',
      type: 'string',
      enum: ['Orphan', 'Delete'],
      default: 'Orphan',
    },
  },
}

const count: StructuralSchema = { type: 'integer', format: 'int64', minimum: 0 }

const status: StructuralSchema = {
  description: 'What the controller says of it. Nothing in here is taken as given.',
  type: 'object',
  default: unobservedStatus,
  properties: {
    observedGeneration: observedGenerationSchema,
    resolved: {
      description: 'What the spec names, by name.',
      type: 'object',
      properties: {
        group: { description: 'The name of the group; / for everywhere.', type: 'string', maxLength: 255 },
        maxRole: { description: 'The name of the highest role.', type: 'string', maxLength: 255 },
      },
    },
    namespaces: {
      description: 'The first 20 of the namespaces that it selects, by name.',
      type: 'array',
      maxItems: 20,
      'x-kubernetes-list-type': 'set',
      items: namespaceName,
    },
    namespaceCount: { description: 'How many namespaces it selects.', ...count },
    objectCount: { description: 'How many of their objects have a record that it covers.', ...count },
    conditions: conditionsSchema,
  },
}

/** The schema of a PlatformNamespaceGrant. */
const grantSchema: StructuralSchema = {
  description: 'Lets namespaces own records at and below a group. Without one, the objects of a namespace do nothing.',
  type: 'object',
  required: ['spec'],
  properties: { spec, status },
}

/** A column as a CustomResourceDefinition has it. */
export interface ColumnDefinition {
  readonly name: string
  readonly type: 'string' | 'date' | 'boolean' | 'integer'
  readonly jsonPath: string
  readonly description: string
  /** Above 0: printed with `-o wide` only. */
  readonly priority?: number
}

/** A CustomResourceDefinition, as far as ours go. */
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
  { name: 'Ready', type: 'string', jsonPath: conditionColumn('Ready', 'status'), description: 'The record is as the spec says.' },
  { name: 'Synced', type: 'string', jsonPath: conditionColumn('Synced', 'status'), description: 'The last attempt to bring it there succeeded.' },
]

const trailing: readonly ColumnDefinition[] = [
  { name: 'UID', type: 'string', jsonPath: '.status.uid', description: 'The uid of the record.' },
  { name: 'Parent', type: 'string', jsonPath: '.spec.parentRef.*', description: 'The group that it lies in, as the spec names it.' },
  { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp', description: 'When the object was created.' },
  { name: 'Reason', type: 'string', jsonPath: conditionColumn('Ready', 'reason'), description: 'Why it is ready or not.', priority: 1 },
  { name: 'Message', type: 'string', jsonPath: conditionColumn('Ready', 'message'), description: 'The same in words.', priority: 1 },
]

const grantColumns: readonly ColumnDefinition[] = [
  { name: 'Ready', type: 'string', jsonPath: conditionColumn('Ready', 'status'), description: 'What it names is there.' },
  { name: 'Group', type: 'string', jsonPath: '.spec.groupUid', description: 'At and below which group.' },
  { name: 'Max-Role', type: 'string', jsonPath: '.spec.maxRole.*', description: 'What may be given at most.' },
  { name: 'Adoption', type: 'boolean', jsonPath: '.spec.allowAdoption', description: 'Whether objects may adopt records without an owner.' },
  { name: 'Namespaces', type: 'integer', jsonPath: '.status.namespaceCount', description: 'How many namespaces it selects.' },
  { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp', description: 'When the grant was created.' },
  { name: 'Group-Name', type: 'string', jsonPath: '.status.resolved.group', description: 'The name of the group.', priority: 1 },
  { name: 'Objects', type: 'integer', jsonPath: '.status.objectCount', description: 'How many objects have a record that it covers.', priority: 1 },
  { name: 'Message', type: 'string', jsonPath: conditionColumn('Ready', 'message'), description: 'What is wrong with it.', priority: 1 },
]

function ownColumn({ name, path }: PrintColumn): ColumnDefinition {
  return { name, type: 'string', jsonPath: path, description: path.startsWith('.status.') ? `${name} of the record.` : `${name}, as the spec names it.` }
}

/** Fields that `--field-selector` knows, eight at most: what the references name, and the record. */
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
    // Helm: objects outlive a release that is removed.
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
 * The definition of every kind of object, in the order of the table of kinds, and of grants. Throws Error on what of the schema has no form in them, and on a field
 * without a comment.
 */
export function customResourceDefinitions(comments: Comments): readonly CustomResourceDefinition[] {
  const kinds = Object.values(objectKinds).map((kind) => definitionOfKind(kind, comments))
  // No category: who may see a namespace's objects need not see the grants, and `kubectl get platform` would fail for them.
  const grant = definition({
    type: objectTypes.grant,
    shortName: 'png',
    version: { subresources: { status: {} }, additionalPrinterColumns: grantColumns, schema: { openAPIV3Schema: grantSchema } },
  })
  return [...kinds, grant]
}
