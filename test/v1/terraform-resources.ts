import type { JsonObject, JsonValue } from '@bufbuild/protobuf'
import { expect } from 'vitest'
import { itemsOf, uidOf } from '../conformance/spec/spec-suite.ts'
import { roleUid } from '../support/test-server.ts'

/** The records that a configuration refers to. */
export interface TerraformPlace {
  /** A new group, in which the resource is. */
  readonly group: string
  /** A name that no other root group has. */
  readonly name: string
  readonly identities: readonly [string, string]
  readonly role: string
  readonly source: string
}

/** A call: the method and its request. */
export type ProviderCall = readonly [rpc: string, request: JsonObject]

/** The calls of the life of a resource. */
interface Calls {
  create(parent: string, attributes: JsonObject): ProviderCall
  read(id: string): ProviderCall
  /** Absent for resources that Terraform replaces. `changed` are the names of the attributes that differ. */
  update?: (id: string, attributes: JsonObject, changed: readonly string[]) => ProviderCall
  /** Absent for resources that Terraform never deletes. */
  delete?: (id: string) => ProviderCall
  /** Returns the record in the answer of a read; undefined if the answer has none. */
  recordIn(body: JsonObject): JsonObject | undefined
  idOf(record: JsonObject): string
  /** A delete of a missing record may be code 5. */
  readonly forgives: boolean
}

/** The calls of the preview of version 2. `maskOf` returns the mask of an update. */
function preview(kind: string, maskOf: (changed: readonly string[]) => string = () => '*'): Calls {
  const held = `${kind.charAt(0).toLowerCase()}${kind.slice(1)}`
  return {
    create: (parent, attributes) => [`Create${kind}`, { ...(parent === '' ? {} : { parent }), [held]: attributes }],
    read: (uid) => [`Get${kind}`, { uid }],
    update: (uid, attributes, changed) => [`Update${kind}`, { [held]: { uid, ...attributes }, updateMask: maskOf(changed) }],
    delete: (uid) => [`Delete${kind}`, { uid }],
    recordIn: (body) => body,
    idOf: uidOf,
    forgives: true,
  }
}

/** Leaves updates out: Terraform replaces such a resource. */
function replaced({ update: _update, ...calls }: Calls): Calls {
  return calls
}

/** The calls of version 1. */
function version1(service: string, { kind = '', parent = 'parentId' }: { kind?: string; parent?: string } = {}): Calls {
  const held = (kind || service.replace(/s$/, '')).toLowerCase()
  return {
    create: (uid, attributes) => [`${service}/Create${kind}`, { [parent]: uid, [held]: attributes }],
    read: (id) => [`${service}/List${kind === '' ? '' : `${kind}s`}`, { id }],
    update: (id, attributes) => [`${service}/Update${kind}`, { id, ...attributes }],
    delete: (id) => [`${service}/Delete${kind}`, { id }],
    recordIn(body) {
      const items = itemsOf(body, 'items')
      expect(items.length).toBeLessThanOrEqual(1)
      return items[0]
    },
    idOf: ({ id }) => String(id),
    forgives: false,
  }
}

/** A type of resource, the first configuration, and the changes of it that are applied one after the other. Undefined attributes are left out. */
export interface ResourceType {
  readonly calls: Calls
  /** Where the resource is, if that is not the group of the place. A root group is nowhere, and an operator applies it. */
  readonly where?: 'repo' | 'nowhere'
  readonly first: (place: TerraformPlace) => JsonObject
  readonly changes?: Readonly<Record<string, (place: TerraformPlace) => Record<string, JsonValue | undefined>>>
  /** Fields, at any depth, that no answer has, or that the provider does not read. */
  readonly ignored?: readonly string[]
  /** Returns the attributes in a record, if they have other names there. */
  readonly attributesOf?: (record: JsonObject) => JsonObject
  /** Fields that the server sets, and that every answer must have. */
  readonly computed?: readonly string[]
  /** Fields that only the answer of the create has. */
  readonly once?: readonly string[]
  /** What another client changes. */
  readonly behind?: (id: string, place: TerraformPlace) => ProviderCall
  /** How another client deletes the record: a method for the uid, or a call. */
  readonly remove: string | ((id: string) => ProviderCall)
}

function withoutCharts(repoId: string): ProviderCall {
  return ['Registry/UpdateDeployment', { repoId }]
}

const issuer = 'https://issuer.example'

/** Returns a set with a key that has this id. */
function jwks(kid: string): string {
  const point = { x: 'f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU', y: 'x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0' }
  return JSON.stringify({ keys: [{ kty: 'EC', crv: 'P-256', ...point, kid, alg: 'ES256' }] })
}

const aws = { awsAccount: '123456789012', arn: 'arn:aws:sts::123456789012:assumed-role/x/y', userIdPattern: '^AROA:.*$' }
const oidc = { issuer: 'https://login.example', clientId: 'terraform', clientSecret: 'a secret', additionalScopes: ['profile', 'email'] }
const amazon = { account: '123456789012' }
const times = ['createTime', 'updateTime']

/** The mask of an update of a group: `kind` only if it changed. */
function groupMask(changed: readonly string[]): string {
  return ['name', 'description', 'verified', ...changed.filter((field) => field === 'kind')].join(',')
}

/** Returns the attributes of an identity with static keys. */
function staticKeys(days: number, others: JsonObject = {}): JsonObject {
  const expirationTime = new Date(Date.now() + days * 24 * 3600 * 1000).toISOString()
  return { staticKeys: { issuer, subject: 'one', issuerKeys: jwks('one'), expirationTime, ...others } }
}

/** Returns an identity with another member of its relationship. */
function identityWith(relationship: JsonObject): ResourceType['first'] {
  return () => ({ name: 'ci', description: 'first', ...relationship })
}

const identity = {
  calls: preview('Identity'),
  computed: times,
  behind: (uid) => ['UpdateIdentity', { identity: { uid, name: 'behind' }, updateMask: 'name' }],
  remove: 'DeleteIdentity',
} satisfies Partial<ResourceType>

/**
 * The resources of a Terraform provider for this API family, with its calls. It uses the preview of version 2 for most of them, and
 * version 1 for subscriptions, repos and tags. Its builds of images are methods that are not served (test/conformance/walk/v1/wire.test.ts).
 */
export const resourceTypes: Readonly<Record<string, ResourceType>> = {
  group: {
    calls: preview('Group', groupMask),
    first: () => ({ name: 'team', description: 'first', verified: false }),
    changes: { name: () => ({ name: 'other' }), description: () => ({ description: 'changed' }), 'no description': () => ({ description: undefined }) },
    computed: ['resourceLimits'],
    behind: (uid) => ['UpdateGroup', { group: { uid, description: 'behind' }, updateMask: 'description' }],
    remove: 'DeleteGroup',
  },
  'root group': {
    calls: preview('Group', groupMask),
    where: 'nowhere',
    first: ({ name }) => ({ name, description: 'first', verified: false }),
    changes: {
      name: ({ name }) => ({ name: `${name}-2` }),
      'verified and kind': () => ({ verified: true, kind: 'ORG_KIND_CUSTOMER' }),
      description: () => ({ description: 'changed' }),
      kind: () => ({ kind: 'ORG_KIND_DEV' }),
      'neither verified nor kind': () => ({ verified: false, kind: undefined }),
    },
    computed: ['resourceLimits'],
    behind: (uid) => ['UpdateGroup', { group: { uid, verified: true, kind: 'ORG_KIND_STARTER' }, updateMask: 'verified,kind' }],
    remove: 'DeleteGroup',
  },
  identity: {
    ...identity,
    first: identityWith({ claimMatch: { issuer, subject: 'repo:one', audience: 'https://aud.example', claims: { email: 'a@b.c' } } }),
    changes: {
      name: () => ({ name: 'cd' }),
      description: () => ({ description: 'changed' }),
      subject: () => ({ claimMatch: { issuer, subject: 'repo:two', audience: 'https://aud.example', claims: { email: 'a@b.c' } } }),
      patterns: () => ({ claimMatch: { issuerPattern: '^https://.*$', subjectPattern: '^repo:.*$', claimPatterns: { email: '.*' } } }),
      'other patterns': () => ({ claimMatch: { issuer, subjectPattern: '^repo:.*$', audiencePattern: '^aud.*$', claims: { team: 'a' } } }),
      'no claims': () => ({ claimMatch: { issuer, subjectPattern: '^repo:.*$' } }),
      'another relationship': () => ({ claimMatch: undefined, awsIdentity: aws }),
      'no description': () => ({ description: undefined }),
    },
  },
  'identity with static keys': {
    ...identity,
    first: identityWith(staticKeys(20)),
    changes: {
      expiration: () => staticKeys(25),
      subject: () => staticKeys(25, { subject: 'two' }),
      'issuer and keys': () => staticKeys(25, { issuer: 'https://other.example', issuerKeys: jwks('two') }),
      'no description': () => ({ description: undefined }),
    },
  },
  'identity of AWS': {
    ...identity,
    first: identityWith({ awsIdentity: aws }),
    changes: {
      patterns: () => ({ awsIdentity: { awsAccount: '123456789012', arnPattern: '^arn:.*$', userId: 'AROA:y' } }),
      account: () => ({ awsIdentity: { ...aws, awsAccount: '210987654321', arn: 'arn:aws:sts::210987654321:assumed-role/x/y' } }),
    },
  },
  role: {
    calls: preview('Role'),
    first: () => ({ name: 'builder', description: 'first', capabilities: ['CAP_IAM_GROUPS_LIST', 'CAP_REPO_LIST'] }),
    changes: {
      name: () => ({ name: 'deployer' }),
      'no description': () => ({ description: undefined }),
      // docs/spec/iam.md#custom-roles: in the order of their numbers.
      capabilities: () => ({ capabilities: ['CAP_IAM_GROUPS_LIST', 'CAP_IAM_ROLES_LIST', 'CAP_REPO_LIST'] }),
    },
    behind: (uid) => ['UpdateRole', { role: { uid, capabilities: ['CAP_REPO_LIST'] }, updateMask: 'capabilities' }],
    remove: 'DeleteRole',
  },
  rolebinding: {
    calls: preview('RoleBinding'),
    first: ({ identities: [identityUid], role }) => ({ identityUid, roleUid: role }),
    changes: { identity: ({ identities: [, identityUid] }) => ({ identityUid }), role: () => ({ roleUid: roleUid('viewer') }) },
    attributesOf: ({ identity: bound, role }) => ({ identityUid: (bound as JsonObject)['uid'] ?? '', roleUid: (role as JsonObject)['uid'] ?? '' }), // messages
    behind: (uid) => ['UpdateRoleBinding', { roleBinding: { uid, roleUid: roleUid('editor') }, updateMask: 'roleUid' }],
    remove: 'DeleteRoleBinding',
  },
  identity_provider: {
    calls: preview('IdentityProvider'),
    first: ({ role }) => ({ name: 'sso', description: 'first', defaultRole: role, oidc }),
    changes: {
      name: () => ({ name: 'login' }),
      'no description': () => ({ description: undefined }),
      role: () => ({ defaultRole: roleUid('viewer') }),
      scopes: () => ({ oidc: { ...oidc, additionalScopes: ['email', 'groups', 'profile'] } }),
      'no scopes': () => ({ oidc: { ...oidc, additionalScopes: [] } }),
      'issuer, client and secret': () => ({ oidc: { issuer: 'https://other.example', clientId: 'two', clientSecret: 'another' } }),
    },
    ignored: ['clientSecret', 'correlationRule'],
    behind: (uid) => ['UpdateIdentityProvider', { identityProvider: { uid, description: 'behind' }, updateMask: 'description' }],
    remove: 'DeleteIdentityProvider',
  },
  account_associations: {
    calls: preview('AccountAssociation'),
    first: () => ({ name: 'accounts', description: 'first', amazon }),
    changes: {
      name: () => ({ name: 'clouds' }),
      'no description': () => ({ description: undefined }),
      account: () => ({ amazon: { account: '210987654321' } }),
      google: () => ({ google: { projectId: 'acme', projectNumber: '42' } }),
      'no amazon, but azure': () => ({ amazon: undefined, azure: { tenantId: 'acme.example', clientIds: { one: 'two' } } }),
      github: () => ({ github: { appInstallations: { 7: { installations: [{ installationId: '8', name: 'acme' }] } } } }),
      'only github': () => ({ google: undefined, azure: undefined }),
    },
    behind: (uid) => ['UpdateAccountAssociation', { accountAssociation: { uid, amazon: { account: '000000000000' } }, updateMask: 'amazon' }],
    remove: 'DeleteAccountAssociation',
  },
  group_invite: {
    calls: replaced(preview('GroupInvite')),
    first: ({ role }) => ({ ttl: '3600s', roleUid: role, email: 'new@acme.example' }),
    // A read only asks whether the invite exists.
    attributesOf: () => ({}),
    ignored: ['ttl', 'roleUid', 'email'],
    once: ['code'],
    remove: 'DeleteGroupInvite',
  },
  subscription: {
    calls: replaced(version1('Subscriptions')),
    first: () => ({ sink: 'https://hooks.example.com/terraform' }),
    behind: (uid) => ['UpdateSubscription', { subscription: { uid, sink: 'https://hooks.example.com/behind' }, updateMask: 'sink' }],
    remove: 'DeleteSubscription',
  },
  image_repo: {
    calls: version1('Registry', { kind: 'Repo' }),
    first: () => ({
      name: 'nginx',
      description: 'first',
      readme: '# Read me',
      catalogTier: 'BASE',
      bundles: ['fips', 'base'],
      aliases: ['library/nginx:latest', 'nginx:1'],
      activeTags: ['2', '1'],
    }),
    changes: {
      name: () => ({ name: 'httpd' }),
      description: () => ({ description: 'changed' }),
      readme: () => ({ readme: '# Another' }),
      tier: () => ({ catalogTier: 'APPLICATION' }),
      bundles: () => ({ bundles: ['base'] }),
      aliases: () => ({ aliases: ['nginx:1', 'library/nginx:latest'] }),
      'active tags': () => ({ activeTags: ['1', '3', '2'] }),
      'nothing but the name': () => ({ description: undefined, readme: undefined, catalogTier: undefined, bundles: [], aliases: [], activeTags: [] }),
    },
    computed: ['createTime'],
    behind: (uid) => ['UpdateRepo', { repo: { uid, description: 'behind', activeTags: ['9'] }, updateMask: 'description,activeTags' }],
    remove: 'DeleteRepo',
  },
  'image_repo with a sync': {
    calls: version1('Registry', { kind: 'Repo' }),
    first: ({ source }) => ({ name: 'nginx', readme: '', sync_config: { source, google: 'europe', gracePeriod: false, uniqueTags: false } }),
    changes: {
      description: () => ({ description: 'changed' }),
      amazon: ({ source }) => ({ sync_config: { source, amazon: 'eu-1', gracePeriod: false, uniqueTags: false } }),
      azure: ({ source }) => ({ sync_config: { source, azure: 'west', gracePeriod: false, uniqueTags: false } }),
      'no sync': () => ({ sync_config: undefined }),
    },
    computed: ['createTime'],
    attributesOf(record) {
      const { sync_config: sync } = record
      if (sync !== null) expect(sync).toMatchObject({ expiration: expect.stringMatching(/Z$/) as unknown, uniqueTags: false, gracePeriod: false })
      return record
    },
    ignored: ['expiration', 'syncApks', 'apkoOverlay'],
    behind: (uid) => ['UpdateRepo', { repo: { uid, description: 'behind' }, updateMask: 'description' }],
    remove: 'DeleteRepo',
  },
  // The provider knows no digests: the build that the configuration describes pushes them.
  image_tag: {
    calls: version1('Registry', { kind: 'Tag', parent: 'repoId' }),
    where: 'repo',
    first: () => ({ name: 'latest', bundles: ['base', 'application'], deprecated: false }),
    changes: {
      deprecated: () => ({ deprecated: true }),
      bundles: () => ({ bundles: ['fips'] }),
      'no bundles': () => ({ bundles: [], deprecated: false }),
    },
    computed: ['lastUpdated', 'digest'],
    behind: (id) => ['Registry/UpdateTag', { id, deprecated: true }],
    remove: 'DeleteTag',
  },
  // Its delete is an update without charts.
  image_repo_deployment: {
    calls: {
      create: (parentId, attributes) => ['Registry/CreateDeployment', { parentId, ...attributes }],
      read: (repoId) => ['Registry/GetDeployment', { repoId }],
      update: (repoId, attributes) => ['Registry/UpdateDeployment', { repoId, ...attributes }],
      delete: withoutCharts,
      recordIn: (body) => (itemsOf(body, 'charts').length === 0 ? undefined : body),
      idOf: ({ id }) => String(id),
      forgives: false,
    },
    where: 'repo',
    first: () => ({ charts: [{ repo: 'oci://charts.example/nginx' }] }),
    changes: {
      'another chart': () => ({
        charts: [{ repo: 'oci://charts.example/nginx' }, { repo: 'https://charts.example', chart: 'web', source: 'https://git.example' }],
      }),
      'no longer the first': () => ({ charts: [{ repo: 'https://charts.example', chart: 'web' }] }),
    },
    behind: (repoId) => ['Registry/UpdateDeployment', { repoId, charts: [{ repo: 'oci://other.example' }] }],
    remove: withoutCharts,
  },
}
