import type { JsonObject } from '@bufbuild/protobuf'
import { freshName, makeMember } from '../../../support/test-server.ts'
import { inCreate, inUpdate, long, longUid, pairs, type BadField } from '../bad-fields.ts'
import type { BadInput, MethodCase } from './method-case.ts'
import { made, missingSibling, type World } from '../world.ts'

const account = '123456789012'
/** The name of every association in these requests. */
const plainName = 'accounts'

function installations(count: number, change: JsonObject = {}): JsonObject {
  return { github: { appInstallations: { '7': { installations: Array.from({ length: count }, () => ({ installationId: '1', ...change })) } } } }
}

function apps(count: number): JsonObject {
  return { github: { appInstallations: Object.fromEntries(Array.from({ length: count }, (_, at) => [String(at + 1), {}])) } }
}

const tenantId = 'contoso.example'
const uid = 'a'.repeat(40)

const badAssociation: readonly BadField[] = [
  { what: 'no name', breaks: ['name:required'], clear: ['name'] },
  { what: 'a name of 256 characters', breaks: ['name:string.max_len'], set: { name: long(256) } },
  { what: 'a description of 513 characters', breaks: ['description:string.max_len'], set: { description: long(513) } },
  { what: 'an amazon block without account', breaks: ['amazon.account:required'], set: { amazon: {} } },
  { what: 'an amazon account of 11 digits', breaks: ['amazon.account:string.pattern'], set: { amazon: { account: '12345678901' } } },
  { what: 'a number for an amazon account', only: 'rest', set: { amazon: { account: 123456789012 } }, fields: ['amazon.account'] },
  {
    what: 'a google block without anything',
    breaks: ['google.project_id:required', 'google.project_number:required'],
    set: { google: {} },
    fields: ['google.project_id', 'google.project_number'],
  },
  { what: 'a google block without number', set: { google: { projectId: 'acme' } }, fields: ['google.project_number'] },
  { what: 'a google project with a slash', breaks: ['google.project_id:string.pattern'], set: { google: { projectId: 'a/b', projectNumber: '1' } } },
  { what: 'a google project number with letters', breaks: ['google.project_number:string.pattern'], set: { google: { projectId: 'a', projectNumber: '1a' } } },
  {
    what: 'an azure block without anything',
    breaks: ['azure.tenant_id:required', 'azure.client_ids:required'],
    set: { azure: {} },
    fields: ['azure.tenant_id', 'azure.client_ids'],
  },
  { what: 'an azure tenant with a slash', breaks: ['azure.tenant_id:string.pattern'], set: { azure: { tenantId: '../x', clientIds: { a: 'b' } } } },
  { what: 'an azure tenant that is too long', breaks: ['azure.tenant_id:string.max_len'], set: { azure: { tenantId: long(256), clientIds: { a: 'b' } } } },
  { what: 'more azure clients than 100', breaks: ['azure.client_ids:map.max_pairs'], set: { azure: { tenantId, clientIds: pairs(101) } } },
  { what: 'an azure client without a key', breaks: ['azure.client_ids{key}:string.min_len'], set: { azure: { tenantId, clientIds: { '': 'b' } } } },
  {
    what: 'an azure client with too long a key',
    breaks: ['azure.client_ids{key}:string.max_len'],
    set: { azure: { tenantId, clientIds: { [long(256)]: 'b' } } },
  },
  { what: 'an azure client without an id', breaks: ['azure.client_ids{value}:string.min_len'], set: { azure: { tenantId, clientIds: { a: '' } } } },
  {
    what: 'an azure client with too long an id',
    breaks: ['azure.client_ids{value}:string.max_len'],
    set: { azure: { tenantId, clientIds: { a: long(256) } } },
  },
  { what: 'more github apps than 100', breaks: ['github.app_installations:map.max_pairs'], set: apps(101) },
  {
    what: 'more github installations than 100',
    breaks: ['github.app_installations.installations:repeated.max_items'],
    set: installations(101),
  },
  {
    what: 'a github installation without id',
    breaks: ['github.app_installations.installations.installation_id:required'],
    set: installations(1, { installationId: '0' }),
  },
  {
    what: 'a github installation with a negative id',
    breaks: ['github.app_installations.installations.installation_id:int64.gt'],
    set: installations(1, { installationId: '-1' }),
  },
  {
    what: 'a github installation with too long a name',
    breaks: ['github.app_installations.installations.name:string.max_len'],
    set: installations(1, { name: long(256) }),
  },
  { what: 'a github app that is no number', only: 'rest', set: { github: { appInstallations: { app: {} } } }, fields: ['github.app_installations'] },
  { what: 'a platform block without anything', breaks: ['platform.service_bindings:required'], set: { platform: {} } },
  { what: 'more services than 100', breaks: ['platform.service_bindings:map.max_pairs'], set: { platform: { serviceBindings: manyServices(101) } } },
  { what: 'a service without a name', breaks: ['platform.service_bindings{key}:string.min_len'], set: { platform: { serviceBindings: { '': uid } } } },
  {
    what: 'a service with too long a name',
    breaks: ['platform.service_bindings{key}:string.max_len'],
    set: { platform: { serviceBindings: { [long(256)]: uid } } },
  },
  { what: 'a service of no uid', breaks: ['platform.service_bindings{value}:string.pattern'], set: { platform: { serviceBindings: { a: 'b' } } } },
  { what: 'a service of too long a uid', breaks: ['platform.service_bindings{value}:string.max_len'], set: { platform: { serviceBindings: { a: longUid } } } },
]

function manyServices(count: number): JsonObject {
  return Object.fromEntries(Array.from({ length: count }, (_, at) => [`service${at}`, uid]))
}

/** Missing, foreign and unsuitable services, which get the same answer. */
function badServices(bound: (valid: JsonObject, serviceBindings: JsonObject) => JsonObject): BadInput[] {
  const identities: readonly [string, (world: World, group: string) => Promise<string> | string][] = [
    ['that is missing', (world) => missingSibling(world.owner)],
    ['of another tenant', (world) => world.other.owner],
    ['of the group above', (world) => world.owner],
    ['of the group that is no service principal', async (world, group) => (await makeMember(world.server, group)).uid],
  ]
  return identities.map(([what, identity]) => ({
    what: `an identity ${what} for a service`,
    request: async (valid, world) => bound(valid, { INGESTER: await identity(world, groupOf(valid)) }),
    fields: ['platform.service_bindings'],
  }))
}

/** Returns the group in a request to create or update. */
function groupOf(request: JsonObject): string {
  const { uid: own } = (request['accountAssociation'] ?? {}) as JsonObject // both requests have it
  return String(request['parent'] ?? own)
}

export function newGroup(world: World, parent = world.group): Promise<string> {
  return made(world, 'CreateGroup', { parent, group: { name: freshName('accounts') } })
}

/** A new group directly below `parent`, with an association. */
export async function newAssociation(world: World, parent = world.group): Promise<string> {
  const group = await newGroup(world, parent)
  return made(world, 'CreateAccountAssociation', { parent: group, accountAssociation: { name: plainName, amazon: { account } } })
}

/** AccountAssociationsService. */
export const accountAssociationCases: Readonly<Record<string, MethodCase>> = {
  'AccountAssociationsService/GetAccountAssociation': { request: async (world): Promise<JsonObject> => ({ uid: await newAssociation(world) }), badInputs: [] },
  'AccountAssociationsService/DeleteAccountAssociation': { request: async (world) => ({ uid: await newAssociation(world) }), badInputs: [] },
  'AccountAssociationsService/ListAccountAssociations': {
    request: (world) => ({ uidp: { descendantsOf: world.group }, orderBy: 'created_at desc', pageSize: 200 }),
    list: { item: (world, parent) => newAssociation(world, parent), filters: (world) => [{ name: plainName, uidp: { descendantsOf: world.group } }] },
    badInputs: [{ what: 'a name that is too long', breaks: ['name:string.max_len'], request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] }],
  },
  'AccountAssociationsService/CreateAccountAssociation': {
    request: async (world) => ({ parent: await newGroup(world), accountAssociation: { name: 'made', description: 'x', amazon: { account } } }),
    badInputs: [
      {
        what: 'no association at all',
        breaks: ['account_association:required'],
        request: ({ parent = '' }) => ({ parent }),
        fields: ['name', 'amazon'],
      },
      { what: 'no provider', request: (valid) => ({ ...valid, accountAssociation: { name: 'made' } }), fields: ['amazon'] },
      {
        what: 'a second one',
        request: async (valid, world) => ({ ...valid, parent: await newAssociation(world) }),
        code: 6,
      },
      ...badServices((valid, serviceBindings) => ({ ...valid, accountAssociation: { name: 'made', platform: { serviceBindings } } })),
      ...inCreate('account_association', badAssociation),
    ],
  },
  'AccountAssociationsService/UpdateAccountAssociation': {
    request: async (world) => ({ accountAssociation: { uid: await newAssociation(world), description: 'changed' } }),
    badInputs: [
      {
        what: 'a mask that takes the last provider',
        request: ({ accountAssociation }) => ({ accountAssociation: { uid: (accountAssociation as JsonObject)['uid'] ?? '' }, updateMask: 'amazon' }),
        fields: ['amazon'],
      },
      ...badServices(({ accountAssociation }, serviceBindings) => ({
        accountAssociation: { uid: (accountAssociation as JsonObject)['uid'] ?? '', platform: { serviceBindings } },
      })),
      ...inUpdate('account_association', badAssociation),
    ],
  },
  'AccountAssociationsService/CheckAccountAssociation': {
    request: async (world) => ({ uid: await newAssociation(world), providerType: 'ACCOUNT_PROVIDER_TYPE_AMAZON' }),
    badInputs: [
      { what: 'no provider type', breaks: ['provider_type:required'], request: ({ uid: own = '' }) => ({ uid: own }), fields: ['provider_type'] },
      {
        what: 'an unknown provider type',
        breaks: ['provider_type:enum.defined_only'],
        request: (valid) => ({ ...valid, providerType: 9 }),
        fields: ['provider_type'],
      },
      { what: 'an unknown name of a provider type', only: 'rest', request: (valid) => ({ ...valid, providerType: 'CLOUD' }), fields: ['provider_type'] },
      { what: 'a group without an association', request: async (valid, world) => ({ ...valid, uid: await newGroup(world) }), code: 5 },
    ],
  },
}
