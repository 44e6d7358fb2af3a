import { getOption, type DescField } from '@bufbuild/protobuf'
import { FieldBehavior, field_behavior } from '../../gen/google/api/field_behavior_pb.ts'

/** What a client may do with a field, from its annotation `google.api.field_behavior`. */
export interface FieldAccess {
  readonly required: boolean
  readonly outputOnly: boolean
  readonly immutable: boolean
  /** True if answers never contain the field. */
  readonly inputOnly: boolean
}

const known = new WeakMap<DescField, FieldAccess>()

/** Returns the field's access. Each field's annotation is read once. */
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
