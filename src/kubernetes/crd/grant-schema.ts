import { objectKinds } from '../object-kinds.ts'
import { namespaceName, roleLimitSchema, uid } from './reference-schema.ts'
import { conditionsSchema, observedGenerationSchema, unobservedStatus } from './status-schema.ts'
import type { StructuralSchema } from './structural-schema.ts'

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
export const grantSchema: StructuralSchema = {
  description: 'Lets namespaces own records at and below a group. Without one, the objects of a namespace do nothing.',
  type: 'object',
  required: ['spec'],
  properties: { spec, status },
}
