import { fromJson, toJson, type DescField, type DescMessage, type JsonValue, type Message } from '@bufbuild/protobuf'
import { fieldAccess } from '../../base/schema/field-behavior.ts'
import { registry } from '../../base/schema/schema.ts'
import { secretFields } from '../../engine/secret-fields.ts'
import { isJson, type Json } from '../client/client-error.ts'
import { leaves } from '../write/write.ts'

/** Fields that are not part of a record's value. */
const ownFields: ReadonlySet<string> = new Set(['uid', 'etag'])

/** Returns the fields of a record that callers can set and see. */
export function comparedFields(desc: DescMessage): readonly DescField[] {
  return desc.fields.filter((field) => {
    const { outputOnly, inputOnly } = fieldAccess(field)
    return !outputOnly && !inputOnly && !ownFields.has(field.name)
  })
}

/** Returns a message as JSON. */
export function messageJson(desc: DescMessage, message: Message): Json {
  const json: JsonValue = toJson(desc, message, { registry })
  return isJson(json) ? json : {}
}

/** Returns the fields of a record that callers can set and see, in the form that is the same for equal values. Ignores fields that this version does not know. */
export function comparedJson(desc: DescMessage, record: Json): Json {
  // a cast: the record is from an answer in JSON
  const json = messageJson(desc, fromJson(desc, record as Record<string, JsonValue>, { registry, ignoreUnknownFields: true }))
  return Object.fromEntries(comparedFields(desc).flatMap(({ jsonName }) => (json[jsonName] === undefined ? [] : [[jsonName, json[jsonName]] as const])))
}

/** Returns the path of a secret that is set, such as `oidc.clientSecret`. Answers never contain secrets. */
export function secretIn(desc: DescMessage, record: Json): string | undefined {
  const paths = secretFields(desc).map(({ fields }) => fields.map(({ jsonName }) => jsonName))
  return paths.find((path) => path.reduce<unknown>((at, name) => (isJson(at) ? at[name] : undefined), record) !== undefined)?.join('.')
}

/** Returns a line for each value that changes: `-` before the old one, `+` before the new one. */
export function differences(before: Json, after: Json): readonly string[] {
  const [old, next] = [new Map(leaves(before, '')), new Map(leaves(after, ''))]
  const names = [...new Set([...old.keys(), ...next.keys()])].filter((name) => old.get(name) !== next.get(name))
  const line = (sign: string, name: string, value: string | undefined): readonly string[] => (value === undefined ? [] : [`  ${sign} ${name}: ${value}`])
  return names.flatMap((name) => [...line('-', name, old.get(name)), ...line('+', name, next.get(name))])
}
