import { objectKinds, type ObjectKind, type PrintColumn } from '../object-kinds.ts'
import { apiGroup, objectTypes } from '../object-types.ts'
import type { ObjectType } from '../kube-api.ts'
import type { Comments } from './field-schema.ts'
import { grantSchema } from './grant-schema.ts'
import { objectSchema } from './kind-schema.ts'
import type { StructuralSchema } from './structural-schema.ts'

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
  return { name, type: 'string', jsonPath: path, description: `${name}, as the spec names it.` }
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
