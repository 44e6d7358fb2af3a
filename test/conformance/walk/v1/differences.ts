import type { DescEnum, DescField, DescMessage } from '@bufbuild/protobuf'
import { ScalarType } from '@bufbuild/protobuf'
import type { MethodRow } from '../../../../src/base/schema/method.ts'
import { caseName } from '../cases/method-case.ts'
import { camel } from './descriptors.ts'
import type { WireMethod } from './wire-advisories.ts'
import type { WireEnums } from './wire-enums.ts'

const scalars: Readonly<Partial<Record<ScalarType, string>>> = {
  [ScalarType.STRING]: 's',
  [ScalarType.BOOL]: 'b',
  [ScalarType.INT32]: 'i',
  [ScalarType.INT64]: 'l',
  [ScalarType.BYTES]: 'bytes',
}

const wellKnown: Readonly<Record<string, string>> = {
  'google.protobuf.Timestamp': 'ts',
  'google.protobuf.Duration': 'dur',
  'google.protobuf.FieldMask': 'mask',
}

/** A table of messages, see `wireMessages`. */
type Table = Readonly<Record<string, string>>

/** Returns the type of one value of a field. For another message it is `message`. */
function typeOf({ enum: desc, message, scalar }: Pick<DescField, 'enum' | 'message' | 'scalar'>): string {
  if (desc !== undefined) return 'e'
  if (message !== undefined) return wellKnown[message.typeName] ?? 'message'
  return scalars[scalar ?? ScalarType.STRING] ?? 'unknown'
}

/** A field in the form of the table. The types of other messages are compared on their own. */
interface WireField {
  readonly text: string
  readonly name: string
  /** The message of the field, if it has one: its descriptor, or its name in the table. Also the name of an enum. */
  readonly inner: DescMessage | string | undefined
}

function fieldOf(field: DescField): WireField {
  const { number, name, jsonName, oneof } = field
  const base = typeOf(field)
  const type = field.fieldKind === 'list' ? `[]${base}` : field.fieldKind === 'map' ? `{${scalars[field.mapKey] ?? ''}:${base}}` : base
  return { text: `${number} ${jsonName} ${type}${oneof === undefined ? '' : `|${oneof.name}`}`, name, inner: base === 'message' ? field.message : undefined }
}

function wireFieldsOf({ table, enums }: Comparison, name: string): WireField[] {
  const fields = table[name] ?? ''
  return (fields === '' ? [] : fields.split(', ')).map((field) => {
    const [number = '', names = '', type = ''] = field.split(' ')
    const [own = '', jsonName = camel(own)] = names.split('=')
    const [whole = '', oneof = ''] = type.split('|')
    const base = whole.replace('[]', '').replace(/^\{\w+:(.*)\}$/, '$1')
    const inner = base in table ? base : undefined
    // The schema has no oneof for an optional field.
    const shown = oneof.startsWith('_') ? whole : type
    const general = base in enums ? 'e' : inner === undefined ? base : 'message'
    return { text: `${number} ${jsonName} ${shown.replace(base, general)}`, name: own, inner: base in enums ? base : inner }
  })
}

/** The tables to compare with, and the pairs of messages that were compared. */
export interface Comparison {
  readonly table: Table
  readonly enums: WireEnums
  readonly compared: Set<string>
}

/** Compares the names and numbers of an enum of the schema with the table. Yields each difference. */
function* enumDifferences(desc: DescEnum, wire: string, { enums, compared }: Comparison): Generator<string> {
  compared.add(`${desc.typeName} ${wire}`)
  const served = desc.values.map(({ name, number }) => `${name} ${number}`)
  const expected = (enums[wire] ?? '').split(', ')
  for (const value of served) if (!expected.includes(value)) yield `${wire}: not in the contract: ${value}`
  for (const value of expected) if (!served.includes(value)) yield `${wire}: missing: ${value}`
}

/** Compares a message of the schema with one of the table, and the messages in it. Yields each difference. */
export function* differences(desc: DescMessage, wire: string, comparison: Comparison): Generator<string> {
  const { compared, enums } = comparison
  if (compared.has(`${desc.typeName} ${wire}`)) return
  compared.add(`${desc.typeName} ${wire}`)
  const [served, expected] = [desc.fields.map(fieldOf), wireFieldsOf(comparison, wire)]
  for (const { text } of served) if (expected.every((field) => field.text !== text)) yield `${wire}: not in the contract: ${text}`
  for (const { text } of expected) if (served.every((field) => field.text !== text)) yield `${wire}: missing: ${text}`
  for (const { name, inner } of expected) {
    const field = desc.fields.find((one) => one.name === name)
    if (typeof inner !== 'string') continue
    if (inner in enums) {
      if (field?.enum !== undefined && !compared.has(`${field.enum.typeName} ${inner}`)) yield* enumDifferences(field.enum, inner, comparison)
    } else if (field?.message !== undefined && wellKnown[field.message.typeName] === undefined) yield* differences(field.message, inner, comparison)
  }
}

/** Returns the name of a method of version 1 in its table. */
export function wireName(method: MethodRow): string {
  return caseName(method).replace(/^v1\./, '')
}

/** Compares a method of the schema with one of the table. Yields each difference. */
export function* methodDifferences(method: MethodRow, wire: WireMethod, comparison: Comparison): Generator<string> {
  const routes = method.http.map(({ verb, template }) => `${verb} ${template}`)
  if (wire.http !== undefined && !routes.includes(wire.http)) yield `${caseName(method)}: route ${routes.join(' ; ')}`
  if (method.http[0]?.body !== (wire.body ?? '')) yield `${caseName(method)}: body ${method.http[0]?.body ?? ''}`
  yield* differences(method.input, wire.input, comparison)
  yield* differences(method.output, wire.output, comparison)
}
