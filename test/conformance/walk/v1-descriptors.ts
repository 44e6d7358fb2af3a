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
 * The messages of version 1, with the descriptors of their public clients. They are written by hand, independent of the schema and of the generated code.
 * - `s` is a text, `b` a flag, `i` a 32-bit number, `ts` a time.
 * - `[]` is a list. `{s}` and `{i}` are maps from texts. `|x` is a member of the oneof `x`.
 * - `a=b` is a field whose JSON name is `b`.
 * - Any other name is a message of this table.
 */
const messages: Readonly<Record<string, string>> = {
  Group: '1 id s, 2 name s, 3 description s, 4 resource_limits {i}, 5 verified b, 6 kind i, 7 status i',
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
  SyncConfig: '1 source s, 2 unique_tags b, 3 expiration ts, 4 google s, 5 amazon s, 6 azure s, 7 sync_apks b, 8 apko_overlay s, 9 grace_period b',
  Certificate: '1 name s, 2 content s',
  Certificates: '1 additional []Certificate, 2 providers []s',
  CustomOverlay: '2 environment {s}, 3 annotations {s}, 15 certificates Certificates',
  Repo: '1 id s, 2 name s, 3 catalog_tier i, 4 bundles []s, 5 readme s, 6 sync_config=sync_config SyncConfig, 7 custom_overlay CustomOverlay, 8 aliases []s, 9 create_time ts, 10 active_tags []s, 11 description s',
  CreateRepoRequest: '1 parent_id s, 2 repo Repo, 3 prevent_existing b',
  ListReposRequest: '1 uidp UIDPFilter, 2 name s, 3 id s',
  RepoList: '1 items []Repo',
  Tag: '1 id s, 2 name s, 3 digest s, 4 last_updated ts, 5 deprecated b, 6 bundles []s',
  CreateTagRequest: '1 repo_id s, 2 tag Tag',
  ListTagsRequest: '1 uidp UIDPFilter, 2 name s, 3 updated_since ts, 6 exclude_referrers b, 7 exclude_dates b, 8 exclude_epochs b, 9 id s, 10 digest s',
  TagList: '1 items []Tag',
  Subscription: '1 id s, 2 sink s',
  CreateSubscriptionRequest: '1 parent_id s, 2 subscription Subscription',
  ListSubscriptionsRequest: '1 id s, 2 uidp UIDPFilter',
  SubscriptionList: '1 items []Subscription',
  ClaimMatch:
    '1 issuer s|iss, 2 issuer_pattern s|iss, 3 subject s|sub, 4 subject_pattern s|sub, 5 audience s|aud, 6 audience_pattern s|aud, 7 claims {s}, 8 claim_patterns {s}',
  StaticKeys: '1 issuer s, 2 subject s, 4 issuer_keys s, 5 expiration ts, 6 audiences []s',
  AWSIdentity: '1 aws_account s, 3 arn s|aws_arn, 4 arn_pattern s|aws_arn, 5 user_id s|aws_user_id, 6 user_id_pattern s|aws_user_id',
  Identity:
    '1 id s, 2 name s, 3 description s, 4 created_at ts, 5 updated_at ts, 9 last_seen ts, 10 claim_match ClaimMatch|relationship, 11 static StaticKeys|relationship, 12 service_principal i|relationship, 13 aws_identity AWSIdentity|relationship',
  CreateIdentityRequest: '1 parent_id s, 2 identity Identity',
  ListIdentitiesRequest: '1 uidp UIDPFilter, 2 id s',
  LookupIdentityRequest: '1 issuer s, 2 subject s',
  IdentityList: '1 items []Identity',
  CreateRoleRequest: '1 parent_id s, 2 role Role',
  ListRolesRequest: '1 id s, 2 name s, 3 parent s, 4 uidp UIDPFilter',
  RoleList: '1 items []Role',
  RoleBinding: '1 id s, 2 identity s, 3 group s, 4 role s',
  CreateRoleBindingRequest: '1 parent s, 2 role_binding RoleBinding',
  ListRoleBindingsRequest: '1 id s, 2 uidp UIDPFilter',
  Binding:
    '1 id s, 2 group Group, 3 identity s, 4 role Role, 5 email s, 6 claim_match_issuer s, 7 claim_match_subject s, 8 created_at ts, 9 email_unverified s',
  RoleBindingList: '1 items []Binding',
}

const scalars: Readonly<Record<string, FieldDescriptorProto_Type>> = {
  s: FieldDescriptorProto_Type.STRING,
  b: FieldDescriptorProto_Type.BOOL,
  i: FieldDescriptorProto_Type.INT32,
  bytes: FieldDescriptorProto_Type.BYTES,
}

function camel(name: string): string {
  return name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

function entryName(field: string): string {
  return `${camel(`_${field}`)}Entry`
}

/** Returns the name of the type of a field that is no scalar. */
function typeNameOf(inner: string, message: string): string {
  return inner === 'ts' ? '.google.protobuf.Timestamp' : `.v1.${inner.endsWith('Entry') ? `${message}.` : ''}${inner}`
}

/** Returns a field of `message`. `oneofs` are the names of the oneofs of the message. */
function fieldOf(text: string, message = '', oneofs: readonly string[] = []): FieldDescriptorProto {
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
    type: scalar ?? FieldDescriptorProto_Type.MESSAGE,
    ...(scalar === undefined ? { typeName: typeNameOf(inner, message) } : {}),
  })
}

function messageOf([name, fields]: readonly [string, string]): DescriptorProto {
  const texts = fields === '' ? [] : fields.split(', ')
  const oneofs = [...new Set(texts.flatMap((text) => /\|(\w+)$/.exec(text)?.[1] ?? []))]
  const nestedType = texts.flatMap((text) => {
    const [, field = '', value = ''] = /^\d+ (\w+) \{(\w)\}$/.exec(text) ?? []
    return field === '' ? [] : [{ name: entryName(field), field: [fieldOf('1 key s'), fieldOf(`2 value ${value}`)], options: { mapEntry: true } }]
  })
  const field = texts.map((text) => fieldOf(text, name, oneofs))
  return create(DescriptorProtoSchema, { name, field, nestedType, oneofDecl: oneofs.map((oneof) => ({ name: oneof })) })
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
