import type { DescField, DescMessage } from '@bufbuild/protobuf'
import { ScalarType } from '@bufbuild/protobuf'
import type { MethodRow } from '../../../../src/base/schema/method.ts'
import { caseName } from '../cases/method-case.ts'
import { camel } from './descriptors.ts'
import type { WireMethod } from './wire-advisories.ts'

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
  /** The message of the field, if it has one: its descriptor, or its name in the table. */
  readonly inner: DescMessage | string | undefined
}

function fieldOf(field: DescField): WireField {
  const { number, name, jsonName, oneof } = field
  const base = typeOf(field)
  const type = field.fieldKind === 'list' ? `[]${base}` : field.fieldKind === 'map' ? `{${scalars[field.mapKey] ?? ''}:${base}}` : base
  return { text: `${number} ${jsonName} ${type}${oneof === undefined ? '' : `|${oneof.name}`}`, name, inner: base === 'message' ? field.message : undefined }
}

function wireFieldsOf(table: Table, name: string): WireField[] {
  const fields = table[name] ?? ''
  return (fields === '' ? [] : fields.split(', ')).map((field) => {
    const [number = '', names = '', type = ''] = field.split(' ')
    const [own = '', jsonName = camel(own)] = names.split('=')
    const [whole = '', oneof = ''] = type.split('|')
    const base = whole.replace('[]', '').replace(/^\{\w+:(.*)\}$/, '$1')
    const inner = base in table ? base : undefined
    // The schema has no oneof for an optional field.
    const shown = oneof.startsWith('_') ? whole : type
    return { text: `${number} ${jsonName} ${inner === undefined ? shown : shown.replace(base, 'message')}`, name: own, inner }
  })
}

/** The table to compare with, and the pairs of messages that were compared. */
export interface Comparison {
  readonly table: Table
  readonly compared: Set<string>
}

/** Compares a message of the schema with one of the table, and the messages in it. Yields each difference. */
export function* differences(desc: DescMessage, wire: string, comparison: Comparison): Generator<string> {
  const { table, compared } = comparison
  if (compared.has(`${desc.typeName} ${wire}`)) return
  compared.add(`${desc.typeName} ${wire}`)
  const [served, expected] = [desc.fields.map(fieldOf), wireFieldsOf(table, wire)]
  for (const { text } of served) if (expected.every((field) => field.text !== text)) yield `${wire}: not in the contract: ${text}`
  for (const { text } of expected) if (served.every((field) => field.text !== text)) yield `${wire}: missing: ${text}`
  for (const { name, inner } of expected) {
    const found = desc.fields.find((field) => field.name === name)?.message
    if (typeof inner === 'string' && found !== undefined && wellKnown[found.typeName] === undefined) yield* differences(found, inner, comparison)
  }
}

/** Compares a method of the schema with one of the table. Yields each difference. */
export function* methodDifferences(method: MethodRow, wire: WireMethod, comparison: Comparison): Generator<string> {
  const routes = method.http.map(({ verb, template }) => `${verb} ${template}`)
  if (wire.http !== undefined && !routes.includes(wire.http)) yield `${caseName(method)}: route ${routes.join(' ; ')}`
  if (method.http[0]?.body !== (wire.body ?? '')) yield `${caseName(method)}: body ${method.http[0]?.body ?? ''}`
  yield* differences(method.input, wire.input, comparison)
  yield* differences(method.output, wire.output, comparison)
}
