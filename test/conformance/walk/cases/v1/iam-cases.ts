import type { JsonObject } from '@bufbuild/protobuf'
import { freshName, makeMember, makePerson, roleUid } from '../../../../support/test-server.ts'
import { long, longUid } from '../../bad-fields.ts'
import { made, makeRole, missingSibling, plainCapability, trustedIssuer, type World } from '../../world.ts'
import { callerOfDomain, prepareVerified } from '../cases-groups.ts'
import type { BadInput, MethodCase } from '../method-case.ts'

/** Bad inputs of the resource in a create (in the field `held`) or, without a field, in an update. Fields have the names of version 1. */
export function badResources(
  rows: readonly { readonly what: string; readonly set: JsonObject; readonly fields: readonly string[] }[],
  held?: string,
): BadInput[] {
  return rows.map(({ what, set, fields }) => ({
    what,
    fields,
    request: (valid) => (held === undefined ? { ...valid, ...set } : { ...valid, [held]: { ...(valid[held] as JsonObject), ...set } }), // a create has its resource
  }))
}

const badGroup = [
  { what: 'an empty name', set: { name: '' }, fields: ['name'] },
  { what: 'a name with capitals', set: { name: 'Platform' }, fields: ['name'] },
  { what: 'a description of 513 characters', set: { description: long(513) }, fields: ['description'] },
  { what: 'a kind whose number is unknown', set: { kind: 99 }, fields: ['kind'] },
]

function newGroup(world: World): Promise<string> {
  return made(world, 'CreateGroup', { parent: world.group, group: { name: freshName('group') } })
}

/** Returns an empty request, about the verified group of the caller. */
async function ofVerified(world: World): Promise<JsonObject> {
  await prepareVerified(world)
  return {}
}

/** The groups of version 1. */
const groupV1Cases: Readonly<Record<string, MethodCase>> = {
  'Groups/Create': {
    request: (world) => ({ parent: world.group, group: { name: freshName('made') } }),
    badInputs: [
      { what: 'no group at all', request: ({ parent = '' }) => ({ parent }), fields: ['name'] },
      { what: 'a parent that is too long', request: (valid) => ({ ...valid, parent: long(256) }), fields: ['parent'] },
      { what: 'no parent, for a caller who is no operator', request: ({ group = {} }) => ({ group }), code: 7 },
      { what: 'a name that a sibling has', request: ({ parent = '' }) => ({ parent, group: { name: 'team' } }), code: 6 },
      ...badResources(badGroup, 'group'),
    ],
  },
  'Groups/Update': {
    request: async (world) => ({ id: await newGroup(world), name: freshName('renamed'), description: 'changed' }),
    badInputs: [
      { what: 'a name that a sibling has', request: (valid) => ({ ...valid, name: 'team' }), code: 6 },
      { what: 'verified, by a customer', request: (valid, world) => ({ ...valid, id: world.group, verified: true, kind: 'ORG_KIND_CUSTOMER' }), code: 7 },
      ...badResources(badGroup),
    ],
  },
  'Groups/List': {
    request: (world) => ({ uidp: { descendantsOf: world.group } }),
    list: {
      item: (world, parent) => made(world, 'CreateGroup', { parent, group: { name: freshName('listed') } }),
      filters: (world) => [{ name: 'team' }, { id: world.subgroup }, { id: world.subgroup, uidp: { ids: [world.group, world.subgroup] } }],
    },
    badInputs: [{ what: 'a name that is too long', request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] }],
  },
  'Groups/LookupGroup': { request: ofVerified, caller: callerOfDomain, outsider: { code: 5 }, badInputs: [] },
  'Groups/RequestGroupAccess': {
    request: async (world) => ({ groupId: await prepareVerified(world) }),
    caller: callerOfDomain,
    outsider: { code: 5 },
    badInputs: [
      { what: 'no group', only: 'grpc', request: () => ({}), fields: ['group_id'] },
      { what: 'a group of another domain', request: (_, world) => ({ groupId: world.other.group }), code: 5 },
    ],
  },
  'Groups/CheckEligibility': { request: ofVerified, caller: callerOfDomain, outsider: { code: 0, body: { eligible: false } }, badInputs: [] },
  'Groups/Delete': { request: async (world) => ({ id: await newGroup(world) }), badInputs: [] },
}

const badRole = [
  { what: 'an empty name', set: { name: '' }, fields: ['name'] },
  { what: 'a name with a slash', set: { name: 'a/b' }, fields: ['name'] },
  { what: 'no capability', set: { capabilities: [] }, fields: ['capabilities'] },
  { what: 'an unknown capability', set: { capabilities: ['groups.fly'] }, fields: ['capabilities'] },
  { what: 'a capability for the platform only', set: { capabilities: ['internal'] }, fields: ['capabilities'] },
]

function newRole(world: World): Promise<string> {
  return makeRole(world.server, world.group, [plainCapability])
}

/** The roles of version 1. */
const roleV1Cases: Readonly<Record<string, MethodCase>> = {
  'Roles/Create': {
    request: (world) => ({ parentId: world.group, role: { name: freshName('made'), capabilities: [plainCapability] } }),
    grants: [plainCapability],
    badInputs: [
      { what: 'no role at all', request: ({ parentId = '' }) => ({ parentId }), fields: ['name', 'capabilities'] },
      {
        what: 'a capability that the caller does not hold',
        request: (valid) => ({ ...valid, role: { name: 'strong', capabilities: ['repo.delete'] } }),
        code: 7,
      },
      ...badResources(badRole, 'role'),
    ],
  },
  'Roles/Update': {
    request: async (world) => ({ id: await newRole(world), name: freshName('renamed'), capabilities: [plainCapability] }),
    grants: [plainCapability],
    badInputs: [
      { what: 'a built-in role', request: (valid) => ({ ...valid, id: roleUid('viewer') }), caller: ({ token }) => token, code: 7 },
      ...badResources(badRole),
    ],
  },
  'Roles/List': {
    request: (world) => ({ uidp: { descendantsOf: world.group } }),
    list: {
      item: (world, parent) => makeRole(world.server, parent, [plainCapability]),
      filters: (world) => [{ name: world.plainRoleName }, { id: world.plainRole }, { parent: world.group }],
    },
    badInputs: [{ what: 'a name that is too long', request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] }],
  },
  'Roles/Delete': {
    request: async (world) => ({ id: await newRole(world) }),
    badInputs: [{ what: 'a built-in role', request: () => ({ id: roleUid('viewer') }), caller: ({ token }) => token, code: 7 }],
  },
}

async function freshPair(world: World): Promise<{ identity: string; role: string }> {
  return { identity: (await makeMember(world.server, world.group)).uid, role: world.plainRole }
}

async function newBinding(world: World, group = world.group): Promise<string> {
  const identityUid = (await makeMember(world.server, group)).uid
  return made(world, 'CreateRoleBinding', { parent: group, roleBinding: { identityUid, roleUid: roleUid('viewer') } })
}

const badBinding = [
  { what: 'an identity that is no uid', set: { identity: 'foreign-name' }, fields: ['identity'] },
  { what: 'an empty identity', set: { identity: '' }, fields: ['identity'] },
  { what: 'an empty role', set: { role: '' }, fields: ['role'] },
  { what: 'a role longer than any uid', set: { role: longUid }, fields: ['role'] },
]

/** References that are missing, which get the same answer as those of other tenants. */
const missingReferences: readonly BadInput[] = [
  {
    what: 'an identity that is missing',
    request: (valid, world) =>
      valid['roleBinding'] === undefined ? { ...valid, identity: missingSibling(world.owner) } : inBinding(valid, { identity: missingSibling(world.owner) }),
    fields: ['identity'],
  },
  {
    what: 'an identity of another tenant',
    request: (valid, world) =>
      valid['roleBinding'] === undefined ? { ...valid, identity: world.other.owner } : inBinding(valid, { identity: world.other.owner }),
    fields: ['identity'],
  },
]

function inBinding(valid: JsonObject, change: JsonObject): JsonObject {
  return { ...valid, roleBinding: { ...(valid['roleBinding'] as JsonObject), ...change } } // a create has its resource
}

/** The role bindings of version 1. */
const roleBindingV1Cases: Readonly<Record<string, MethodCase>> = {
  'RoleBindings/Create': {
    request: async (world) => ({ parent: world.group, roleBinding: await freshPair(world) }),
    grants: [plainCapability],
    badInputs: [
      { what: 'no binding at all', request: ({ parent = '' }) => ({ parent }), fields: ['identity', 'role'] },
      { what: 'a role that grants more than the caller holds', request: (valid) => inBinding(valid, { role: roleUid('owner') }), code: 7 },
      ...missingReferences,
      ...badResources(badBinding, 'roleBinding'),
    ],
  },
  'RoleBindings/Update': {
    request: async (world) => ({ id: await newBinding(world), ...(await freshPair(world)) }),
    grants: [plainCapability],
    badInputs: [...missingReferences, ...badResources(badBinding)],
  },
  'RoleBindings/List': {
    request: (world) => ({ uidp: { descendantsOf: world.group } }),
    list: { item: newBinding, filters: (world) => [{ uidp: { childrenOf: world.group } }] },
    badInputs: [],
  },
  'RoleBindings/Delete': { request: async (world) => ({ id: await newBinding(world) }), badInputs: [] },
}

const claimMatch = { issuer: 'https://issuer.example', subject: 'foreign-name' }
const keys = { issuer: 'https://issuer.example', subject: 'foreign-name', issuerKeys: '{"keys":[]}' }

const badIdentity = [
  { what: 'an empty name', set: { name: '' }, fields: ['name'] },
  { what: 'a claim match without a subject', set: { claimMatch: { issuer: 'https://issuer.example' } }, fields: ['claim_match.subject'] },
  { what: 'an issuer pattern that does not compile', set: { claimMatch: { issuerPattern: '(', subject: 'x' } }, fields: ['claim_match.issuer_pattern'] },
]

const badStaticKeys = [
  { what: 'keys that are no JSON', set: { static: { ...keys, issuerKeys: 'keys' } }, fields: ['static.issuer_keys'] },
  { what: 'two audiences', set: { static: { ...keys, audiences: ['one', 'two'] } }, fields: ['static.audiences'] },
  { what: 'static keys without keys', set: { static: { ...keys, issuerKeys: '' } }, fields: ['static.issuer_keys'] },
]

function newIdentity(world: World, parent = world.group): Promise<string> {
  return made(world, 'CreateIdentity', { parent, identity: { name: freshName('identity'), claimMatch } })
}

/** Returns these faults of a request whose identity has no other relationship. */
function withoutMatch(bad: readonly BadInput[]): BadInput[] {
  return bad.map((one) => ({
    ...one,
    request: ({ claimMatch: _, identity, ...valid }, world) => {
      const bare = identity === undefined ? valid : { ...valid, identity: { name: freshName('static') } }
      return one.request?.(bare, world) ?? bare
    },
  }))
}

/** The identities of version 1. */
const identityV1Cases: Readonly<Record<string, MethodCase>> = {
  'Identities/Create': {
    request: (world) => ({ parentId: world.group, identity: { name: freshName('made'), claimMatch } }),
    badInputs: [
      { what: 'no identity at all', request: ({ parentId = '' }) => ({ parentId }), fields: ['name', 'claim_match'] },
      ...badResources(badIdentity, 'identity'),
      ...withoutMatch(
        badResources(
          [
            ...badStaticKeys,
            { what: 'keys that live longer than 30 days', set: { static: { ...keys, expiration: '2999-01-01T00:00:00.000Z' } }, fields: ['static.expiration'] },
          ],
          'identity',
        ),
      ),
    ],
  },
  'Identities/Update': {
    request: async (world) => ({ id: await newIdentity(world), name: freshName('renamed'), claimMatch }),
    badInputs: [
      { what: 'no relationship', request: ({ id = '', name = '' }) => ({ id, name }), fields: ['claim_match'] },
      ...badResources(badIdentity),
      ...withoutMatch(badResources(badStaticKeys)),
    ],
  },
  'Identities/List': {
    request: (world) => ({ uidp: { descendantsOf: world.group } }),
    list: { item: newIdentity, filters: (world) => [{ uidp: { childrenOf: world.group } }] },
    badInputs: [],
  },
  'Identities/Lookup': {
    request: async ({ server }) => {
      const person = { issuer: trustedIssuer, subject: freshName('person') }
      await makePerson(server, person)
      return person
    },
    badInputs: [
      { what: 'no issuer', breaks: ['issuer:required'], request: ({ subject = '' }) => ({ subject }), fields: ['issuer'] },
      { what: 'no subject', breaks: ['subject:required'], request: ({ issuer = '' }) => ({ issuer }), fields: ['subject'] },
      { what: 'a subject that is too long', request: (valid) => ({ ...valid, subject: long(2049) }), fields: ['subject'] },
      { what: 'a person who never signed in', request: (valid) => ({ ...valid, subject: freshName('stranger') }), code: 5 },
    ],
  },
  'Identities/Delete': { request: async (world) => ({ id: await newIdentity(world) }), badInputs: [] },
}

/** The methods of version 1 in the domain iam. */
export const iamV1Cases: Readonly<Record<string, MethodCase>> = { ...groupV1Cases, ...roleV1Cases, ...roleBindingV1Cases, ...identityV1Cases }
