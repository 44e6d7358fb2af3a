import { getOption, ScalarType, type DescField, type DescMessage } from '@bufbuild/protobuf'
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect'
import { fieldAccess } from '../base/schema/field-behavior.ts'
import { secret } from '../gen/taproot/api/v1/annotations_pb.ts'
import type { Resource } from '../cache/records/cached-record.ts'

/** A text field that clients write and the API never returns. The schema marks it as `secret`, and not as output-only. */
export interface SecretField {
  /** The path of the field in proto names, e.g. `oidc.client_secret`. */
  readonly path: string
  /** The fields on the path, from the record's message down. */
  readonly fields: readonly DescField[]
}

const known = new WeakMap<DescMessage, readonly SecretField[]>()

/** Returns the secret fields of `desc`, including those in nested messages. */
export function secretFields(desc: DescMessage): readonly SecretField[] {
  let found = known.get(desc)
  if (found === undefined) {
    found = [...find(desc, [])]
    known.set(desc, found)
  }
  return found
}

function* find(desc: DescMessage, above: readonly DescField[]): Generator<SecretField> {
  for (const field of desc.fields) {
    if (fieldAccess(field).outputOnly || above.some((other) => other.message === field.message && field.message !== undefined)) continue
    const fields = [...above, field]
    if (field.fieldKind === 'message') yield* find(field.message, fields)
    else if (field.fieldKind === 'scalar' && field.scalar === ScalarType.STRING && getOption(field, secret)) {
      yield { path: fields.map(({ name }) => name).join('.'), fields }
    }
  }
}

/** Returns the nested message that contains the last of `fields`; undefined if one of the messages on the path is not set. */
function holderOf(message: ReflectMessage, fields: readonly DescField[]): ReflectMessage | undefined {
  let at = message
  for (const field of fields.slice(0, -1)) {
    if (field.fieldKind !== 'message' || !at.isSet(field)) return undefined
    at = at.get(field)
  }
  return at
}

/** Removes the secrets from `record` and returns them by path. A secret that is not set is returned as an empty text, unless its message is not set. */
export function takeSecrets(desc: DescMessage, record: Resource): ReadonlyMap<string, string> {
  const taken = new Map<string, string>()
  for (const { path, fields } of secretFields(desc)) {
    const holder = holderOf(reflect(desc, record), fields)
    const field = fields.at(-1)
    if (holder === undefined || field === undefined) continue
    // The schema defines secrets as text fields.
    taken.set(path, holder.get(field) as string)
    holder.clear(field)
  }
  return taken
}
