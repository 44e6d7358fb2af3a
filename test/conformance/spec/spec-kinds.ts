import type { JsonObject } from '@bufbuild/protobuf'
import type { Options } from '../../support/api-clients.ts'
import { freshName, makeMember, roleUid } from '../../support/test-server.ts'
import type { Spec } from './spec-suite.ts'

/** A valid claim match that no other record has. */
export function claimMatch(): JsonObject {
  return { issuer: 'https://issuer.example', subject: freshName('subject') }
}

/** A kind of this part, as the tests that hold for all kinds need it. */
export interface SpecKind {
  readonly kind: 'Group' | 'Identity' | 'Role' | 'RoleBinding' | 'IdentityProvider' | 'Repo'
  readonly domain: 'iam' | 'registry'
  readonly list: string
  /** The array in a list answer. */
  readonly plural: string
  /** The resource in a request. */
  readonly field: string
  readonly collection: string
  /** A valid body for a create below `group`. */
  draft(spec: Spec, group: string): Promise<JsonObject>
  /** A change that is valid for a record made from `draft`, and what it changes. */
  change(spec: Spec, group: string): Promise<JsonObject>
}

/** Groups, identities, roles, role bindings, identity providers, repos. */
export const specKinds: readonly SpecKind[] = [
  {
    kind: 'Group',
    domain: 'iam',
    list: 'ListGroups',
    plural: 'groups',
    field: 'group',
    collection: 'groups',
    draft: () => Promise.resolve({ name: freshName('group'), description: 'first' }),
    change: () => Promise.resolve({ description: 'changed' }),
  },
  {
    kind: 'Identity',
    domain: 'iam',
    list: 'ListIdentities',
    plural: 'identities',
    field: 'identity',
    collection: 'identities',
    draft: () => Promise.resolve({ name: freshName('identity'), description: 'first', claimMatch: claimMatch() }),
    change: () => Promise.resolve({ description: 'changed' }),
  },
  {
    kind: 'Role',
    domain: 'iam',
    list: 'ListRoles',
    plural: 'roles',
    field: 'role',
    collection: 'roles',
    draft: () => Promise.resolve({ name: freshName('role'), description: 'first', capabilities: ['CAP_IAM_GROUPS_LIST'] }),
    change: () => Promise.resolve({ description: 'changed' }),
  },
  {
    kind: 'RoleBinding',
    domain: 'iam',
    list: 'ListRoleBindings',
    plural: 'roleBindings',
    field: 'roleBinding',
    collection: 'roleBindings',
    draft: async (spec, group) => ({ identityUid: (await makeMember(spec.server, group)).uid, roleUid: roleUid('viewer') }),
    change: () => Promise.resolve({ roleUid: roleUid('editor') }),
  },
  {
    kind: 'IdentityProvider',
    domain: 'iam',
    list: 'ListIdentityProviders',
    plural: 'identityProviders',
    field: 'identityProvider',
    collection: 'identityProviders',
    // No issuer at a private address is asked whether it knows PKCE.
    draft: () =>
      Promise.resolve({
        name: freshName('idp'),
        description: 'first',
        defaultRole: roleUid('viewer'),
        oidc: { issuer: 'https://127.0.0.1/idp', clientId: 'platform', pkceEnabled: true },
      }),
    change: () => Promise.resolve({ description: 'changed' }),
  },
  {
    kind: 'Repo',
    domain: 'registry',
    list: 'ListRepos',
    plural: 'repos',
    field: 'repo',
    collection: 'repos',
    draft: () => Promise.resolve({ name: freshName('repo'), description: 'first', aliases: ['library/nginx:latest'] }),
    change: () => Promise.resolve({ description: 'changed' }),
  },
]

/** Creates a record of `kind` below `group`, over the transport under test. */
export async function create(spec: Spec, kind: SpecKind, at: { group: string; draft?: JsonObject }, options: Options): Promise<JsonObject> {
  const draft = at.draft ?? (await kind.draft(spec, at.group))
  return spec.ok(`Create${kind.kind}`, { parent: at.group, [kind.field]: draft }, options)
}

/** Creates a group below `parent`. */
export async function subgroup(spec: Spec, parent: string, token: string, name = freshName('sub')): Promise<string> {
  return String((await spec.ok('CreateGroup', { parent, group: { name } }, { token }))['uid'])
}

/** Creates an identity below `parent`. */
export async function identityUnder(spec: Spec, parent: string, token: string, name = freshName('identity')): Promise<JsonObject> {
  return spec.ok('CreateIdentity', { parent, identity: { name, claimMatch: claimMatch() } }, { token })
}
