import { create, createFileRegistry, type DescMessage } from '@bufbuild/protobuf'
import {
  DescriptorProtoSchema,
  EnumDescriptorProtoSchema,
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FieldDescriptorProtoSchema,
  file_google_protobuf_duration,
  file_google_protobuf_field_mask,
  file_google_protobuf_timestamp,
  FileDescriptorProtoSchema,
  type DescriptorProto,
  type EnumDescriptorProto,
  type FieldDescriptorProto,
} from '@bufbuild/protobuf/wkt'
import { v1Enums, type WireEnums } from './wire-enums.ts'
import { wireMessages } from './wire-v1.ts'

const scalars: Readonly<Record<string, FieldDescriptorProto_Type>> = {
  s: FieldDescriptorProto_Type.STRING,
  b: FieldDescriptorProto_Type.BOOL,
  i: FieldDescriptorProto_Type.INT32,
  l: FieldDescriptorProto_Type.INT64,
  // An enum without a table: its numbers are those of an int32.
  e: FieldDescriptorProto_Type.INT32,
  bytes: FieldDescriptorProto_Type.BYTES,
}

/** Types of Google, by their names in the table. */
const wellKnown: Readonly<Record<string, string>> = {
  ts: '.google.protobuf.Timestamp',
  dur: '.google.protobuf.Duration',
  mask: '.google.protobuf.FieldMask',
}

/** `create_time` -> `createTime` */
export function camel(name: string): string {
  return name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

function entryName(field: string): string {
  return `${camel(`_${field}`)}Entry`
}

/** Returns the name of the type of a field that is no scalar. */
function typeNameOf(inner: string, message: string): string {
  return wellKnown[inner] ?? `.wire.${inner.endsWith('Entry') ? `${message}.` : ''}${inner}`
}

/** Where a field is: the name of its message, the names of the oneofs there, and the enums of the table. */
interface Surroundings {
  readonly message: string
  readonly oneofs: readonly string[]
  readonly enums: WireEnums
}

/** Returns a field. */
function fieldOf(text: string, { message, oneofs, enums }: Surroundings): FieldDescriptorProto {
  const [number, names, whole] = text.split(' ') as [string, string, string] // the form of the table
  const [name = '', jsonName = camel(name)] = names.split('=')
  const [type = '', oneof] = whole.split('|')
  const isMap = type.startsWith('{')
  const inner = isMap ? entryName(name) : type.replace('[]', '')
  const scalar = scalars[inner]
  return create(FieldDescriptorProtoSchema, {
    name,
    jsonName,
    number: Number(number),
    ...(oneof === undefined ? {} : { oneofIndex: oneofs.indexOf(oneof) }),
    label: isMap || type.startsWith('[]') ? FieldDescriptorProto_Label.REPEATED : FieldDescriptorProto_Label.OPTIONAL,
    type: scalar ?? (inner in enums ? FieldDescriptorProto_Type.ENUM : FieldDescriptorProto_Type.MESSAGE),
    ...(scalar === undefined ? { typeName: typeNameOf(inner, message) } : {}),
  })
}

function messageOf([name, fields]: readonly [string, string], enums: WireEnums): DescriptorProto {
  const texts = fields === '' ? [] : fields.split(', ')
  const oneofs = [...new Set(texts.flatMap((text) => /\|(\w+)$/.exec(text)?.[1] ?? []))]
  const nestedType = texts.flatMap((text) => {
    const [, field = '', key = '', value = ''] = /^\d+ (\w+) \{(\w+):(\w+)\}$/.exec(text) ?? []
    const members = [`1 key ${key}`, `2 value ${value}`].map((text) => fieldOf(text, { message: '', oneofs: [], enums }))
    return field === '' ? [] : [{ name: entryName(field), field: members, options: { mapEntry: true } }]
  })
  const field = texts.map((text) => fieldOf(text, { message: name, oneofs, enums }))
  return create(DescriptorProtoSchema, { name, field, nestedType, oneofDecl: oneofs.map((oneof) => ({ name: oneof })) })
}

function enumOf([name, values]: readonly [string, string]): EnumDescriptorProto {
  const value = values.split(', ').map((text) => {
    const [called = '', number] = text.split(' ')
    return { name: called, number: Number(number) }
  })
  return create(EnumDescriptorProtoSchema, { name, value })
}

const imported = [file_google_protobuf_duration, file_google_protobuf_field_mask, file_google_protobuf_timestamp].map(({ proto }) => proto)

/** Returns a function that returns the descriptor of a message of the table by its name. */
export function messagesOf(table: Readonly<Record<string, string>>, enums: WireEnums): (name: string) => DescMessage {
  const file = create(FileDescriptorProtoSchema, {
    name: 'wire.proto',
    package: 'wire',
    syntax: 'proto3',
    dependency: imported.map(({ name }) => name),
    messageType: Object.entries(table).map((entry) => messageOf(entry, enums)),
    enumType: Object.entries(enums).map(enumOf),
  })
  const files = createFileRegistry(file, (name) => imported.find((one) => one.name === name))
  return (name) => {
    const found = files.getMessage(`wire.${name}`)
    if (found === undefined) throw new Error(`no message ${name}`)
    return found
  }
}

/** Returns the descriptor of the message of version 1 with this name. */
export const v1Message = messagesOf(wireMessages, v1Enums)
