import { create, createFileRegistry, type DescMessage } from '@bufbuild/protobuf'
import {
  DescriptorProtoSchema,
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FieldDescriptorProtoSchema,
  file_google_protobuf_timestamp,
  FileDescriptorProtoSchema,
  type DescriptorProto,
  type FieldDescriptorProto,
} from '@bufbuild/protobuf/wkt'

/**
 * The messages of version 1, with the descriptors of their public clients. They are written by hand, independent of
 * the schema and of the generated code. `s` text, `b` flag, `i` 32-bit number, `bytes`, `ts` time, `[]` repeated, `{}` a map from texts to numbers; else a
 * message of this table.
 */
const messages: Readonly<Record<string, string>> = {
  Group: '1 id s, 2 name s, 3 description s, 4 resource_limits {}, 5 verified b, 6 kind i, 7 status i',
  Role: '1 id s, 2 name s, 3 description s, 4 capabilities []s',
  Held: '1 group Group, 2 role Role, 3 capabilities []s',
  Profile: '1 name s, 2 picture s, 3 given_name s, 4 family_name s',
  WhoAmI: '1 issuer s, 2 subject s, 3 audience []s, 4 expiry ts, 5 issued_at ts, 101 capabilities []Held, 102 email s, 103 profile Profile',
  RegisterRequest: '1 code s, 3 identity_id s',
  Session: '1 identity s, 2 group s',
  GetHeadlessSessionRequest: '1 code s',
  HeadlessSession: '1 ecdh_public_key bytes, 2 encrypted_idtoken bytes',
  DeleteRequest: '1 id s',
  ExchangeRequest: '1 aud []s, 2 scope s, 4 identity s, 5 cap []s, 7 identity_provider s, 8 scopes []s',
  RawToken: '1 token s, 2 refresh_token s, 3 expiry ts',
  ExchangeRefreshTokenRequest: '1 aud []s, 2 scope s, 3 cap []s, 4 scopes []s',
  TokenPair: '1 token RawToken, 2 refresh_token RawToken',
  Empty: '',
  UIDPFilter: '1 ancestors_of s, 2 descendants_of s, 3 children_of s, 4 in_root b, 5 ids []s',
  CreateGroupRequest: '1 parent s, 2 group Group',
  ListGroupsRequest: '1 id s, 2 uidp UIDPFilter, 3 name s',
  GroupList: '1 items []Group',
}

const scalars: Readonly<Record<string, FieldDescriptorProto_Type>> = {
  s: FieldDescriptorProto_Type.STRING,
  b: FieldDescriptorProto_Type.BOOL,
  i: FieldDescriptorProto_Type.INT32,
  bytes: FieldDescriptorProto_Type.BYTES,
}

function fieldOf(text: string): FieldDescriptorProto {
  const [number = '', name = '', type = ''] = text.split(' ')
  const isMap = type === '{}'
  const inner = isMap ? 'LimitsEntry' : type.replace('[]', '')
  const scalar = scalars[inner]
  return create(FieldDescriptorProtoSchema, {
    name,
    jsonName: name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
    number: Number(number),
    label: isMap || type.startsWith('[]') ? FieldDescriptorProto_Label.REPEATED : FieldDescriptorProto_Label.OPTIONAL,
    type: scalar ?? FieldDescriptorProto_Type.MESSAGE,
    ...(scalar === undefined ? { typeName: inner === 'ts' ? '.google.protobuf.Timestamp' : `.v1.${isMap ? 'Group.' : ''}${inner}` } : {}),
  })
}

function messageOf([name, fields]: readonly [string, string]): DescriptorProto {
  const list = fields === '' ? [] : fields.split(', ').map(fieldOf)
  const entry = { name: 'LimitsEntry', field: [fieldOf('1 key s'), fieldOf('2 value i')], options: { mapEntry: true } }
  return create(DescriptorProtoSchema, { name, field: list, nestedType: name === 'Group' ? [create(DescriptorProtoSchema, entry)] : [] })
}

const file = create(FileDescriptorProtoSchema, {
  name: 'v1.proto',
  package: 'v1',
  syntax: 'proto3',
  dependency: ['google/protobuf/timestamp.proto'],
  messageType: Object.entries(messages).map(messageOf),
})

const files = createFileRegistry(file, () => file_google_protobuf_timestamp.proto)

/** Returns the descriptor of the message with this name. */
export function v1Message(name: string): DescMessage {
  const found = files.getMessage(`v1.${name}`)
  if (found === undefined) throw new Error(`no message ${name}`)
  return found
}
