import type { JsonObject } from '@bufbuild/protobuf'
import { personUid } from '../../../src/auth/oidc/issuer-name.ts'
import { setOf } from '../../../src/base/capability.ts'
import type { TokenRestrictions } from '../../../src/auth/access-tokens/token-restrictions.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { freshName, makeMember, makePerson, ok, roleUid, startTestServer, type TestServer } from '../../support/test-server.ts'
import { OciClient } from '../../registry/oci/oci-client.ts'
import { importAdvisory, ownAdvisory } from '../../support/import-advisories.ts'
import { confinedToken, trustedIssuer, walkTerms } from '../walk/world.ts'
import type { CallerName, RealPlace } from './callers.ts'

/** One record of every kind in one group: uids, and other values that requests name. */
export interface Things {
  /** The group of the other records. */
  readonly place: string
  readonly group: string
  readonly identity: string
  /** A person who is not an identity of a group, and has a role binding here. */
  readonly person: string
  readonly role: string
  readonly binding: string
  readonly invite: string
  /** Without mappings and SCIM token. */
  readonly provider: string
  /** With both; its mappings are at the root. */
  readonly mappedProvider: string
  readonly mapping: string
  readonly scimProvider: string
  readonly scimEtag: string
  readonly association: string
  readonly pullPolicy: string
  readonly subscription: string
  readonly repo: string
  readonly tag: string
  /** An image in the repo to which its tag formerly pointed. */
  readonly digest: string
  /** A repo that is synced with the other one. */
  readonly mirror: string
  /** The repo as an image reference. */
  readonly repoPath: string
  readonly placeName: string
  /** An imported one. */
  readonly advisory: string
  /** A hand-made one, and an event of it. */
  readonly ownAdvisory: string
  readonly advisoryEvent: string
}

/** Two tenants. */
export interface MatrixWorld {
  readonly server: TestServer
  readonly things: Readonly<Record<RealPlace, Things>>
  readonly tokens: Readonly<Record<CallerName, string | undefined>>
  /** An identity of the tenant that may be named in requests: it lies in the root group, and is bound in `own`. */
  readonly identity: string
}

/** The role that requests grant, which every permitted caller holds. */
export const grantedRole = roleUid('libraries.python.pull')
export const grantedCapability = 'libraries.python.list'

const oidc = { issuer: 'https://login.idp.example', clientId: 'platform', clientSecret: 'a secret' }
const claimMatch = { issuer: 'https://issuer.example', subject: 'foreign-name' }

/** A server with the configuration that the matrix needs. */
export function startMatrixServer(store: 'sqlite' | 'etcd'): Promise<TestServer> {
  const issuers = JSON.stringify([{ issuer: trustedIssuer }])
  return startTestServer({
    store,
    env: {
      TAPROOT_ISSUERS: issuers,
      TAPROOT_TERMS: JSON.stringify(walkTerms),
      TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'false',
      TAPROOT_EVENTS_DELIVER: 'false',
      TAPROOT_AUDIT_DENIED_PER_MINUTE: '1000000',
    },
  })
}

/** Creates a record as the operator, and returns the answer. */
export async function made(server: TestServer, rpc: string, request: JsonObject): Promise<JsonObject> {
  return ok(await server.rest.call(rpc, request, { token: await server.operatorToken() }))
}

async function uidOf(server: TestServer, rpc: string, request: JsonObject): Promise<string> {
  return String((await made(server, rpc, request))['uid'])
}

/** Makes a group. */
export function makeGroup(server: TestServer, parent: string, name = freshName('group')): Promise<string> {
  return uidOf(server, 'CreateGroup', parent === '' ? { group: { name } } : { parent, group: { name } })
}

/** Creates a repo with a tag that was moved once. */
async function makeImage(server: TestServer, place: string, owner: string): Promise<Pick<Things, 'repo' | 'mirror' | 'tag' | 'digest' | 'repoPath'>> {
  const name = freshName('repo')
  const repo = await uidOf(server, 'CreateRepo', { parent: place, repo: { name } })
  const mirror = await uidOf(server, 'CreateRepo', { parent: place, repo: { name: freshName('mirror'), syncConfig: { source: repo } } })
  const { host, port } = server.config.registry
  const act = { issuer: 'https://issuer.example', subject: 'matrix', audience: host }
  const { token } = await server.running.signIn.tokens.mint({ identityUid: trustedUid(owner), audiences: [host], act, restrictions: {} })
  const client = new OciClient(port, token)
  const names = await pathOf(server, place)
  const { digest } = await client.pushImage(`${names}/${name}`, 'latest')
  await client.pushImage(`${names}/${name}`, 'latest')
  client.close()
  const { tags } = await made(server, 'ListTags', { uidp: { childrenOf: repo } })
  const [tag] = tags as JsonObject[] // a list answer
  return { repo, mirror, tag: String(tag?.['uid']), digest, repoPath: `${names}/${name}` }
}

/** Returns the names of a group and of those above it. */
async function pathOf(server: TestServer, place: string): Promise<string> {
  const [root = ''] = place.split('/')
  if (root === place) return root
  return `${root}/${String((await made(server, 'GetGroup', { uid: place }))['name'])}`
}

async function makeProviders(
  server: TestServer,
  place: string,
): Promise<Pick<Things, 'provider' | 'mappedProvider' | 'mapping' | 'scimProvider' | 'scimEtag'>> {
  const one = (): Promise<string> =>
    uidOf(server, 'CreateIdentityProvider', { parent: place, identityProvider: { name: freshName('idp'), defaultRole: grantedRole, oidc } })
  const [provider, mappedProvider, scimProvider] = [await one(), await one(), await one()]
  const externalGroupRoleMapping = { externalGroupId: freshName('group'), roleUid: grantedRole, scope: place.slice(0, 40) }
  const mapping = await uidOf(server, 'CreateExternalGroupRoleMapping', { parent: mappedProvider, externalGroupRoleMapping })
  const { etag } = await made(server, 'GenerateScimToken', { identityProviderUid: scimProvider })
  return { provider, mappedProvider, mapping, scimProvider, scimEtag: String(etag) }
}

/** Creates one record of every kind in the group `place`. */
async function makeThings(server: TestServer, place: string, owner: string): Promise<Things> {
  const group = await makeGroup(server, place)
  const identity = await uidOf(server, 'CreateIdentity', { parent: place, identity: { name: 'thing', claimMatch } })
  const { uid: person } = await makePerson(server, { issuer: trustedIssuer, subject: freshName('person') })
  await made(server, 'CreateRoleBinding', { parent: place, roleBinding: { identityUid: person, roleUid: grantedRole } })
  const role = await uidOf(server, 'CreateRole', { parent: place, role: { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST'] } })
  const roleBinding = { identityUid: identity, roleUid: grantedRole }
  const binding = await uidOf(server, 'CreateRoleBinding', { parent: place, roleBinding })
  const invite = await uidOf(server, 'CreateGroupInvite', { parent: place, groupInvite: { roleUid: grantedRole, ttl: '3600s' } })
  const subscription = await uidOf(server, 'CreateSubscription', {
    parent: place,
    subscription: { sink: 'https://hooks.example.com/taproot', types: ['dev.taproot.api.iam.group.'], signing: 'STANDARD_WEBHOOKS' },
  })
  const accountAssociation = { name: 'accounts', amazon: { account: '123456789012' } }
  const association = await uidOf(server, 'CreateAccountAssociation', { parent: place, accountAssociation })
  const pullPolicy = await uidOf(server, 'CreatePullPolicy', { parent: place, pullPolicy: { name: freshName('policy') } })
  await made(server, 'AcceptTerms', { group: place, documentIds: [walkTerms[0].id] })
  const own = await ownAdvisory(server, place, { events: [{ detection: { manual: {} } }] })
  const [event] = own['events'] as JsonObject[] // of this advisory
  return {
    advisory: await importAdvisory(server, place, freshName('matrix')),
    ownAdvisory: String(own['id']),
    advisoryEvent: String(event?.['id']),
    placeName: String((await made(server, 'GetGroup', { uid: place }))['name']),
    ...{ place, group, identity, person, role, binding, invite, association, subscription, pullPolicy },
    ...(await makeProviders(server, place)),
    ...(await makeImage(server, place, owner)),
  }
}

/** Creates the tenants, their records, and all callers. */
export async function makeMatrixWorld(server: TestServer): Promise<MatrixWorld> {
  const [ancestor, other] = [await makeGroup(server, ''), await makeGroup(server, '')]
  const [own, sibling] = [await makeGroup(server, ancestor), await makeGroup(server, ancestor)]
  const [mine, theirs] = [await makeMember(server, ancestor, { role: 'owner' }), await makeMember(server, other, { role: 'owner' })]
  const things = {
    own: await makeThings(server, own, mine.uid),
    ancestor: await makeThings(server, ancestor, mine.uid),
    sibling: await makeThings(server, sibling, mine.uid),
    other: await makeThings(server, other, theirs.uid),
  }
  const { uid: identity } = await makeMember(server, ancestor, { role: 'libraries.python.pull', bindAt: own })
  return { server, things, identity, tokens: await tokensOf(server, { own, ancestor, other }, { mine, theirs }) }
}

interface Member {
  readonly uid: string
  readonly token: string
}

/** Creates a person who owns all three groups and joined them. */
async function ownerOfAll(server: TestServer, groups: readonly string[]): Promise<string> {
  const { uid, token } = await makePerson(server, { issuer: trustedIssuer, subject: freshName('person') })
  for (const parent of groups) {
    await made(server, 'CreateRoleBinding', { parent, roleBinding: { identityUid: uid, roleUid: roleUid('owner') } })
    ok(await server.rest.call('JoinGroup', { uid: parent }, { token }))
  }
  return uid
}

type Groups = Readonly<Record<'own' | 'ancestor' | 'other', string>>

/** Creates a viewer of the root who owns the subgroup. */
async function viewerAndOwner(server: TestServer, { own, ancestor }: Groups): Promise<string> {
  const { uid, token } = await makeMember(server, ancestor, { role: 'viewer' })
  await made(server, 'CreateRoleBinding', { parent: own, roleBinding: { identityUid: uid, roleUid: roleUid('owner') } })
  return token
}

/** Returns an operator's token from a sign-in by the provider of a group. */
async function operatorByProvider(server: TestServer, group: string): Promise<string> {
  const { config, running } = server
  const [operator] = config.bootstrap.operators
  if (operator === undefined) throw new Error('no operator is configured')
  await makePerson(server, operator)
  const act = { ...operator, audience: config.baseUrl }
  const identityUid = personUid(operator.issuer, operator.subject)
  return (await running.signIn.tokens.mint({ identityUid, audiences: [config.baseUrl], act, restrictions: { trustedGroups: [trustedUid(group)] } })).token
}

async function tokensOf(server: TestServer, groups: Groups, owners: { mine: Member; theirs: Member }): Promise<MatrixWorld['tokens']> {
  const { own, ancestor, other } = groups
  const { mine, theirs } = owners
  const member = async (role: string, bindAt: string): Promise<string> => (await makeMember(server, ancestor, { role, bindAt })).token
  const cut = (restrictions: TokenRestrictions): Promise<string> => server.tokenFor(mine.uid, restrictions)
  const bare = await makeMember(server, ancestor)
  const everywhere = await ownerOfAll(server, [ancestor, other])
  return {
    'an anonymous caller': undefined,
    'a person without any binding': (await makePerson(server, { issuer: trustedIssuer, subject: freshName('person') })).token,
    "another tenant's owner": theirs.token,
    'a viewer of the root': await member('viewer', ancestor),
    'an editor of the root': await member('editor', ancestor),
    'an owner of the root': mine.token,
    'a viewer of the subgroup': await member('viewer', own),
    'an editor of the subgroup': await member('editor', own),
    'an owner of the subgroup': await member('owner', own),
    'a viewer of the root who owns the subgroup': await viewerAndOwner(server, groups),
    'an identity of the subgroup': await confinedToken({ server, group: ancestor, subgroup: own }),
    'a pull token of the subgroup': (await makeMember(server, own, { role: 'registry.pull' })).token,
    'an owner, cut to groups.list': await cut({ capabilities: setOf(['groups.list']) }),
    'an owner, cut to the subgroup': await cut({ scopes: [trustedUid(own)] }),
    'an owner, cut to another tenant': await cut({ scopes: [trustedUid(other)] }),
    'a mapped viewer': await server.tokenFor(bare.uid, { roles: [{ group: trustedUid(ancestor), role: trustedUid(roleUid('viewer')) }] }),
    'an owner everywhere, by the provider of the subgroup': await server.tokenFor(everywhere, { trustedGroups: [trustedUid(own)] }),
    'an operator, by a provider': await operatorByProvider(server, ancestor),
    'an operator': await server.operatorToken(),
  }
}
