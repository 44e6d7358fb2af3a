import type { JsonObject } from '@bufbuild/protobuf'
import { freshName, roleUid } from '../../../support/test-server.ts'
import { inCreate, long, longUid, type BadField } from '../bad-fields.ts'
import { newProvider } from './cases-identity-providers.ts'
import type { BadInput, MethodCase } from './method-case.ts'
import { made, makeRole, missingSibling, plainCapability, type World } from '../world.ts'

const badMapping: readonly BadField[] = [
  { what: 'no external group', clear: ['externalGroupId'], fields: ['external_group_id'] },
  { what: 'an external group that is too long', breaks: ['external_group_id:string.max_len'], set: { externalGroupId: long(256) } },
  { what: 'no role', clear: ['roleUid'], fields: ['role_uid'] },
  { what: 'a role that is no uid', breaks: ['role_uid:string.pattern'], set: { roleUid: 'viewer' } },
  { what: 'a role longer than any uid', breaks: ['role_uid:string.max_len'], set: { roleUid: longUid } },
  { what: 'a role that grants more than the caller holds', set: { roleUid: roleUid('owner') }, code: 7 },
  { what: 'no scope', clear: ['scope'], fields: ['scope'] },
  { what: 'a scope that is no uid', breaks: ['scope:string.pattern'], set: { scope: 'everywhere' } },
  { what: 'a scope longer than any uid', breaks: ['scope:string.max_len'], set: { scope: longUid } },
  { what: 'nothing in it', clear: ['externalGroupId', 'roleUid', 'scope'], fields: ['external_group_id', 'role_uid', 'scope'] },
  { what: 'a number for the external group', only: 'rest', set: { externalGroupId: 7 }, fields: ['external_group_id'] },
]

async function validMapping(world: World): Promise<JsonObject> {
  return { externalGroupId: freshName('group'), roleUid: world.plainRole, scope: world.group }
}

export async function newMapping(world: World, parent?: string): Promise<string> {
  const provider = parent ?? (await newProvider(world))
  return made(world, 'CreateExternalGroupRoleMapping', { parent: provider, externalGroupRoleMapping: await validMapping(world) })
}

function changed(valid: JsonObject, change: JsonObject): JsonObject {
  return { ...valid, externalGroupRoleMapping: { ...(valid['externalGroupRoleMapping'] as JsonObject), ...change } }
}

/** References that are missing or not permitted here, which get the same answer. */
const badReferences: readonly BadInput[] = [
  { what: 'a role that is missing', request: (valid, world) => changed(valid, { roleUid: missingSibling(world.plainRole) }), fields: ['role_uid'] },
  {
    what: 'a role of another tenant',
    request: async (valid, world) => changed(valid, { roleUid: await makeRole(world.server, world.other.group, [plainCapability]) }),
    fields: ['role_uid'],
  },
  {
    what: 'a role of a subgroup',
    request: async (valid, world) => changed(valid, { roleUid: await makeRole(world.server, world.subgroup, [plainCapability]) }),
    fields: ['role_uid'],
  },
  { what: 'a subgroup for a scope', request: (valid, world) => changed(valid, { scope: world.subgroup }), fields: ['scope'] },
  { what: 'another tenant for a scope', request: (valid, world) => changed(valid, { scope: world.other.group }), fields: ['scope'] },
  { what: 'a scope that is missing', request: (valid, world) => changed(valid, { scope: missingSibling(world.group) }), fields: ['scope'] },
  { what: 'a mapping that is there already', request: (valid, world) => again(valid, world), code: 6 },
  { what: 'a group for a provider', request: (valid, world) => ({ ...valid, parent: world.subgroup }), code: 5 },
]

/** ExternalGroupRoleMappingsService. */
export const mappingCases: Readonly<Record<string, MethodCase>> = {
  'ExternalGroupRoleMappingsService/GetExternalGroupRoleMapping': {
    request: async (world): Promise<JsonObject> => ({ uid: await newMapping(world) }),
    badInputs: [],
  },
  'ExternalGroupRoleMappingsService/DeleteExternalGroupRoleMapping': { request: async (world) => ({ uid: await newMapping(world) }), badInputs: [] },
  'ExternalGroupRoleMappingsService/ListExternalGroupRoleMappings': {
    request: (world) => ({ uidp: { descendantsOf: world.group }, orderBy: 'created_at desc', pageSize: 200 }),
    list: { item: mappingBelow, filters: (world) => [{ identityProviderUid: listed.get(world.group) ?? '' }] },
    badInputs: [
      {
        what: 'a provider that is too long',
        breaks: ['identity_provider_uid:string.max_len'],
        request: (valid) => ({ ...valid, identityProviderUid: longUid }),
        fields: ['identity_provider_uid'],
      },
    ],
  },
  'ExternalGroupRoleMappingsService/CreateExternalGroupRoleMapping': {
    request: async (world) => ({ parent: await newProvider(world), externalGroupRoleMapping: await validMapping(world) }),
    grants: [plainCapability],
    badInputs: [
      {
        what: 'no mapping at all',
        breaks: ['external_group_role_mapping:required'],
        request: ({ parent = '' }) => ({ parent }),
        fields: ['external_group_id', 'role_uid', 'scope'],
      },
      ...badReferences,
      ...inCreate('external_group_role_mapping', badMapping),
    ],
  },
  'ExternalGroupRoleMappingsService/BatchDeleteExternalGroupRoleMappings': {
    async request(world) {
      const parent = await newProvider(world)
      return { parent, names: [await newMapping(world, parent), await newMapping(world, parent)] }
    },
    badInputs: [
      { what: 'no names', breaks: ['names:required'], request: ({ parent = '' }) => ({ parent }), fields: ['names'] },
      {
        what: 'more names than 1000',
        breaks: ['names:repeated.max_items'],
        request: ({ parent = '' }) => ({ parent, names: Array.from({ length: 1001 }, () => missingSibling(`${String(parent)}/${'a'.repeat(16)}`)) }),
        fields: ['names'],
      },
      { what: 'a name that is no uid', breaks: ['names[]:string.pattern'], request: ({ parent = '' }) => ({ parent, names: ['all'] }), fields: ['names'] },
      {
        what: 'a name longer than any uid',
        breaks: ['names[]:string.max_len'],
        request: ({ parent = '' }) => ({ parent, names: [longUid] }),
        fields: ['names'],
      },
      {
        what: 'a mapping of another provider beside good ones',
        request: async ({ parent = '', names }, world) => ({ parent, names: [...(names as string[]), await newMapping(world)] }),
        fields: ['names'],
      },
    ],
  },
}

/** The provider of the last listed mapping, by group. */
const listed = new Map<string, string>()

/** A mapping of a new provider in this group. */
export async function mappingBelow(world: World, group: string): Promise<string> {
  const provider = await made(world, 'CreateIdentityProvider', {
    parent: group,
    identityProvider: {
      name: freshName('idp'),
      defaultRole: roleUid('viewer'),
      oidc: { issuer: 'https://login.idp.example', clientId: 'platform', clientSecret: 'secret' },
    },
  })
  listed.set(group, provider)
  const mapping = { externalGroupId: freshName('group'), roleUid: roleUid('viewer'), scope: group.slice(0, 40) }
  return made(world, 'CreateExternalGroupRoleMapping', { parent: provider, externalGroupRoleMapping: mapping })
}

/** Returns a create request for an existing mapping: creates it first. */
async function again(valid: JsonObject, world: World): Promise<JsonObject> {
  await made(world, 'CreateExternalGroupRoleMapping', valid)
  return valid
}
