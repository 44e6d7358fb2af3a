import { getOption, type DescField, type DescMessage } from '@bufbuild/protobuf'
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

/** Packages of version 1 whose messages version 2 has too. */
const sharedPackages: ReadonlySet<string> = new Set(['taproot.auth.v1', 'taproot.oidc.v1'])

/** True for messages of version 1. */
function isVersion1({ file }: DescMessage): boolean {
  const { package: name } = file.proto
  return name.endsWith('.v1') && !sharedPackages.has(name)
}

/** True if JSON has `null` for the field while it is not set: a single message in version 1, outside of a oneof (docs/spec/version-1.md#json-form). */
export function isNullIfUnset(field: DescField): boolean {
  return field.fieldKind === 'message' && field.oneof === undefined && !field.proto.proto3Optional && isVersion1(field.parent)
}
