import type { JsonObject } from '@bufbuild/protobuf'
import { expect } from 'vitest'
import { freshName, ok, roleUid } from '../../../support/test-server.ts'
import { inCreate, inUpdate, long, longUid, type BadField } from '../bad-fields.ts'
import type { BadInput, MethodCase } from './method-case.ts'
import { made, makeRole, missingSibling, plainCapability, type World } from '../world.ts'

const issuer = 'https://login.idp.example'
const oidc = { issuer, clientId: 'platform', clientSecret: 'a secret of the client' }

/** Returns a bad input with a changed OIDC block. Undefined members are left out. */
function inOidc(what: string, breaks: readonly string[], change: JsonObject, fields?: readonly string[]): BadField {
  return { what, breaks: breaks.map((one) => `oidc.${one}`), set: { oidc: { ...oidc, ...change } }, ...(fields === undefined ? {} : { fields }) }
}

const badOidc: readonly BadField[] = [
  inOidc('no issuer', ['issuer:required'], { issuer: '' }),
  inOidc('an issuer that is no URL', ['issuer:string.pattern'], { issuer: 'login' }),
  inOidc('an issuer that is too long', ['issuer:string.max_len'], { issuer: `${issuer}/${long(2048)}` }),
  inOidc('an issuer without encryption', [], { issuer: 'http://login.idp.example' }, ['oidc.issuer']),
  inOidc('an issuer with a user in it', [], { issuer: 'https://me@login.idp.example' }, ['oidc.issuer']),
  inOidc('an issuer with a query', [], { issuer: `${issuer}?tenant=1` }, ['oidc.issuer']),
  inOidc('an issuer with a fragment', [], { issuer: `${issuer}#1` }, ['oidc.issuer']),
  inOidc('an issuer whose host is none', [], { issuer: 'https://:443' }, ['oidc.issuer']),
  inOidc('no client', ['client_id:required'], { clientId: '' }),
  inOidc('a client that is too long', ['client_id:string.max_len'], { clientId: long(2049) }),
  inOidc('a secret that is too long', ['client_secret:string.max_len'], { clientSecret: long(4097) }),
  inOidc('more than 50 scopes', ['additional_scopes:repeated.max_items'], { additionalScopes: Array.from({ length: 51 }, (_, at) => `scope${at}`) }),
  inOidc('a scope twice', ['additional_scopes:repeated.unique'], { additionalScopes: ['email', 'email'] }),
  inOidc('a scope with a blank', ['additional_scopes[]:string.pattern'], { additionalScopes: ['two words'] }, ['oidc.additional_scopes']),
  inOidc('a groups claim that is too long', ['groups_claim:string.max_len'], { groupsClaim: long(256) }),
  inOidc('a correlation rule whose number is unknown', ['correlation_rule:enum.defined_only'], { correlationRule: 99 }),
  { ...inOidc('a correlation rule whose name is unknown', [], { correlationRule: 'CORRELATION_RULE_EMAIL' }, ['oidc.correlation_rule']), only: 'rest' },
  { ...inOidc('a number for the secret', [], { clientSecret: 7 }, ['oidc.client_secret']), only: 'rest' },
  { ...inOidc('a text for PKCE', [], { pkceEnabled: 'yes' }, ['oidc.pkce_enabled']), only: 'rest' },
]

const badProvider: readonly BadField[] = [
  { what: 'no name', breaks: ['name:required'], clear: ['name'] },
  { what: 'a name with a slash', breaks: ['name:string.pattern'], set: { name: 'a/b' } },
  { what: 'a name with capitals', set: { name: 'Login' }, fields: ['name'] },
  { what: 'a description of 513 characters', breaks: ['description:string.max_len'], set: { description: long(513) } },
  { what: 'no default role', breaks: ['default_role:required'], clear: ['defaultRole'] },
  { what: 'a default role that is no uid', breaks: ['default_role:string.pattern'], set: { defaultRole: 'viewer' } },
  { what: 'a default role longer than any uid', breaks: ['default_role:string.max_len'], set: { defaultRole: longUid } },
  { what: 'a default role that grants more than the caller holds', set: { defaultRole: roleUid('owner') }, code: 7 },
  { what: 'no configuration', breaks: ['configuration:oneof.required'], clear: ['oidc'] },
  { what: 'a text for a name', only: 'rest', set: { name: ['login'] }, fields: ['name'] },
  { what: 'a text for the configuration', only: 'rest', set: { oidc: 'oidc' }, fields: ['oidc'] },
  ...badOidc,
]

/** Default roles that are missing or not permitted here, which get the same answer. */
function badRoles(change: (valid: JsonObject, defaultRole: string) => JsonObject): BadInput[] {
  const of = (what: string, role: (world: World) => Promise<string> | string): BadInput => ({
    what,
    request: async (valid, world) => change(valid, await role(world)),
    fields: ['default_role'],
  })
  return [
    of('a default role that is missing', (world) => missingSibling(world.plainRole)),
    of('a default role of another tenant', (world) => makeRole(world.server, world.other.group, [plainCapability])),
    of('a default role of a subgroup', (world) => makeRole(world.server, world.subgroup, [plainCapability])),
    of('a group for a default role', (world) => world.subgroup),
  ]
}

/** No provider may be this platform itself (docs/spec/identities.md#identity-providers). */
function ownIssuer(make: (valid: JsonObject, own: JsonObject) => JsonObject): BadInput {
  return {
    what: 'the issuer of this platform',
    request: (valid, { server }) => make(valid, { ...oidc, issuer: `${server.config.baseUrl}/` }),
    fields: ['oidc.issuer'],
  }
}

/** Creates a provider whose default role is the plain one, and returns its uid. */
export function newProvider(world: World, parent = world.group): Promise<string> {
  return made(world, 'CreateIdentityProvider', { parent, identityProvider: { name: freshName('idp'), defaultRole: world.plainRole, oidc } })
}

/** Creates a provider with a SCIM token, and returns the etag of its credentials. */
export async function withToken(world: World): Promise<{ identityProviderUid: string; etag: string }> {
  const identityProviderUid = await newProvider(world)
  const token = await world.server.operatorToken()
  const { etag } = ok(await world.server.rest.call('GenerateScimToken', { identityProviderUid }, { token }))
  return { identityProviderUid, etag: String(etag) }
}

const badLife: readonly BadInput[] = [
  { what: 'an expiry in the past', request: (valid) => ({ ...valid, expireTime: '2020-01-01T00:00:00.000Z' }), fields: ['expire_time'] },
  { what: 'an expiry in more than two years', request: (valid) => ({ ...valid, expireTime: '2999-01-01T00:00:00.000Z' }), fields: ['expire_time'] },
  {
    what: 'an expiry for what never expires',
    request: (valid) => ({ ...valid, neverExpires: true, expireTime: new Date(Date.now() + 3_600_000).toISOString() }),
    fields: ['expire_time'],
  },
  { what: 'an expiry that is no time', only: 'rest', request: (valid) => ({ ...valid, expireTime: 'tomorrow' }), fields: ['expire_time'] },
]

const badEtags: readonly BadInput[] = [
  { what: 'a stale etag', request: (valid) => ({ ...valid, etag: '0123456789abcdef' }), code: 10 },
  { what: 'an etag that stands for any', request: (valid) => ({ ...valid, etag: '*' }), code: 10 },
  { what: 'a stale If-Match', options: { ifMatch: '0123456789abcdef' }, code: 10 },
]

/** The walk has no other constraints of the schema on `etag`, see constraintsOf. */
const noEtag: BadInput = { what: 'no etag', request: ({ etag: _etag, ...rest }) => rest, fields: ['etag'] }

async function neverIssued(valid: JsonObject, world: World): Promise<JsonObject> {
  return { ...valid, identityProviderUid: await newProvider(world) }
}

const noToken: BadInput = { what: 'a provider that never had a token', request: neverIssued, code: 5 }

/** IdentityProvidersService. */
export const identityProviderCases: Readonly<Record<string, MethodCase>> = {
  'IdentityProvidersService/GetIdentityProvider': { request: async (world): Promise<JsonObject> => ({ uid: await newProvider(world) }), badInputs: [] },
  'IdentityProvidersService/DeleteIdentityProvider': { request: async (world) => ({ uid: await newProvider(world) }), badInputs: [] },
  'IdentityProvidersService/ListIdentityProviders': {
    request: (world) => ({ uidp: { descendantsOf: world.group }, orderBy: 'created_at desc', pageSize: 200 }),
    list: {
      async item({ server }, parent) {
        const identityProvider = { name: `of ${parent.slice(0, 40)}`, defaultRole: roleUid('viewer'), oidc }
        // Names are unique in a group: the second time the provider exists.
        expect([0, 6]).toContain((await server.rest.call('CreateIdentityProvider', { parent, identityProvider }, { token: await server.operatorToken() })).code)
      },
      filters: (world) => [{ name: `of ${world.group}` }],
    },
    badInputs: [{ what: 'a name that is too long', breaks: ['name:string.max_len'], request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] }],
  },
  'IdentityProvidersService/CreateIdentityProvider': {
    request: (world) => ({ parent: world.group, identityProvider: { name: freshName('idp'), defaultRole: world.plainRole, oidc } }),
    grants: [plainCapability],
    badInputs: [
      {
        what: 'no provider at all',
        breaks: ['identity_provider:required'],
        request: ({ parent = '' }) => ({ parent }),
        fields: ['name', 'default_role', 'oidc'],
      },
      { what: 'a name that is taken', request: (valid, world) => again(valid, world), code: 6 },
      { what: 'neither secret nor PKCE', request: (valid) => withOidc(valid, { issuer, clientId: 'platform' }), fields: ['oidc.client_secret'] },
      ownIssuer(withOidc),
      ...badRoles((valid, defaultRole) => ({ ...valid, identityProvider: { ...(valid['identityProvider'] as JsonObject), defaultRole } })),
      ...inCreate('identity_provider', badProvider),
    ],
  },
  'IdentityProvidersService/UpdateIdentityProvider': {
    request: async (world) => ({ identityProvider: { uid: await newProvider(world), oidc: { ...oidc, groupsClaim: 'groups' } } }),
    grants: [plainCapability],
    badInputs: [
      {
        what: 'another correlation rule',
        request: (valid) => withOidc(valid, { ...oidc, correlationRule: 'CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID' }),
        fields: ['oidc.correlation_rule'],
      },
      {
        what: 'another correlation rule, named by the mask',
        request: (valid) => ({
          ...withOidc(valid, { correlationRule: 'CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID' }),
          updateMask: 'oidc.correlationRule',
        }),
        fields: ['oidc.correlation_rule'],
      },
      {
        what: 'the secret cleared where there is no PKCE',
        request: (valid) => ({ ...withOidc(valid, { ...oidc, clientSecret: '' }), updateMask: 'oidc.clientSecret' }),
        fields: ['oidc.client_secret'],
      },
      {
        what: 'another issuer, to be shown the secret of the one before',
        request: (valid) => ({ ...withOidc(valid, { issuer: 'https://other.idp.example' }), updateMask: 'oidc.issuer' }),
        fields: ['oidc.client_secret'],
      },
      ownIssuer(withOidc),
      ...badRoles(({ identityProvider }, defaultRole) => ({ identityProvider: { uid: (identityProvider as JsonObject)['uid'] ?? '', defaultRole } })),
      ...inUpdate('identity_provider', badProvider),
    ],
  },
  'IdentityProvidersService/GenerateScimToken': {
    request: async (world) => ({ identityProviderUid: await newProvider(world) }),
    grants: [plainCapability],
    badInputs: [...badLife, { what: 'a provider that has a token', request: async (_, world) => idOf(await withToken(world)), code: 9 }],
  },
  'IdentityProvidersService/RegenerateScimToken': {
    request: withToken,
    grants: [plainCapability],
    badInputs: [
      ...badLife,
      ...badEtags,
      noEtag,
      noToken,
      { what: 'a negative overlap', breaks: ['overlap:duration.gte'], request: (valid) => ({ ...valid, overlap: '-1s' }), fields: ['overlap'] },
      { what: 'an overlap that is no duration', only: 'rest', request: (valid) => ({ ...valid, overlap: 'long' }), fields: ['overlap'] },
    ],
  },
  'IdentityProvidersService/RevokeScimToken': {
    request: async (world) => idOf(await withToken(world)),
    badInputs: [noToken, { what: 'a stale If-Match', options: { ifMatch: '0123456789abcdef' }, code: 10 }],
  },
  'IdentityProvidersService/SetScimEnabled': {
    request: async (world) => ({ ...(await withToken(world)), enabled: false }),
    badInputs: [
      ...badEtags,
      noEtag,
      noToken,
      // The required constraint on a flag does not count, because a flag has no empty value.
      { what: 'a text for the flag', breaks: ['enabled:required'], only: 'rest', request: (valid) => ({ ...valid, enabled: 'yes' }), fields: ['enabled'] },
    ],
  },
}

function idOf({ identityProviderUid }: { identityProviderUid: string }): JsonObject {
  return { identityProviderUid }
}

function withOidc(valid: JsonObject, changed: JsonObject): JsonObject {
  return { ...valid, identityProvider: { ...(valid['identityProvider'] as JsonObject), oidc: changed } }
}

/** Returns a create request for an existing name: creates a provider of this name first. */
async function again(valid: JsonObject, world: World): Promise<JsonObject> {
  await made(world, 'CreateIdentityProvider', valid)
  return valid
}
