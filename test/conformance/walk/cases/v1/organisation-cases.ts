import type { JsonObject } from '@bufbuild/protobuf'
import { freshName, makeMember, ok, roleUid } from '../../../../support/test-server.ts'
import { long } from '../../bad-fields.ts'
import { made, missingSibling, plainCapability, walkTerms, type World } from '../../world.ts'
import { newAssociation, newGroup } from '../cases-account-associations.ts'
import { newInvite } from '../cases-group-invites.ts'
import { newProvider, withToken } from '../cases-identity-providers.ts'
import { mappingBelow, newMapping } from '../cases-mappings.ts'
import type { BadInput, MethodCase } from '../method-case.ts'
import { badResources } from './iam-cases.ts'

const oidc = { issuer: 'https://login.idp.example', clientId: 'platform', clientSecret: 'a secret of the client' }

const badProvider = [
  { what: 'a name with a slash', set: { name: 'a/b' }, fields: ['name'] },
  { what: 'a default role that is no uid', set: { defaultRole: 'viewer' }, fields: ['default_role'] },
  { what: 'an issuer that is no URL', set: { oidc: { ...oidc, issuer: 'login' } }, fields: ['oidc.issuer'] },
]

/** Returns a request about the SCIM credentials of a provider that has some. */
async function scimRequest(world: World): Promise<JsonObject> {
  const { identityProviderUid, etag } = await withToken(world)
  return { identityProviderId: identityProviderUid, etag }
}

const staleEtag: BadInput = { what: 'a stale etag', request: (valid) => ({ ...valid, etag: '0123456789abcdef' }), code: 10 }

async function ofNewProvider(world: World): Promise<JsonObject> {
  return { identityProviderId: await newProvider(world) }
}

const providerV1Cases: Readonly<Record<string, MethodCase>> = {
  'IdentityProviders/Create': {
    request: (world) => ({ parentId: world.group, identityProvider: { name: freshName('idp'), defaultRole: world.plainRole, oidc } }),
    grants: [plainCapability],
    badInputs: [
      { what: 'no provider at all', request: ({ parentId = '' }) => ({ parentId }), fields: ['name', 'default_role', 'oidc'] },
      ...badResources(badProvider, 'identityProvider'),
    ],
  },
  'IdentityProviders/Update': {
    request: async (world) => ({ id: await newProvider(world), name: freshName('idp'), defaultRole: world.plainRole, oidc }),
    grants: [plainCapability],
    badInputs: [{ what: 'no configuration', request: ({ oidc: _oidc, ...rest }) => rest, fields: ['oidc'] }, ...badResources(badProvider)],
  },
  'IdentityProviders/List': {
    request: (world) => ({ uidp: { descendantsOf: world.group } }),
    list: { item: newProviderBelow, filters: (world) => [{ uidp: { childrenOf: world.group } }] },
    badInputs: [{ what: 'a name that is too long', request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] }],
  },
  'IdentityProviders/Delete': { request: async (world) => ({ id: await newProvider(world) }), badInputs: [] },
  'IdentityProviders/GenerateScimToken': {
    request: ofNewProvider,
    grants: [plainCapability],
    badInputs: [
      { what: 'an expiry in the past', request: (valid) => ({ ...valid, expireTime: '2020-01-01T00:00:00.000Z' }), fields: ['expire_time'] },
      { what: 'a provider that has a token', request: async (_, world) => idOf(await scimRequest(world)), code: 9 },
    ],
  },
  'IdentityProviders/RegenerateScimToken': {
    request: scimRequest,
    grants: [plainCapability],
    badInputs: [staleEtag, { what: 'a negative overlap', request: (valid) => ({ ...valid, overlap: '-1s' }), fields: ['overlap'] }],
  },
  'IdentityProviders/RevokeScimToken': {
    request: async (world) => idOf(await scimRequest(world)),
    badInputs: [{ what: 'a provider that never had a token', request: (_, world) => ofNewProvider(world), code: 5 }],
  },
  'IdentityProviders/SetScimEnabled': { request: async (world) => ({ ...(await scimRequest(world)), enabled: false }), badInputs: [staleEtag] },
}

function idOf({ identityProviderId = '' }: JsonObject): JsonObject {
  return { identityProviderId }
}

/** Creates a provider with a role that every group has. */
function newProviderBelow(world: World, parent: string): Promise<string> {
  return made(world, 'CreateIdentityProvider', { parent, identityProvider: { name: freshName('idp'), defaultRole: roleUid('viewer'), oidc } })
}

const amazon = { account: '123456789012' }

const badAssociation = [
  { what: 'a name of 256 characters', set: { name: long(256) }, fields: ['name'] },
  { what: 'an amazon account of 11 digits', set: { amazon: { account: '12345678901' } }, fields: ['amazon.account'] },
  {
    what: 'a github installation without id',
    set: { github: { appInstallations: { '7': { installations: [{ name: 'x' }] } } } },
    fields: ['github.app_installations.installations.installation_id'],
  },
]

const associationV1Cases: Readonly<Record<string, MethodCase>> = {
  'GroupAccountAssociations/Create': {
    request: async (world) => ({ group: await newGroup(world), name: 'made', amazon }),
    badInputs: [
      { what: 'no account', request: ({ group = '' }) => ({ group, name: 'made' }), fields: ['amazon'] },
      { what: 'a second one', request: async (valid, world) => ({ ...valid, group: await newAssociation(world) }), code: 6 },
      ...badResources(badAssociation),
    ],
  },
  'GroupAccountAssociations/Update': {
    request: async (world) => ({ group: await newAssociation(world), name: 'changed', amazon }),
    badInputs: badResources(badAssociation),
  },
  'GroupAccountAssociations/List': {
    request: () => ({}),
    list: { item: newAssociation, filters: () => [{ name: 'accounts' }] },
    badInputs: [{ what: 'a name that is too long', request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] }],
  },
  'GroupAccountAssociations/Delete': { request: async (world) => ({ group: await newAssociation(world) }), badInputs: [] },
  'GroupAccountAssociations/Check': {
    request: async (world) => ({ group: await newAssociation(world), accountType: 1 }),
    badInputs: [
      { what: 'no account type', request: ({ group = '' }) => ({ group }), fields: ['account_type'] },
      { what: 'a group without an association', request: async (valid, world) => ({ ...valid, group: await newGroup(world) }), code: 5 },
    ],
  },
}

const badInvite = [
  { what: 'a role that is no uid', set: { role: 'viewer' }, fields: ['role'] },
  { what: 'an e-mail address that is none', set: { email: 'foreign-name' }, fields: ['email'] },
  { what: 'a ttl of nothing', set: { ttl: '0s' }, fields: ['ttl'] },
]

const inviteV1Cases: Readonly<Record<string, MethodCase>> = {
  'GroupInvites/Create': {
    request: (world) => ({ group: world.group, role: world.plainRole, ttl: '3600s', email: 'new@example.com', singleUse: true }),
    grants: [plainCapability],
    badInputs: [
      { what: 'nothing but the group', request: ({ group = '' }) => ({ group }), fields: ['role', 'ttl'] },
      { what: 'a role that grants more than the caller holds', request: (valid) => ({ ...valid, role: roleUid('owner') }), code: 7 },
      ...badResources(badInvite),
    ],
  },
  'GroupInvites/List': {
    request: () => ({}),
    list: { item: newInvite, filters: (world) => [{ group: world.subgroup }] },
    badInputs: [{ what: 'a key id that is too long', request: (valid) => ({ ...valid, keyId: long(256) }), fields: ['key_id'] }],
  },
  'GroupInvites/Delete': { request: async (world) => ({ id: await newInvite(world) }), badInputs: [] },
}

const mappingV1Cases: Readonly<Record<string, MethodCase>> = {
  'ExternalGroupRoleMappings/Create': {
    request: async (world) => ({
      parentId: await newProvider(world),
      mapping: { externalGroupId: freshName('group'), roleUidp: world.plainRole, scope: world.group },
    }),
    grants: [plainCapability],
    badInputs: [
      { what: 'no mapping at all', request: ({ parentId = '' }) => ({ parentId }), fields: ['external_group_id', 'role_uidp', 'scope'] },
      ...badResources([{ what: 'a role that is no uid', set: { roleUidp: 'viewer' }, fields: ['role_uidp'] }], 'mapping'),
    ],
  },
  'ExternalGroupRoleMappings/Get': { request: async (world) => ({ uid: await newMapping(world) }), badInputs: [] },
  'ExternalGroupRoleMappings/List': {
    request: (world) => ({ uidp: { descendantsOf: world.group } }),
    list: { item: mappingBelow, filters: (world) => [{ uidp: { descendantsOf: world.subgroup } }] },
    badInputs: [],
  },
  'ExternalGroupRoleMappings/Delete': { request: async (world) => ({ id: await newMapping(world) }), badInputs: [] },
  'ExternalGroupRoleMappings/BatchDelete': {
    async request(world) {
      const parentId = await newProvider(world)
      return { parentId, ids: [await newMapping(world, parentId), await newMapping(world, parentId)] }
    },
    badInputs: [
      { what: 'no ids', request: ({ parentId = '' }) => ({ parentId }), fields: ['ids'] },
      { what: 'an id that is no uid', request: ({ parentId = '' }) => ({ parentId, ids: ['all'] }), fields: ['ids'] },
      {
        what: 'a mapping of another provider after good ones',
        request: async ({ parentId = '', ids }, world) => ({ parentId, ids: [...(ids as string[]), await newMapping(world)] }), // the valid request
        fields: ['ids'],
      },
    ],
  },
}

const termsV1Cases: Readonly<Record<string, MethodCase>> = {
  'Terms/AcceptTerms': {
    request: (world) => ({ group: world.group, documentIds: walkTerms.map(({ id }) => id) }),
    badInputs: [{ what: 'an unknown document', request: (valid) => ({ ...valid, documentIds: ['unknown'] }), fields: ['document_ids'] }],
  },
  'Terms/ListAccepted': {
    async request(world) {
      const documentIds = walkTerms.map(({ id }) => id)
      ok(await world.server.rest.call('AcceptTerms', { group: world.group, documentIds }, { token: await world.server.operatorToken() }))
      return { group: world.group }
    },
    badInputs: [],
  },
}

async function freshPair(world: World): Promise<JsonObject> {
  return { identity: (await makeMember(world.server, world.group)).uid, role: world.plainRole }
}

/** Returns a batch whose first item has something changed. */
function withItem(valid: JsonObject, change: JsonObject): JsonObject {
  const [first = {}] = valid['roleBindings'] as JsonObject[] // the valid batch
  return { ...valid, roleBindings: [{ ...first, ...change }] }
}

const batchV1Cases: Readonly<Record<string, MethodCase>> = {
  'RoleBindings/CreateBatch': {
    request: async (world) => ({ parent: world.group, roleBindings: [await freshPair(world)] }),
    grants: [plainCapability],
    badInputs: [
      { what: 'no item', request: ({ parent = '' }) => ({ parent, roleBindings: [] }), fields: ['role_bindings'] },
      { what: 'an identity that is no uid', request: (valid) => withItem(valid, { identity: 'foreign-name' }), fields: ['role_bindings.identity'] },
      { what: 'no role', request: (valid) => withItem(valid, { role: '' }), fields: ['role_bindings.role'] },
      {
        what: 'a good item before a bad one',
        async request(valid, world) {
          const bad = { ...(await freshPair(world)), identity: missingSibling(world.owner) }
          return { ...valid, roleBindings: [...(valid['roleBindings'] as JsonObject[]), bad] } // the valid batch
        },
        fields: ['role_bindings.identity'],
      },
      {
        what: 'an item twice',
        request: (valid) => ({ ...valid, roleBindings: [valid['roleBindings'], valid['roleBindings']].flat() as JsonObject[] }), // the valid batch
        fields: ['role_bindings'],
      },
    ],
  },
}

/** The methods of version 1 about identity providers, account associations, invites, mappings, terms, and batches of role bindings. */
export const organisationV1Cases: Readonly<Record<string, MethodCase>> = {
  ...providerV1Cases,
  ...associationV1Cases,
  ...inviteV1Cases,
  ...mappingV1Cases,
  ...termsV1Cases,
  ...batchV1Cases,
}
