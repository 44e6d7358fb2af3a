import type { JsonObject } from '@bufbuild/protobuf'
import { freshName, roleUid } from '../../../support/test-server.ts'
import { inCreate, inUpdate, long, type BadField } from '../bad-fields.ts'
import type { MethodCase } from './method-case.ts'
import { makeRole, plainCapability, type World } from '../world.ts'

const badRole: readonly BadField[] = [
  { what: 'no name', breaks: ['name:required'], clear: ['name'] },
  { what: 'a name with capitals', breaks: ['name:string.pattern'], set: { name: 'Puller' } },
  { what: 'a name with a slash', breaks: ['name:string.pattern'], set: { name: 'a/b' } },
  { what: 'a name of 256 characters', breaks: ['name:string.max_len'], set: { name: long(256) } },
  { what: 'a description of 513 characters', breaks: ['description:string.max_len'], set: { description: long(513) } },
  { what: 'no capability', breaks: ['capabilities:repeated.min_items'], set: { capabilities: [] } },
  {
    what: 'more capabilities than 1000',
    breaks: ['capabilities:repeated.max_items'],
    set: { capabilities: Array.from({ length: 1001 }, () => 'CAP_IAM_GROUPS_LIST') },
  },
  { what: 'a capability whose number is unknown', breaks: ['capabilities[]:enum.defined_only'], set: { capabilities: [9999] } },
  { what: 'the capability 0', breaks: ['capabilities[]:enum.not_in'], set: { capabilities: [0] } },
  { what: 'a capability whose name is unknown', only: 'rest', set: { capabilities: ['groups.fly'] }, fields: ['capabilities'] },
  { what: 'a text for a list', only: 'rest', set: { capabilities: 'groups.list' }, fields: ['capabilities'] },
  { what: 'a capability for the platform only', set: { capabilities: ['CAP_INTERNAL'] }, fields: ['capabilities'] },
  { what: 'a capability that the caller does not hold', set: { capabilities: ['CAP_REPO_DELETE'] }, code: 7 },
]

function newRole(world: World): Promise<string> {
  return makeRole(world.server, world.group, [plainCapability])
}

/** RolesService. */
export const roleCases: Readonly<Record<string, MethodCase>> = {
  'RolesService/GetRole': { request: async (world): Promise<JsonObject> => ({ uid: await newRole(world) }), badInputs: [] },
  'RolesService/ListRoles': {
    request: (world) => ({ uidp: { descendantsOf: world.group }, orderBy: 'created_at desc', pageSize: 200 }),
    list: {
      item: (world, parent) => makeRole(world.server, parent, [plainCapability]),
      filters: (world) => [{ name: world.plainRoleName }],
    },
    badInputs: [{ what: 'a name that is too long', breaks: ['name:string.max_len'], request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] }],
  },
  'RolesService/CreateRole': {
    request: (world) => ({ parent: world.group, role: { name: freshName('made'), capabilities: ['CAP_IAM_GROUPS_LIST'] } }),
    grants: [plainCapability],
    badInputs: [
      { what: 'no role at all', breaks: ['role:required'], request: ({ parent = '' }) => ({ parent }), fields: ['name', 'capabilities'] },
      ...inCreate('role', badRole),
    ],
  },
  'RolesService/UpdateRole': {
    request: async (world) => ({ role: { uid: await newRole(world), description: 'changed' } }),
    grants: [plainCapability],
    badInputs: [
      { what: 'a built-in role', request: () => ({ role: { uid: roleUid('viewer'), description: 'mine' } }), caller: ({ token }) => token, code: 7 },
      ...inUpdate('role', badRole),
    ],
  },
  'RolesService/DeleteRole': {
    request: async (world) => ({ uid: await newRole(world) }),
    badInputs: [{ what: 'a built-in role', request: () => ({ uid: roleUid('viewer') }), caller: ({ token }) => token, code: 7 }],
  },
}
