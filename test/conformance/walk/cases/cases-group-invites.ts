import type { JsonObject } from '@bufbuild/protobuf'
import { roleUid } from '../../../support/test-server.ts'
import { inCreate, longUid, type BadField } from '../bad-fields.ts'
import type { BadInput, MethodCase } from './method-case.ts'
import { made, makeRole, missingSibling, plainCapability, type World } from '../world.ts'

const badInvite: readonly BadField[] = [
  { what: 'no role', breaks: ['role_uid:required'], clear: ['roleUid'] },
  { what: 'a role that is no uid', breaks: ['role_uid:string.pattern'], set: { roleUid: 'viewer' } },
  { what: 'a role longer than any uid', breaks: ['role_uid:string.max_len'], set: { roleUid: longUid } },
  { what: 'a role that grants more than the caller holds', set: { roleUid: roleUid('owner') }, code: 7 },
  { what: 'an e-mail address that is none', breaks: ['email:string.email'], set: { email: 'foreign-name' } },
  { what: 'an e-mail address that is too long', breaks: ['email:string.max_len'], set: { email: `${'a'.repeat(250)}@example.com` } },
  { what: 'no ttl', breaks: ['ttl:required'], clear: ['ttl'] },
  { what: 'a ttl of nothing', breaks: ['ttl:duration.gt'], set: { ttl: '0s' } },
  { what: 'a negative ttl', set: { ttl: '-1s' }, fields: ['ttl'] },
  { what: 'a ttl of more than 365 days', breaks: ['ttl:duration.lte'], set: { ttl: '31536000.000000001s' } },
  { what: 'a number for a ttl', only: 'rest', set: { ttl: 3600 }, fields: ['ttl'] },
  { what: 'a text for single use', only: 'rest', set: { singleUse: 'once' }, fields: ['single_use'] },
]

/** Missing, foreign and misplaced roles, which get the same answer. */
const badRoles: readonly BadInput[] = (
  [
    ['that is missing', (world) => missingSibling(world.plainRole)],
    ['of another tenant', (world) => makeRole(world.server, world.other.group, [plainCapability])],
    ['of a subgroup', (world) => makeRole(world.server, world.subgroup, [plainCapability])],
    ['that is an identity', (world) => world.owner],
  ] satisfies [string, (world: World) => Promise<string> | string][]
).map(([what, uid]) => ({
  what: `a role ${what}`,
  request: async (valid, world) => ({ ...valid, groupInvite: { ...(valid['groupInvite'] as JsonObject), roleUid: await uid(world) } }),
  fields: ['role_uid'],
}))

export function newInvite(world: World, parent = world.group): Promise<string> {
  return made(world, 'CreateGroupInvite', { parent, groupInvite: { roleUid: roleUid('viewer'), ttl: '3600s' } })
}

/** GroupInvitesService. */
export const groupInviteCases: Readonly<Record<string, MethodCase>> = {
  'GroupInvitesService/GetGroupInvite': { request: async (world): Promise<JsonObject> => ({ uid: await newInvite(world) }), badInputs: [] },
  'GroupInvitesService/DeleteGroupInvite': { request: async (world) => ({ uid: await newInvite(world) }), badInputs: [] },
  'GroupInvitesService/ListGroupInvites': {
    request: (world) => ({ uidp: { descendantsOf: world.group }, orderBy: 'created_at desc', pageSize: 200 }),
    list: { item: (world, parent) => newInvite(world, parent), filters: () => [] },
    badInputs: [
      { what: 'a key id that is too long', breaks: ['key_id:string.max_len'], request: (valid) => ({ ...valid, keyId: 'a'.repeat(256) }), fields: ['key_id'] },
    ],
  },
  'GroupInvitesService/CreateGroupInvite': {
    request: (world) => ({ parent: world.group, groupInvite: { roleUid: world.plainRole, ttl: '3600s', email: 'new@example.com', singleUse: true } }),
    grants: [plainCapability],
    badInputs: [
      { what: 'no invite at all', breaks: ['group_invite:required'], request: ({ parent = '' }) => ({ parent }), fields: ['role_uid', 'ttl'] },
      ...badRoles,
      ...inCreate('group_invite', badInvite),
    ],
  },
}
