import type { StructuralSchema } from './structural-schema.ts'

const time: StructuralSchema = { type: 'string', format: 'date-time' }
const generation: StructuralSchema = { type: 'integer', format: 'int64', minimum: 0 }
const writtenUid: StructuralSchema = { type: 'string', maxLength: 255 }

const condition: StructuralSchema = {
  description: 'One condition.',
  type: 'object',
  required: ['type', 'status', 'reason', 'message', 'observedGeneration', 'lastTransitionTime'],
  properties: {
    type: { description: 'Ready and Synced are always there; InConflict, Reconciling and Stalled only while they are true.', type: 'string', maxLength: 316 },
    status: { description: 'Whether it is so.', type: 'string', enum: ['True', 'False', 'Unknown'] },
    reason: {
      description: 'Why, in one word for programs.',
      type: 'string',
      maxLength: 1024,
      pattern: '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$',
    },
    message: { description: 'Why, in words for people.', type: 'string', maxLength: 32_768 },
    observedGeneration: { description: 'The generation of the spec that it is about.', ...generation },
    lastTransitionTime: { description: 'When its status last changed.', ...time },
  },
}

/** Conditions, one entry per type. */
export const conditionsSchema: StructuralSchema = {
  description: 'How it stands with it, one entry per type.',
  type: 'array',
  maxItems: 32,
  'x-kubernetes-list-type': 'map',
  'x-kubernetes-list-map-keys': ['type'],
  items: condition,
}

/**
 * The generation that a status describes, -1 before the controller's first look. Without any status kstatus would report the object as ready, and Flux would
 * not wait for it.
 */
export const observedGenerationSchema: StructuralSchema = {
  description: 'The generation of the spec that was last looked at; -1 before the first look.',
  ...generation,
  minimum: -1,
}

/** The status of an object that the controller has not looked at. */
export const unobservedStatus = { observedGeneration: -1 } as const

/** The status that the controller writes. */
export const statusSchema: StructuralSchema = {
  description: 'What the controller says of it. Nothing in here is taken as given.',
  type: 'object',
  default: unobservedStatus,
  properties: {
    uid: { description: 'The uid of its record.', ...writtenUid },
    etag: { description: 'The etag of its record.', type: 'string', maxLength: 255 },
    observedGeneration: observedGenerationSchema,
    lastSyncTime: { description: 'When the record was last brought to what the spec says.', ...time },
    resolved: {
      description: 'The uids that the references stood for then.',
      type: 'object',
      properties: {
        parent: { description: 'The group.', ...writtenUid },
        identity: { description: 'The identity.', ...writtenUid },
        role: { description: 'The role.', ...writtenUid },
      },
    },
    extraFields: {
      description: 'Fields that the record has and the spec does not name. They are left as they are. To reset one, name it and remove it again.',
      type: 'array',
      maxItems: 64,
      items: { description: 'A field of the spec.', type: 'string', maxLength: 255 },
      'x-kubernetes-list-type': 'set',
    },
    conditions: conditionsSchema,
  },
}
