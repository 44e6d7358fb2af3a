import type { JsonObject } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { freshName, roleUid } from '../support/test-server.ts'
import { indexType, manifestOf } from '../registry/oci/oci-client.ts'

/** The values of a record, the same for both versions. Absent ones are the defaults. */
export type Values = Readonly<Record<string, Value>>

type Value = string | boolean | readonly string[]

/** Where records are created: `parents` has a group or repo for each kind. */
export interface Place {
  readonly parents: Readonly<Record<string, string>>
  /** Creates a record below a parent, and resolves with its uid. */
  readonly make: (rpc: string, request: JsonObject) => Promise<string>
}

/** A kind of record: its methods, and its values as random texts and as each version writes them. */
export interface BothKind {
  readonly plural: string
  readonly v1: {
    readonly create: string
    readonly parent: string
    /** The field of a create that has the record; empty if the create is the record. */
    readonly held: string
    /** The field with the id; `id` by default. */
    readonly id?: string
    /** The filter of a list by place; by the groups below it by default. */
    readonly inPlace?: (parent: string) => JsonObject
    /** The filter of a list by id, if it is not the field with the id. */
    readonly byId?: (id: string) => JsonObject
    /** Absent for kinds that version 1 does not change. */
    readonly update?: string
    readonly list: string
    readonly remove: string
  }
  /** `isFixed` if there are no updates. */
  readonly v2: { readonly kind: string; readonly held: string; readonly isFixed?: true }
  readonly values: Readonly<Record<string, fc.Arbitrary<Value>>>
  /** Fields that every write in version 1 has, and every create. */
  readonly required: readonly string[]
  /** Fields that no update has. */
  readonly fixed?: readonly string[]
  /** Fields that an update in version 1 may leave out, which keeps their values. */
  readonly kept?: readonly string[]
  /** Fixed fields that an update in version 1 sends all the same. */
  readonly resent?: readonly string[]
  /** The paths of fields in update masks, where they are not those of the record. */
  readonly masks?: Readonly<Record<string, string>>
  /** Makes what a new record needs for itself: values that only it has, or a parent. */
  readonly prepare?: (place: Place) => Promise<{ readonly parent?: string; readonly values?: Values }>
  /** True if version 2 has no update: a create with the name of a record replaces its other values. */
  readonly moves?: true
  readonly toV1: (values: Values) => JsonObject
  readonly toV2: (values: Values) => JsonObject
}

const name = fc.stringMatching(/^[a-z0-9]{12}$/)
const description = fc.stringMatching(/^[a-z]{1,8}$/)
const same = (values: Values): JsonObject => ({ ...values }) as JsonObject

const capabilities = { 'groups.list': 'CAP_IAM_GROUPS_LIST', 'repo.list': 'CAP_REPO_LIST', 'tag.list': 'CAP_TAG_LIST' } as const
const tiers = { APPLICATION: 'CATALOG_TIER_APPLICATION', BASE: 'CATALOG_TIER_BASE', FIPS: 'CATALOG_TIER_FIPS' } as const

function service(of: string): Required<Pick<BothKind['v1'], 'create' | 'update' | 'list' | 'remove'>> {
  return { create: `${of}/Create`, update: `${of}/Update`, list: `${of}/List`, remove: `${of}/Delete` }
}

/** The methods of a service without updates. */
function withoutUpdate(of: string): Pick<BothKind['v1'], 'create' | 'list' | 'remove'> {
  const { update: _, ...methods } = service(of)
  return methods
}

/** What tags point to: two indexes without images. */
export const targets = ['one', 'two'].map((title) => manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [], annotations: { title } }))

export const kinds: Readonly<Record<string, BothKind>> = {
  group: {
    plural: 'groups',
    v1: { ...service('Groups'), parent: 'parent', held: 'group' },
    v2: { kind: 'Group', held: 'group' },
    values: { name, description },
    required: ['name'],
    toV1: same,
    toV2: same,
  },
  role: {
    plural: 'roles',
    v1: { ...service('Roles'), parent: 'parentId', held: 'role' },
    v2: { kind: 'Role', held: 'role' },
    values: { name, description, capabilities: fc.subarray(Object.keys(capabilities), { minLength: 1 }) },
    required: ['name', 'capabilities'],
    toV1: same,
    toV2: ({ capabilities: held, ...values }) => ({
      ...same(values),
      ...(held === undefined ? {} : { capabilities: (held as readonly (keyof typeof capabilities)[]).map((one) => capabilities[one]) }), // their texts
    }),
  },
  identity: {
    plural: 'identities',
    v1: { ...service('Identities'), parent: 'parentId', held: 'identity' },
    v2: { kind: 'Identity', held: 'identity' },
    values: { name, description, subject: fc.stringMatching(/^[a-z]{3,9}$/) },
    required: ['name', 'subject'],
    masks: { subject: 'claimMatch' },
    toV1: withMatch,
    toV2: withMatch,
  },
  repo: {
    plural: 'repos',
    v1: {
      create: 'Registry/CreateRepo',
      update: 'Registry/UpdateRepo',
      list: 'Registry/ListRepos',
      remove: 'Registry/DeleteRepo',
      parent: 'parentId',
      held: 'repo',
    },
    v2: { kind: 'Repo', held: 'repo' },
    values: {
      name,
      description,
      catalogTier: fc.constantFrom(...Object.keys(tiers)),
      activeTags: fc.uniqueArray(fc.stringMatching(/^[a-z0-9]{1,5}$/), { maxLength: 3 }),
    },
    required: ['name'],
    toV1: same,
    toV2: ({ catalogTier, ...values }) => ({
      ...same(values),
      ...(catalogTier === undefined ? {} : { catalogTier: tiers[catalogTier as keyof typeof tiers] }), // one of the keys
    }),
  },
  tag: {
    plural: 'tags',
    v1: { create: 'Registry/CreateTag', update: 'Registry/UpdateTag', list: 'Registry/ListTags', remove: 'Registry/DeleteTag', parent: 'repoId', held: 'tag' },
    v2: { kind: 'Tag', held: 'tag' },
    values: {
      name,
      digest: fc.constantFrom(...targets.map(({ digest }) => digest)),
      deprecated: fc.boolean(),
      bundles: fc.subarray(['application', 'base', 'fips']),
    },
    required: ['name', 'digest', 'deprecated'],
    fixed: ['name'],
    kept: ['digest'],
    moves: true,
    toV1: same,
    toV2: same,
  },
  binding: {
    plural: 'roleBindings',
    v1: { ...service('RoleBindings'), parent: 'parent', held: 'roleBinding' },
    v2: { kind: 'RoleBinding', held: 'roleBinding' },
    values: { identity: fc.constant(''), role: fc.constantFrom('viewer', 'editor', 'owner').map(roleUid) },
    required: ['role'],
    fixed: ['identity'],
    resent: ['identity'],
    masks: { role: 'roleUid' },
    prepare: async ({ parents, make }) => {
      const identity = { name: freshName('bound'), claimMatch: { issuer: 'https://issuer.example', subject: 'bound' } }
      return { values: { identity: await make('CreateIdentity', { parent: parents['members'] ?? '', identity }) } }
    },
    toV1: same,
    toV2: ({ identity, role }) => ({
      ...(identity === undefined ? {} : { identityUid: String(identity) }),
      ...(role === undefined ? {} : { roleUid: String(role) }),
    }),
  },
  provider: {
    plural: 'identityProviders',
    v1: { ...service('IdentityProviders'), parent: 'parentId', held: 'identityProvider' },
    v2: { kind: 'IdentityProvider', held: 'identityProvider' },
    values: {
      name,
      description,
      clientId: fc.stringMatching(/^[a-z]{1,8}$/),
      additionalScopes: fc.uniqueArray(fc.stringMatching(/^[a-z]{1,5}$/), { maxLength: 3 }),
      groupsClaim: fc.stringMatching(/^[a-z]{1,8}$/),
    },
    required: ['name', 'clientId'],
    masks: { clientId: 'oidc.clientId', additionalScopes: 'oidc.additionalScopes', groupsClaim: 'oidc.groupsClaim' },
    toV1: withOidc,
    toV2: withOidc,
  },
  association: {
    plural: 'accountAssociations',
    v1: { ...service('GroupAccountAssociations'), parent: 'group', held: '', id: 'group', inPlace: () => ({}) },
    v2: { kind: 'AccountAssociation', held: 'accountAssociation' },
    values: { name, description, account: fc.stringMatching(/^[1-9]\d{11}$/), tenant: fc.stringMatching(/^[a-z]{3,9}$/) },
    required: ['name', 'account'],
    masks: { account: 'amazon', tenant: 'azure' },
    // A group has one of them.
    prepare: async (place) => ({
      parent: await place.make('CreateGroup', { parent: parentIn(place, 'association'), group: { name: freshName('accounts') } }),
    }),
    toV1: withAccounts,
    toV2: withAccounts,
  },
  subscription: {
    plural: 'subscriptions',
    v1: { ...withoutUpdate('Subscriptions'), parent: 'parentId', held: 'subscription' },
    v2: { kind: 'Subscription', held: 'subscription' },
    values: { sink: fc.stringMatching(/^[a-z]{1,8}$/).map((path) => `https://hooks.example.com/${path}`) },
    required: ['sink'],
    toV1: same,
    toV2: same,
  },
  invite: {
    plural: 'groupInvites',
    v1: { ...withoutUpdate('GroupInvites'), parent: 'group', held: '', inPlace: (group) => ({ group }) },
    v2: { kind: 'GroupInvite', held: 'groupInvite', isFixed: true },
    values: {
      email: fc.stringMatching(/^[a-z]{1,8}$/).map((name) => `${name}@acme.example`),
      role: fc.constantFrom('viewer', 'editor').map(roleUid),
      singleUse: fc.boolean(),
    },
    required: ['role'],
    toV1: (values) => ({ ttl: '3600s', ...same(values) }),
    toV2: ({ role, ...values }) => ({ ttl: '3600s', roleUid: String(role), ...same(values) }),
  },
  mapping: {
    plural: 'externalGroupRoleMappings',
    v1: { ...withoutUpdate('ExternalGroupRoleMappings'), parent: 'parentId', held: 'mapping', byId: (id) => ({ uidp: { ids: [id] } }) },
    v2: { kind: 'ExternalGroupRoleMapping', held: 'externalGroupRoleMapping', isFixed: true },
    values: { externalGroupId: name, role: fc.constantFrom('viewer', 'editor').map(roleUid), scope: fc.constant('') },
    required: ['externalGroupId', 'role'],
    prepare: async ({ parents }) => ({ values: { scope: (parents['mapping'] ?? '').slice(0, 40) } }),
    toV1: ({ role, ...values }) => ({ roleUidp: String(role), ...same(values) }),
    toV2: ({ role, ...values }) => ({ roleUid: String(role), ...same(values) }),
  },
}

/** Returns the parent of the new records of a kind. */
export function parentIn({ parents }: Place, kind: string): string {
  return parents[kind] ?? ''
}

export function kindOf(kind: string): BothKind {
  const found = kinds[kind]
  if (found === undefined) throw new Error(`no kind ${kind}`)
  return found
}

/** Returns the values of new records. */
export function valuesOf(kind: string): fc.Arbitrary<Values> {
  const { values, required } = kindOf(kind)
  return fc.record(values, { requiredKeys: [...required] })
}

/** Returns the values of updates, which have those that version 1 needs, and any of the others. */
export function changesOf(kind: string): fc.Arbitrary<Values> {
  const { values, required, fixed = [], kept = [] } = kindOf(kind)
  const changeable = Object.fromEntries(Object.entries(values).filter(([field]) => !fixed.includes(field)))
  return fc.record(changeable, { requiredKeys: required.filter((field) => !fixed.includes(field) && !kept.includes(field)) })
}

/** True if a version can change records of a kind. */
export function canUpdate(kind: string, version: 'v1' | 'v2'): boolean {
  const { v1, v2 } = kindOf(kind)
  return version === 'v1' ? v1.update !== undefined : v2.isFixed !== true
}

interface Update {
  readonly version: 'v1' | 'v2'
  readonly values: Values
}

/** Returns the values after an update. Version 1, and creates that move a record, replace all except the fixed and kept ones. */
export function updated(kind: string, state: Values, { version, values }: Update): Values {
  const { fixed = [], kept = [], moves = false } = kindOf(kind)
  const lasting =
    version === 'v2' && !moves ? state : Object.fromEntries(Object.entries(state).filter(([field]) => fixed.includes(field) || kept.includes(field)))
  return { ...lasting, ...values }
}

/** Returns the values that an update sends for a record with these values: a create that moves it names the kept ones too. */
export function sentValues(kind: string, before: Values, { version, values }: Update): Values {
  const { kept = [], moves = false } = kindOf(kind)
  if (version === 'v1' || !moves) return values
  return { ...Object.fromEntries(Object.entries(before).filter(([field]) => kept.includes(field))), ...values }
}

/** Returns the method and the request of an update. `before` are the values of the record when the update was made. */
export function updateCall(kind: string, { version, values }: Update, record: { id: string; parent: string; before: Values }): [string, JsonObject] {
  const { v1, v2, toV1, toV2, moves = false, resent = [], masks = {} } = kindOf(kind)
  const again = Object.fromEntries(Object.entries(record.before).filter(([field]) => resent.includes(field)))
  if (version === 'v1') return [v1.update ?? '', { [v1.id ?? 'id']: record.id, ...toV1({ ...again, ...values }) }]
  if (moves) return [`Create${v2.kind}`, { parent: record.parent, [v2.held]: toV2(updated(kind, record.before, { version, values })) }]
  const paths = Object.keys(values).map((field) => masks[field] ?? field)
  return [`Update${v2.kind}`, { [v2.held]: { uid: record.id, ...toV2(values) }, updateMask: paths.join(',') }]
}

/** Makes what a record needs, and returns the method and the request of its create, with its values. */
export async function createCall(
  kind: string,
  { version, values: some }: Update,
  place: Place,
): Promise<{ readonly call: [string, JsonObject]; readonly values: Values }> {
  const { v1, v2, toV1, toV2, prepare } = kindOf(kind)
  const prepared = await prepare?.(place)
  const [parent, values] = [prepared?.parent ?? parentIn(place, kind), { ...some, ...prepared?.values }]
  if (version === 'v2') return { call: [`Create${v2.kind}`, { parent, [v2.held]: toV2(values) }], values }
  return { call: [v1.create, { [v1.parent]: parent, ...(v1.held === '' ? toV1(values) : { [v1.held]: toV1(values) }) }], values }
}

/** Returns the id of a record in an answer of either version. */
export function idOf(kind: string, record: JsonObject): string {
  return String(record['uid'] ?? record[kindOf(kind).v1.id ?? 'id'])
}

/** Returns the request of a list in version 1 that has all records of a place. */
export function listIn(place: Place, kind: string): [string, JsonObject] {
  const { v1 } = kindOf(kind)
  const { inPlace = (parent: string) => ({ uidp: { descendantsOf: parent } }) } = v1
  return [v1.list, inPlace(parentIn(place, kind))]
}

/** Returns the request of a list in version 1 that has one record. */
export function listOf(kind: string, id: string): [string, JsonObject] {
  const { v1 } = kindOf(kind)
  return [v1.list, v1.byId?.(id) ?? { [v1.id ?? 'id']: id }]
}

/** Returns the values of a record with the defaults of those that are not set. */
export function withDefaults(kind: string, values: Values): Values {
  const defaults: Values = { activeTags: [], additionalScopes: [], bundles: [], deprecated: false, singleUse: false }
  return Object.fromEntries(Object.keys(kindOf(kind).values).map((field) => [field, values[field] ?? defaults[field] ?? '']))
}

function withMatch({ subject, ...values }: Values): JsonObject {
  return { ...same(values), ...(subject === undefined ? {} : { claimMatch: { issuer: 'https://issuer.example', subject: String(subject) } }) }
}

function withOidc({ name: called, description: about, ...values }: Values): JsonObject {
  const oidc = { issuer: 'https://login.example', clientSecret: 'a secret', ...same(values) }
  return {
    defaultRole: roleUid('viewer'),
    ...(called === undefined ? {} : { name: called }),
    ...(about === undefined ? {} : { description: about }),
    oidc,
  } as JsonObject
}

function withAccounts({ account, tenant, ...values }: Values): JsonObject {
  return {
    ...same(values),
    ...(account === undefined ? {} : { amazon: { account: String(account) } }),
    ...(tenant === undefined ? {} : { azure: { tenantId: String(tenant), clientIds: { one: 'two' } } }),
  }
}

/** Returns the values of a record in one form for both versions, with the defaults of those that are not set. */
export function inOneForm(kind: string, values: Values): string {
  return JSON.stringify(Object.values(withDefaults(kind, values)))
}

/** Returns the values that an answer has. */
export function valuesIn(record: JsonObject): Values {
  const { claimMatch, catalogTier, capabilities: held, identity, role, ...plain } = record
  const members = (value: unknown): JsonObject => (typeof value === 'object' && value !== null ? (value as JsonObject) : {}) // JSON
  const uid = (value: unknown): string => String(members(value)['id'] ?? members(value)['uid'] ?? value)
  const names = Object.entries(capabilities).flatMap(([name, number]) => [[name, name] as const, [number, name] as const])
  const tier = String(catalogTier ?? '').replace('CATALOG_TIER_', '')
  return {
    ...(plain as Values), // the fields of a kind are texts and lists of them
    ...(members(plain['oidc']) as Values), // texts too
    ...(plain['amazon'] === undefined ? {} : { account: String(members(plain['amazon'])['account']) }),
    ...(plain['azure'] === undefined || plain['azure'] === null ? {} : { tenant: String(members(plain['azure'])['tenantId']) }),
    ...(identity === undefined && plain['identityUid'] === undefined ? {} : { identity: uid(identity ?? plain['identityUid']) }),
    ...[role, plain['roleUid'], plain['roleUidp']].flatMap((one) => (one === undefined ? [] : [{ role: uid(one) }]))[0],
    ...(claimMatch === undefined || claimMatch === null ? {} : { subject: String((claimMatch as JsonObject)['subject']) }), // of an identity
    ...(Object.hasOwn(tiers, tier) ? { catalogTier: tier } : {}),
    ...(Array.isArray(held) ? { capabilities: held.map((one) => new Map<string, string>(names).get(String(one)) ?? String(one)) } : {}),
  }
}
