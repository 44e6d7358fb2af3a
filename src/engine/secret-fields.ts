import { getOption, ScalarType, type DescField, type DescMessage } from '@bufbuild/protobuf'
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect'
import { fieldAccess } from '../base/schema/field-behavior.ts'
import { secret } from '../gen/taproot/api/v1/annotations_pb.ts'
import type { Resource } from '../cache/records/cached-record.ts'

/** A text field that clients write and the API never returns: marked `secret` in the schema, and not output-only. */
export interface SecretField {
  /** Proto names: `oidc.client_secret`. */
  readonly path: string
  /** From the message down to the field. */
  readonly fields: readonly DescField[]
}

const known = new WeakMap<DescMessage, readonly SecretField[]>()

/** Returns the secrets that messages of `desc` may carry, including nested messages. */
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

/** Returns the message that holds the last of `fields`; undefined if a message on the way is not set. */
function holderOf(message: ReflectMessage, fields: readonly DescField[]): ReflectMessage | undefined {
  let at = message
  for (const field of fields.slice(0, -1)) {
    if (field.fieldKind !== 'message' || !at.isSet(field)) return undefined
    at = at.get(field)
  }
  return at
}

/** Removes the secrets from `record`. Returns those whose message is set, by path; the text is empty if the field was not set. */
export function takeSecrets(desc: DescMessage, record: Resource): ReadonlyMap<string, string> {
  const taken = new Map<string, string>()
  for (const { path, fields } of secretFields(desc)) {
    const holder = holderOf(reflect(desc, record), fields)
    const field = fields.at(-1)
    if (holder === undefined || field === undefined) continue
    // A secret is a text.
    taken.set(path, holder.get(field) as string)
    holder.clear(field)
  }
  return taken
}
