import type { JsonObject } from '@bufbuild/protobuf'
import { makeMember, roleUid } from '../../../support/test-server.ts'
import { inCreate, inUpdate, longUid, type BadField } from '../bad-fields.ts'
import type { BadInput, MethodCase } from './method-case.ts'
import { made, makeRole, missingSibling, plainCapability, type World } from '../world.ts'

const badBinding: readonly BadField[] = [
  { what: 'an identity that is no uid', breaks: ['identity_uid:string.pattern'], set: { identityUid: 'foreign-name' } },
  { what: 'an identity longer than any uid', breaks: ['identity_uid:string.max_len'], set: { identityUid: longUid } },
  { what: 'a role that is no uid', breaks: ['role_uid:string.pattern'], set: { roleUid: 'viewer' } },
  { what: 'a role longer than any uid', breaks: ['role_uid:string.max_len'], set: { roleUid: longUid } },
  { what: 'an empty identity', set: { identityUid: '' }, fields: ['identity_uid'] },
  { what: 'an empty role', set: { roleUid: '' }, fields: ['role_uid'] },
  { what: 'a number for an identity', only: 'rest', set: { identityUid: 7 }, fields: ['identity_uid'] },
  { what: 'an object for a role', only: 'rest', set: { roleUid: { uid: 'x' } }, fields: ['role_uid'] },
  { what: 'a role that grants more than the caller holds', set: { roleUid: roleUid('owner') }, code: 7 },
]

/** References that are missing or not permitted here, which get the same answer. */
function badReferences(bound: (valid: JsonObject, change: JsonObject) => JsonObject): BadInput[] {
  const identity = async (valid: JsonObject, uid: Promise<string> | string): Promise<JsonObject> => bound(valid, { identityUid: await uid })
  const role = async (valid: JsonObject, uid: Promise<string> | string): Promise<JsonObject> => bound(valid, { roleUid: await uid })
  const memberOf = async (world: World, group: string): Promise<string> => (await makeMember(world.server, group)).uid
  return [
    { what: 'an identity that is missing', request: (valid, world) => identity(valid, missingSibling(world.owner)), fields: ['identity_uid'] },
    { what: 'an identity of another tenant', request: (valid, world) => identity(valid, world.other.owner), fields: ['identity_uid'] },
    { what: 'an identity of a subgroup', request: (valid, world) => identity(valid, memberOf(world, world.subgroup)), fields: ['identity_uid'] },
    { what: 'a group for an identity', request: (valid, world) => identity(valid, world.subgroup), fields: ['identity_uid'] },
    { what: 'a role that is missing', request: (valid, world) => role(valid, missingSibling(world.plainRole)), fields: ['role_uid'] },
    {
      what: 'a role of another tenant',
      request: (valid, world) => role(valid, makeRole(world.server, world.other.group, [plainCapability])),
      fields: ['role_uid'],
    },
    { what: 'a role of a subgroup', request: (valid, world) => role(valid, makeRole(world.server, world.subgroup, [plainCapability])), fields: ['role_uid'] },
  ]
}

async function freshPair(world: World): Promise<{ identityUid: string; roleUid: string }> {
  return { identityUid: (await makeMember(world.server, world.group)).uid, roleUid: world.plainRole }
}

async function newBinding(world: World): Promise<string> {
  return made(world, 'CreateRoleBinding', { parent: world.group, roleBinding: await freshPair(world) })
}

/** The first item of a batch with something changed. */
function item(valid: JsonObject, change: JsonObject): JsonObject {
  const [first] = valid['requests'] as JsonObject[] // the valid batch below
  return { ...valid, requests: [{ ...first, roleBinding: { ...(first?.['roleBinding'] as JsonObject), ...change } }] }
}

function inItem(what: string, breaks: string, change: JsonObject): BadInput {
  const field = `requests.role_binding.${breaks.slice(0, breaks.indexOf(':'))}`
  return { what, breaks: [`requests.role_binding.${breaks}`], request: (valid) => item(valid, change), fields: [field] }
}

const badBatch: readonly BadInput[] = [
  { what: 'no item', breaks: ['requests:required'], request: ({ parent = '' }) => ({ parent, requests: [] }), fields: ['requests'] },
  {
    what: 'more items than 25',
    breaks: ['requests:repeated.max_items'],
    request: ({ parent = '', requests }) => ({ parent, requests: Array.from({ length: 26 }, () => (requests as JsonObject[])[0] ?? {}) }),
    fields: ['requests'],
  },
  {
    what: 'an item without a binding',
    breaks: ['requests.role_binding:required'],
    request: ({ parent = '' }) => ({ parent, requests: [{}] }),
    fields: ['requests.role_binding'],
  },
  inItem('an identity that is no uid', 'identity_uid:string.pattern', { identityUid: 'foreign-name' }),
  inItem('an identity longer than any uid', 'identity_uid:string.max_len', { identityUid: longUid }),
  inItem('a role that is no uid', 'role_uid:string.pattern', { roleUid: 'viewer' }),
  inItem('a role longer than any uid', 'role_uid:string.max_len', { roleUid: longUid }),
  { what: 'a common role that is no uid', breaks: ['role_uid:string.pattern'], request: (valid) => ({ ...valid, roleUid: 'viewer' }), fields: ['role_uid'] },
  {
    what: 'a common role longer than any uid',
    breaks: ['role_uid:string.max_len'],
    request: (valid) => ({ ...valid, roleUid: longUid }),
    fields: ['role_uid'],
  },
  {
    what: 'an item with a role other than the common one',
    request: (valid) => ({ ...valid, roleUid: roleUid('viewer') }),
    fields: ['requests.role_binding.role_uid'],
  },
  {
    what: 'an item with another parent',
    request: (valid, world) => ({ ...valid, requests: (valid['requests'] as JsonObject[]).map((one) => ({ ...one, parent: world.subgroup })) }),
    fields: ['requests.parent'],
  },
  { what: 'an item without any role', request: (valid) => item(valid, { roleUid: '' }), fields: ['requests.role_binding.role_uid'] },
  { what: 'a text for the list of items', only: 'rest', request: (valid) => ({ ...valid, requests: 'all' }), fields: ['requests'] },
  {
    what: 'a good item before a bad one',
    request: async (valid, world) => ({
      ...valid,
      requests: [...(valid['requests'] as JsonObject[]), { roleBinding: { ...(await freshPair(world)), identityUid: missingSibling(world.owner) } }],
    }),
    fields: ['requests.role_binding.identity_uid'],
  },
  ...badReferences(item).map((bad) => ({ ...bad, fields: (bad.fields ?? []).map((field) => `requests.role_binding.${field}`) })),
]

/** RoleBindingsService. */
export const roleBindingCases: Readonly<Record<string, MethodCase>> = {
  'RoleBindingsService/GetRoleBinding': { request: async (world): Promise<JsonObject> => ({ uid: await newBinding(world) }), badInputs: [] },
  'RoleBindingsService/DeleteRoleBinding': { request: async (world) => ({ uid: await newBinding(world) }), badInputs: [] },
  'RoleBindingsService/ListRoleBindings': {
    request: (world) => ({ uidp: { descendantsOf: world.group }, orderBy: 'created_at desc', pageSize: 200 }),
    list: {
      item: (world, parent) => makeMember(world.server, parent, { role: 'viewer' }),
      filters: (world) => [{ identity: world.owner }, { group: world.group }, { role: roleUid('owner'), group: world.group }],
    },
    badInputs: ['identity', 'group', 'role'].map((field) => ({
      what: `a filter by ${field} that is too long`,
      breaks: [`${field}:string.max_len`],
      request: (valid) => ({ ...valid, [field]: longUid }),
      fields: [field],
    })),
  },
  'RoleBindingsService/CreateRoleBinding': {
    request: async (world) => ({ parent: world.group, roleBinding: await freshPair(world) }),
    grants: [plainCapability],
    badInputs: [
      { what: 'no binding at all', breaks: ['role_binding:required'], request: ({ parent = '' }) => ({ parent }), fields: ['identity_uid', 'role_uid'] },
      { what: 'a binding that is there already', request: (valid, world) => again(valid, world), code: 6 },
      ...badReferences((valid, change) => ({ ...valid, roleBinding: { ...(valid['roleBinding'] as JsonObject), ...change } })),
      ...inCreate('role_binding', badBinding),
    ],
  },
  'RoleBindingsService/UpdateRoleBinding': {
    request: async (world) => ({ roleBinding: { uid: await newBinding(world), roleUid: await makeRole(world.server, world.group, [plainCapability]) } }),
    grants: [plainCapability],
    badInputs: [
      ...badReferences(({ roleBinding }, change) => ({ roleBinding: { uid: (roleBinding as JsonObject)['uid'] ?? '', ...change } })),
      ...inUpdate('role_binding', badBinding),
    ],
  },
  'RoleBindingsService/BatchCreateRoleBindings': {
    request: async (world) => ({ parent: world.group, requests: [{ roleBinding: await freshPair(world) }] }),
    grants: [plainCapability],
    badInputs: badBatch,
  },
}

/** Returns a create request for an existing binding: creates it for another identity first. */
async function again(valid: JsonObject, world: World): Promise<JsonObject> {
  const pair = await freshPair(world)
  await made(world, 'CreateRoleBinding', { parent: world.group, roleBinding: pair })
  return { ...valid, roleBinding: pair }
}
