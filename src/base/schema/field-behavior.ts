import { getOption, type DescField } from '@bufbuild/protobuf'
import { FieldBehavior, field_behavior } from '../../gen/google/api/field_behavior_pb.ts'

/** What a client may do with a field, as its `google.api.field_behavior` says. */
export interface FieldAccess {
  readonly required: boolean
  readonly outputOnly: boolean
  readonly immutable: boolean
  /** Never in an answer. */
  readonly inputOnly: boolean
}

const known = new WeakMap<DescField, FieldAccess>()

/** The field's access, read once from its annotation. */
export function fieldAccess(field: DescField): FieldAccess {
  let access = known.get(field)
  if (access === undefined) {
    const marks = getOption(field, field_behavior)
    access = {
      required: marks.includes(FieldBehavior.REQUIRED),
      outputOnly: marks.includes(FieldBehavior.OUTPUT_ONLY),
      immutable: marks.includes(FieldBehavior.IMMUTABLE),
      inputOnly: marks.includes(FieldBehavior.INPUT_ONLY),
    }
    known.set(field, access)
  }
  return access
}
