import type { StructuralSchema } from './structural-schema.ts'

const time: StructuralSchema = { type: 'string', format: 'date-time' }
const generation: StructuralSchema = { type: 'integer', format: 'int64', minimum: 0 }
const writtenUid: StructuralSchema = { type: 'string', maxLength: 255 }

const condition: StructuralSchema = {
  description: 'One condition.',
  type: 'object',
  required: ['type', 'status', 'reason', 'message', 'observedGeneration', 'lastTransitionTime'],
  properties: {
    type: { description: 'Ready and Synced are always present; InConflict, Reconciling and Stalled only while they are true.', type: 'string', maxLength: 316 },
    status: { description: 'Status of the condition: True, False or Unknown.', type: 'string', enum: ['True', 'False', 'Unknown'] },
    reason: {
      description: 'Reason, as one word for programs.',
      type: 'string',
      maxLength: 1024,
      pattern: '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$',
    },
    message: { description: 'Message for people.', type: 'string', maxLength: 32_768 },
    observedGeneration: { description: 'Generation of the spec that the condition describes.', ...generation },
    lastTransitionTime: { description: 'Time of the last change of the status.', ...time },
  },
}

/** The schema of conditions, with one entry per type. */
export const conditionsSchema: StructuralSchema = {
  description: 'Conditions, one per type.',
  type: 'array',
  maxItems: 32,
  'x-kubernetes-list-type': 'map',
  'x-kubernetes-list-map-keys': ['type'],
  items: condition,
}

/**
 * The schema of the generation that a status describes; -1 before the controller first handles the object. Without a status, kstatus would
 * report the object as ready, and Flux would not wait for it.
 */
export const observedGenerationSchema: StructuralSchema = {
  description: 'Generation of the spec that the controller last handled, or -1 if it has handled none.',
  ...generation,
  minimum: -1,
}

/** The status of an object that the controller has not handled yet. */
export const unobservedStatus = { observedGeneration: -1 } as const

/** The schema of the status that the controller writes. */
export const statusSchema: StructuralSchema = {
  description: 'State that the controller reports. It is never used as input.',
  type: 'object',
  default: unobservedStatus,
  properties: {
    uid: { description: 'Uid of the record.', ...writtenUid },
    etag: { description: 'Etag of the record.', type: 'string', maxLength: 255 },
    observedGeneration: observedGenerationSchema,
    lastSyncTime: { description: 'Time when the record last matched the spec.', ...time },
    resolved: {
      description: 'Uids of the records that the references named at that time.',
      type: 'object',
      properties: {
        parent: { description: 'Uid of the group.', ...writtenUid },
        identity: { description: 'Uid of the identity.', ...writtenUid },
        role: { description: 'Uid of the role.', ...writtenUid },
      },
    },
    extraFields: {
      description:
        'Fields that are set in the record but not in the spec. The controller does not change them. To reset a field, set it in the spec and remove it again.',
      type: 'array',
      maxItems: 64,
      items: { description: 'Name of a field of the spec.', type: 'string', maxLength: 255 },
      'x-kubernetes-list-type': 'set',
    },
    conditions: conditionsSchema,
  },
}
