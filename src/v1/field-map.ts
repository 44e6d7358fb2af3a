import { create, type DescField, type DescMessage, type Message } from '@bufbuild/protobuf'
import { fieldAccess } from '../base/schema/field-behavior.ts'

/** Converts the value of a field between the versions. `toV2` returns undefined for a value that version 2 does not take. */
export interface FieldConverter {
  toV1(value: unknown): unknown
  toV2(value: unknown): unknown
}

/**
 * How a field of version 1 maps to version 2:
 * - the proto name of a field with the same values
 * - `to` and `by`: a proto name, and the converter of its values, or of each item in a list
 * - `read`: the field is only in answers, and is computed from the record of version 2
 * - `to` and `read`: requests set the field that `to` names, and answers compute it
 */
export type FieldRow = string | { readonly to: string; readonly by: FieldConverter } | { readonly to?: string; readonly read: (record: Message) => unknown }

/** A field that only the code of a method maps, or that no answer has. */
export const unmapped: FieldRow = { read: () => undefined }

/** The rows of the fields that select a section of a list. The list maps them itself. */
export const paging = { offset: unmapped, page: unmapped, page_size: unmapped } as const

/** The rows of a message by the proto name of each field of version 1. */
export type FieldRows = Readonly<Record<string, FieldRow>>

/** Maps messages of one type between the versions, in both directions. It is also the converter of a field with such messages. */
export interface FieldMap extends FieldConverter {
  readonly v1: DescMessage
  readonly v2: DescMessage
  /** Fields of version 1 (proto names) that are only in answers. */
  readonly computed: readonly string[]
  /** The maps of fields with messages, by the proto name in version 1. */
  readonly nested: ReadonlyMap<string, FieldMap>
  toV1(message: Message): Message
  toV2(message: Message): Message
  /** Returns the path of version 1 for a path of version 2, both in proto names: `static_keys.issuer` -> `static.issuer`. Empty for the message itself. */
  pathInV1(path: string): string
  /**
   * Returns the mask (proto names of version 2) of an update that replaces the record by this message of version 1. It has each field that clients write, also
   * if it is not set. Of a oneof it has only the member that is set. Fields in `kept` are only included if they are set.
   */
  maskOf(message: Message, kept: ReadonlySet<string>): string[]
}

type Members = Record<string, unknown>

/** Reads and writes one field of messages. Only the member of a oneof that is set has a value. */
interface FieldAccessor {
  readonly desc: DescField
  get(message: Members): unknown
  set(message: Members, value: unknown): void
}

function accessorOf(desc: DescMessage, name: string): FieldAccessor {
  const field = desc.fields.find((candidate) => candidate.name === name)
  if (field === undefined) throw new TypeError(`${desc.typeName} has no field ${name}`)
  const { localName, oneof } = field
  if (oneof === undefined) return { desc: field, get: (message) => message[localName], set: (message, value) => (message[localName] = value) }
  return {
    desc: field,
    get(message) {
      // protobuf-es keeps the set member of a oneof in this form.
      const member = message[oneof.localName] as { readonly case: string | undefined; readonly value?: unknown }
      return member.case === localName ? member.value : undefined
    },
    set: (message, value) => (message[oneof.localName] = { case: localName, value }),
  }
}

interface CompiledRow {
  readonly v1: FieldAccessor
  readonly v2: FieldAccessor
  readonly by: FieldConverter | undefined
}

function isFieldMap(by: FieldConverter | undefined): by is FieldMap {
  return by !== undefined && 'pathInV1' in by
}

/** Returns a function that converts the value of a field, or each value in its list or map. */
function convertWith(field: DescField, convert: (value: unknown) => unknown): (value: unknown) => unknown {
  // protobuf-es keeps a map as an object.
  if (field.fieldKind === 'map') return (map) => Object.fromEntries(Object.entries(map as object).map(([key, value]) => [key, convert(value)]))
  return (value) => (Array.isArray(value) ? value.map(convert) : convert(value))
}

/** True for the default of a field, which is the same as no value, and for no value. */
export function isUnset(value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return !('$typeName' in value) && Object.keys(value).length === 0
  return value === undefined || value === '' || value === 0 || value === 0n || value === false
}

/** Copies the fields of a message of one version to a new message of the other. */
function copier(rows: readonly CompiledRow[], target: DescMessage, from: 'v1' | 'v2'): (message: Message, copy?: Members) => Message {
  const to = from === 'v1' ? 'v2' : 'v1'
  const steps = rows.map((row) => {
    const { by } = row
    const convert = by === undefined ? undefined : convertWith(row.v1.desc, from === 'v1' ? (value) => by.toV2(value) : (value) => by.toV1(value))
    return { source: row[from], target: row[to], convert }
  })
  return (message) => {
    const copy = create(target)
    // Messages have a member for each field.
    const [input, output] = [message, copy]
    for (const step of steps) {
      const value = step.source.get(input)
      const converted = value === undefined || step.convert === undefined ? value : step.convert(value)
      if (converted !== undefined) step.target.set(output, converted)
    }
    return copy
  }
}

/** Compiles the rows of a message. Throws TypeError if a field does not exist, or if a field of version 1 has no row. */
export function defineMap(v1: DescMessage, v2: DescMessage, rows: FieldRows): FieldMap {
  const missing = v1.fields.find(({ name }) => rows[name] === undefined)
  if (missing !== undefined) throw new TypeError(`${v1.typeName} has no row for ${missing.name}`)
  const compiled: CompiledRow[] = []
  const computed: { readonly field: FieldAccessor; readonly read: (record: Message) => unknown }[] = []
  for (const [name, row] of Object.entries(rows)) {
    const field = accessorOf(v1, name)
    if (typeof row === 'string') compiled.push({ v1: field, v2: accessorOf(v2, row), by: undefined })
    else if ('read' in row) {
      computed.push({ field, read: row.read })
      if (row.to !== undefined) compiled.push({ v1: field, v2: accessorOf(v2, row.to), by: undefined })
    } else compiled.push({ v1: field, v2: accessorOf(v2, row.to), by: row.by })
  }
  const [toOld, toV2] = [copier(compiled, v1, 'v2'), copier(compiled, v2, 'v1')]
  const writable = compiled.filter(({ v2: { desc } }) => !fieldAccess(desc).outputOnly && desc.name !== 'uid')
  return {
    v1,
    v2,
    computed: computed.map(({ field }) => field.desc.name).filter((name) => compiled.every((row) => row.v1.desc.name !== name)),
    nested: new Map(compiled.flatMap(({ v1: { desc }, by }) => (isFieldMap(by) ? [[desc.name, by] as const] : []))),
    toV2: (message) => toV2(message),
    toV1(message) {
      const copy = toOld(message)
      for (const { field, read } of computed) {
        const value = read(message)
        if (value !== undefined) field.set(copy, value) // a message has a member for each field
      }
      return copy
    },
    pathInV1(path) {
      const [, head = '', item = '', rest = ''] = /^([^.[]*)(\[.*?\](?=\.|$))?(.*)$/s.exec(path) ?? []
      const row = compiled.find(({ v2: { desc } }) => desc.name === head)
      if (row === undefined) return path
      const inner = isFieldMap(row.by) && rest.startsWith('.') ? `.${row.by.pathInV1(rest.slice(1))}` : rest
      return `${row.v1.desc.name}${item}${inner === '.' ? '' : inner}`
    },
    maskOf(message, kept) {
      const members = message as unknown as Members // a message has a member for each field
      const isNamed = (row: CompiledRow): boolean => {
        const { desc } = row.v1
        if (desc.oneof === undefined) return !kept.has(desc.name) || !isUnset(row.v1.get(members))
        const { case: set } = members[desc.oneof.localName] as { readonly case: string | undefined } // see accessorOf
        return set === undefined ? desc.oneof.fields[0] === desc : set === desc.localName
      }
      return writable.filter(isNamed).map(({ v2: { desc } }) => desc.name)
    },
  }
}
