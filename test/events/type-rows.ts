import type { JsonObject } from '@bufbuild/protobuf'
import { expect } from 'vitest'
import { methods } from '../../src/base/schema/schema.ts'
import { rootOf, trustedUid } from '../../src/base/uid.ts'
import { isMapped } from '../support/api-clients.ts'
import { freshName, makeMember, roleUid, type Organisation, type TestServer } from '../support/test-server.ts'
import { asEventBody, type ExpectedEvent } from './event-ground.ts'

const oidc = { issuer: 'https://login.idp.example', clientId: 'platform', clientSecret: 'the secret of the client' }
const zeros = `sha256:${'0'.repeat(64)}`

/** The expected parts besides the type, if they differ from the usual: the parent as group, and the organisation's owner as actor. */
type Expectation = Omit<ExpectedEvent, 'type' | 'actor' | 'group'> & Partial<Pick<ExpectedEvent, 'actor' | 'group'>>

/** The organisation and transport of a row. */
export interface Scene extends Organisation {
  readonly server: TestServer
  call(rpc: string, request: JsonObject, token?: string): Promise<JsonObject>
  make(rpc: string, request: JsonObject): Promise<string>
}

/** Functions by type: each causes the event, and returns what it must contain. */
type Rows = Readonly<Record<string, (scene: Scene) => Promise<Expectation>>>

const root = (uid: string): string => rootOf(trustedUid(uid))

/** Calls a method that returns a record, and expects that record as the body. */
async function recordEvent(scene: Scene, rpc: string, request: JsonObject, source: string): Promise<Expectation & { body: JsonObject }> {
  const answer = await scene.call(rpc, request)
  return { subject: String(answer['uid']), source, bodyType: bodyTypeOf(rpc, 'output'), body: asEventBody(rpc, answer) }
}

function bodyTypeOf(rpc: string, side: 'input' | 'output'): string {
  const method = methods.find((row) => row.rpc === rpc && row.event !== undefined && !isMapped(row))
  return String(method?.[side].typeName).replace(/^taproot\./, '')
}

/** Calls a delete, and expects its request as the body. */
async function deleteEvent(scene: Scene, rpc: string, uid: string, source: string): Promise<Expectation> {
  await scene.call(rpc, { uid })
  return { subject: uid, source, bodyType: bodyTypeOf(rpc, 'input'), body: { uid } }
}

const newGroup = (scene: Scene): Promise<string> => scene.make('CreateGroup', { parent: scene.group, group: { name: freshName('team') } })
const newRole = (scene: Scene): Promise<string> =>
  scene.make('CreateRole', { parent: scene.group, role: { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST'] } })
const identity = () => ({ name: freshName('build'), claimMatch: { issuer: 'https://issuer.example', subject: freshName('subject') } })
const newIdentity = (scene: Scene): Promise<string> => scene.make('CreateIdentity', { parent: scene.group, identity: identity() })
const newBinding = async (scene: Scene): Promise<string> =>
  scene.make('CreateRoleBinding', { parent: scene.group, roleBinding: { identityUid: await newIdentity(scene), roleUid: roleUid('viewer') } })
const provider = () => ({
  name: freshName('idp'),
  defaultRole: roleUid('viewer'),
  oidc: { ...oidc, correlationRule: 'CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID' },
})
const newProvider = (scene: Scene): Promise<string> => scene.make('CreateIdentityProvider', { parent: scene.group, identityProvider: provider() })
const mapping = ({ group }: Scene) => ({ externalGroupId: freshName('staff'), roleUid: roleUid('viewer'), scope: group })
const newMapping = (scene: Scene, idp: string): Promise<string> =>
  scene.make('CreateExternalGroupRoleMapping', { parent: idp, externalGroupRoleMapping: mapping(scene) })
export const invite = () => ({ roleUid: roleUid('viewer'), ttl: '3600s' })
const account = () => ({ name: 'accounts', amazon: { account: '123456789012' } })
export const newRepo = (scene: Scene): Promise<string> => scene.make('CreateRepo', { parent: scene.group, repo: { name: freshName('repo') } })
const newTag = (scene: Scene, repo: string): Promise<string> => scene.make('CreateTag', { parent: repo, tag: { name: 'latest', digest: zeros } })
const subscription = { sink: 'https://hooks.example.com/taproot' }

/** Returns a provider in the form of events: without secret, times and SCIM status; with rule and PKCE. */
function providerBody(answer: JsonObject): JsonObject {
  const { createTime: _created, updateTime: _updated, scim: _scim, ...rest } = answer
  return rest
}

async function providerEvent(scene: Scene, rpc: string, request: JsonObject): Promise<Expectation> {
  const event = await recordEvent(scene, rpc, request, '/iam/v2/identityProviders')
  expect(event.body).toMatchObject({ oidc: { correlationRule: 'CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID' } })
  expect(JSON.stringify(event.body)).not.toContain('ecret')
  return { ...event, body: providerBody(event.body) }
}

/** Calls a SCIM method, and expects its answer without the token as the body. */
async function scimEvent(scene: Scene, uid: string, { rpc, request = {} }: { rpc: string; request?: JsonObject }): Promise<Expectation> {
  const { token: _token, ...answer } = asEventBody(rpc, await scene.call(rpc, { identityProviderUid: uid, ...request }))
  return { subject: uid, source: '/iam/v2/identityProviders', bodyType: bodyTypeOf(rpc, 'output'), body: answer }
}

const iamRows: Rows = {
  'api.iam.group.created.v1': async (scene) => {
    const event = await recordEvent(scene, 'CreateGroup', { parent: scene.group, group: { name: freshName('team') } }, '/iam/v2/groups')
    return { ...event, group: event.subject }
  },
  'api.iam.group.updated.v1': async (scene) => {
    const uid = await newGroup(scene)
    const event = await recordEvent(scene, 'UpdateGroup', { group: { uid, description: 'the "best" team' } }, '/iam/v2/groups')
    return { ...event, group: uid }
  },
  'api.iam.group.deleted.v1': async (scene) => deleteEvent(scene, 'DeleteGroup', await newGroup(scene), '/iam/v2/groups'),
  'api.iam.identity.created.v1': (scene) => recordEvent(scene, 'CreateIdentity', { parent: scene.group, identity: identity() }, '/iam/v2/identities'),
  'api.iam.identity.updated.v1': async (scene) =>
    recordEvent(scene, 'UpdateIdentity', { identity: { uid: await newIdentity(scene), description: 'builds' } }, '/iam/v2/identities'),
  'api.iam.identity.deleted.v1': async (scene) => deleteEvent(scene, 'DeleteIdentity', await newIdentity(scene), '/iam/v2/identities'),
  'api.iam.roles.created.v1': (scene) =>
    recordEvent(scene, 'CreateRole', { parent: scene.group, role: { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST'] } }, '/iam/v2/roles'),
  'api.iam.roles.updated.v1': async (scene) => recordEvent(scene, 'UpdateRole', { role: { uid: await newRole(scene), description: 'reads' } }, '/iam/v2/roles'),
  'api.iam.roles.deleted.v1': async (scene) => deleteEvent(scene, 'DeleteRole', await newRole(scene), '/iam/v2/roles'),
  'api.iam.rolebindings.created.v1': async (scene) => {
    const roleBinding = { identityUid: await newIdentity(scene), roleUid: roleUid('viewer') }
    return recordEvent(scene, 'CreateRoleBinding', { parent: scene.group, roleBinding }, '/iam/v2/roleBindings')
  },
  'api.iam.rolebindings.updated.v1': async (scene) =>
    recordEvent(scene, 'UpdateRoleBinding', { roleBinding: { uid: await newBinding(scene), roleUid: roleUid('editor') } }, '/iam/v2/roleBindings'),
  'api.iam.rolebindings.deleted.v1': async (scene) => deleteEvent(scene, 'DeleteRoleBinding', await newBinding(scene), '/iam/v2/roleBindings'),
  'api.iam.rolebindings.created.batch.v1': async (scene) => {
    const requests = [await newIdentity(scene), await newIdentity(scene)].map((identityUid) => ({ roleBinding: { identityUid, roleUid: roleUid('viewer') } }))
    const answer = await scene.call('BatchCreateRoleBindings', { parent: scene.group, requests })
    const rpc = 'BatchCreateRoleBindings'
    const body = asEventBody(rpc, answer)
    expect(body['roleBindings']).toHaveLength(2)
    return { subject: scene.group, group: scene.group, source: '/iam/v2/roleBindings:batchCreate', bodyType: bodyTypeOf(rpc, 'output'), body }
  },
  'api.iam.group_invite.created.v1': async (scene) => {
    const rpc = 'CreateGroupInvite'
    const { uid = '', expirationTime = '' } = await scene.call(rpc, { parent: scene.group, groupInvite: invite() })
    return { subject: String(uid), source: '/iam/v2/groupInvites', bodyType: bodyTypeOf(rpc, 'output'), body: asEventBody(rpc, { uid, expirationTime }) }
  },
  'api.iam.group_invite.deleted.v1': async (scene) =>
    deleteEvent(scene, 'DeleteGroupInvite', await scene.make('CreateGroupInvite', { parent: scene.group, groupInvite: invite() }), '/iam/v2/groupInvites'),
  'api.iam.account_associations.created.v1': async (scene) => {
    const request = { parent: scene.group, accountAssociation: account() }
    return { ...(await recordEvent(scene, 'CreateAccountAssociation', request, '/iam/v2/accountAssociations')), group: scene.group }
  },
  'api.iam.account_associations.updated.v1': async (scene) => {
    const uid = await scene.make('CreateAccountAssociation', { parent: scene.group, accountAssociation: account() })
    const request = { accountAssociation: { uid, description: 'of builds' } }
    return { ...(await recordEvent(scene, 'UpdateAccountAssociation', request, '/iam/v2/accountAssociations')), group: uid }
  },
  'api.iam.account_associations.deleted.v1': async (scene) => {
    const uid = await scene.make('CreateAccountAssociation', { parent: scene.group, accountAssociation: account() })
    await scene.call('DeleteAccountAssociation', { uid })
    return { subject: uid, group: uid, source: '/iam/v2/accountAssociations', body: null }
  },
  'api.iam.terms.accepted.v1': async (scene) => {
    const body = { group: scene.group, documentIds: ['terms'] }
    expect(await scene.call('AcceptTerms', body)).toEqual(body)
    return { subject: scene.group, group: scene.group, source: '/iam/v2/terms', bodyType: 'iam.v2.AcceptTermsResponse', body }
  },
}

const providerRows: Rows = {
  'api.iam.identity_providers.created.v1': (scene) => providerEvent(scene, 'CreateIdentityProvider', { parent: scene.group, identityProvider: provider() }),
  'api.iam.identity_providers.updated.v1': async (scene) =>
    providerEvent(scene, 'UpdateIdentityProvider', { identityProvider: { uid: await newProvider(scene), description: 'staff' } }),
  'api.iam.identity_providers.deleted.v1': async (scene) => deleteEvent(scene, 'DeleteIdentityProvider', await newProvider(scene), '/iam/v2/identityProviders'),
  'api.iam.identity_providers.scim_token.generated.v1': async (scene) => scimEvent(scene, await newProvider(scene), { rpc: 'GenerateScimToken' }),
  'api.iam.identity_providers.scim_token.regenerated.v1': async (scene) => {
    const uid = await newProvider(scene)
    const { etag = '' } = await scene.call('GenerateScimToken', { identityProviderUid: uid })
    return scimEvent(scene, uid, { rpc: 'RegenerateScimToken', request: { etag } })
  },
  'api.iam.identity_providers.scim_token.revoked.v1': async (scene) => {
    const uid = await newProvider(scene)
    await scene.call('GenerateScimToken', { identityProviderUid: uid })
    return scimEvent(scene, uid, { rpc: 'RevokeScimToken' })
  },
  'api.iam.identity_providers.scim_enabled.updated.v1': async (scene) => {
    const uid = await newProvider(scene)
    await makeMember(scene.server, scene.group, { role: 'owner' })
    const { etag = '' } = await scene.call('GenerateScimToken', { identityProviderUid: uid })
    return scimEvent(scene, uid, { rpc: 'SetScimEnabled', request: { enabled: true, etag } })
  },
  'api.iam.external_group_role_mappings.created.v1': async (scene) => {
    const idp = await newProvider(scene)
    const request = { parent: idp, externalGroupRoleMapping: mapping(scene) }
    const event = await recordEvent(scene, 'CreateExternalGroupRoleMapping', request, '/iam/v2/externalGroupRoleMappings')
    return { ...event, group: root(idp), identityProvider: idp }
  },
  'api.iam.external_group_role_mappings.deleted.v1': async (scene) => {
    const idp = await newProvider(scene)
    const event = await deleteEvent(scene, 'DeleteExternalGroupRoleMapping', await newMapping(scene, idp), '/iam/v2/externalGroupRoleMappings')
    return { ...event, group: root(idp), identityProvider: idp }
  },
  'api.iam.external_group_role_mappings.deleted.batch.v1': async (scene) => {
    const rpc = 'BatchDeleteExternalGroupRoleMappings'
    const idp = await newProvider(scene)
    const names = [await newMapping(scene, idp), await newMapping(scene, idp)]
    const body = asEventBody(rpc, await scene.call(rpc, { parent: idp, names }))
    expect(body['externalGroupRoleMappings']).toHaveLength(2)
    const source = '/iam/v2/externalGroupRoleMappings:batchDelete'
    return { subject: idp, group: root(idp), source, bodyType: bodyTypeOf(rpc, 'output'), body }
  },
}

const newPullPolicy = (): JsonObject => ({ name: freshName('policy'), rules: [{ denyDeprecated: true, mode: 'WARN' }] })

const otherRows: Rows = {
  'api.platform.registry.repo.created.v1': (scene) =>
    recordEvent(scene, 'CreateRepo', { parent: scene.group, repo: { name: freshName('repo') } }, '/registry/v2/repos'),
  'api.platform.registry.repo.updated.v1': async (scene) =>
    recordEvent(scene, 'UpdateRepo', { repo: { uid: await newRepo(scene), description: 'a repo' } }, '/registry/v2/repos'),
  'api.platform.registry.repo.deleted.v1': async (scene) => deleteEvent(scene, 'DeleteRepo', await newRepo(scene), '/registry/v2/repos'),
  'api.platform.registry.tag.created.v1': async (scene) => {
    const request = { parent: await newRepo(scene), tag: { name: 'latest', digest: zeros } }
    return { ...(await recordEvent(scene, 'CreateTag', request, '/registry/v2/tags')), group: scene.group }
  },
  'api.platform.registry.tag.deleted.v1': async (scene) => {
    const event = await deleteEvent(scene, 'DeleteTag', await newTag(scene, await newRepo(scene)), '/registry/v2/tags')
    return { ...event, group: scene.group }
  },
  'api.platform.registry.pull_policy.created.v1': (scene) =>
    recordEvent(scene, 'CreatePullPolicy', { parent: scene.group, pullPolicy: newPullPolicy() }, '/registry/v2/pullPolicies'),
  'api.platform.registry.pull_policy.updated.v1': async (scene) => {
    const uid = await scene.make('CreatePullPolicy', { parent: scene.group, pullPolicy: newPullPolicy() })
    return recordEvent(scene, 'UpdatePullPolicy', { pullPolicy: { uid, description: 'a policy' } }, '/registry/v2/pullPolicies')
  },
  'api.platform.registry.pull_policy.deleted.v1': async (scene) =>
    deleteEvent(
      scene,
      'DeletePullPolicy',
      await scene.make('CreatePullPolicy', { parent: scene.group, pullPolicy: newPullPolicy() }),
      '/registry/v2/pullPolicies',
    ),
  'api.events.subscription.created.v1': async (scene) => {
    const event = await recordEvent(scene, 'CreateSubscription', { parent: scene.group, subscription }, '/events/v2/subscriptions')
    // The progress of deliveries is not part of the record.
    const { pendingCount: _count, ...body } = event.body as JsonObject
    return { ...event, body }
  },
  'api.events.subscription.deleted.v1': async (scene) =>
    deleteEvent(scene, 'DeleteSubscription', await scene.make('CreateSubscription', { parent: scene.group, subscription }), '/events/v2/subscriptions'),
}

const advisory = () => ({ advisoryId: freshName('X'), artifactName: 'made' })
const newAdvisory = async (scene: Scene): Promise<string> =>
  String((await scene.call('Advisories/Create', { parentId: scene.group, advisory: advisory() }))['id'])

/** Returns the event of a write of version 1 that answers with the advisory. Its body is the advisory of version 2. */
async function advisoryEvent(scene: Scene, rpc: string, request: JsonObject): Promise<Expectation> {
  const uid = String((await scene.call(rpc, request))['id'])
  return {
    subject: uid,
    source: '/vulnerabilities/v1/advisories',
    bodyType: 'vulnerabilities.v2.Advisory',
    body: asEventBody('GetAdvisory', await scene.call('GetAdvisory', { uid })),
  }
}

const advisoryRows: Rows = {
  'api.vulnerabilities.advisory.created.v1': (scene) => advisoryEvent(scene, 'Advisories/Create', { parentId: scene.group, advisory: advisory() }),
  'api.vulnerabilities.advisory.updated.v1': async (scene) =>
    advisoryEvent(scene, 'Advisories/Update', { id: await newAdvisory(scene), artifactName: 'replaced' }),
  'api.vulnerabilities.advisory.deleted.v1': async (scene) => {
    const id = await newAdvisory(scene)
    await scene.call('Advisories/Delete', { id })
    return { subject: id, source: '/vulnerabilities/v1/advisories', bodyType: 'vulnerabilities.v1.DeleteAdvisoryRequest', body: { id } }
  },
}

/** All event types of API methods in the contract. */
export const typeRows: Rows = { ...iamRows, ...providerRows, ...otherRows, ...advisoryRows }
