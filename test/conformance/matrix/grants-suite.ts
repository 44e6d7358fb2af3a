import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { setOf } from '../../../src/base/capability.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { freshName, makeMember, roleUid } from '../../support/test-server.ts'
import { newKey } from '../../iam/signin/issuers.ts'
import { makeRole } from '../walk/world.ts'
import type { Stage } from './stage.ts'

const oidc = { issuer: 'https://login.idp.example', clientId: 'platform', clientSecret: 'a secret' }
const mine = { issuer: 'https://issuer.example', subject: 'mallory' }

/** Returns every kind of relationship for signing in. */
async function relationships(): Promise<JsonObject[]> {
  const { d: _, ...key } = await newKey('mine')
  return [
    { claimMatch: mine },
    { claimMatch: { issuer: 'https://issuer.example', subjectPattern: 'subject-.*|mallory' } },
    { staticKeys: { ...mine, issuerKeys: JSON.stringify({ keys: [key] }) } },
    { awsIdentity: { awsAccount: '123456789012', arn: 'arn:aws:sts::123456789012:assumed-role/x/y', userId: 'AROA:y' } },
  ]
}

/** Attempts to gain rights by changing records. */
export function grantsSuite(get: () => Stage): void {
  test('a caller can not take over an identity with more rights by changing its issuer or subject', async () => {
    const stage = get()
    const org = await stage.organisation()
    const sibling = await stage.group(org)
    const weak = await stage.holding(org, ['identity.update', 'identity.list', 'groups.list'])
    const stronger = await makeMember(stage.server, org.group, { role: 'viewer', bindAt: sibling })
    const capable = await stage.holding(org, ['identity.update', 'identity.list', 'repo.list'])
    for (const uid of [org.owner, stronger.uid, capable.uid]) {
      for (const relationship of await relationships()) await stage.refused(7, ['UpdateIdentity', { identity: { uid, ...relationship } }, weak.token])
      await stage.refused(7, ['UpdateIdentity', { identity: { uid, name: 'mine', claimMatch: mine }, updateMask: '*' }, weak.token])
      await stage.refused(7, ['UpdateIdentity', { identity: { uid, claimMatch: { subject: 'mallory' } }, updateMask: 'claimMatch.subject' }, weak.token])
      await stage.ok('UpdateIdentity', { identity: { uid, description: 'harmless' } }, weak.token)
    }
    // Changing an identity with equal rights is allowed.
    const same = await makeMember(stage.server, org.group, { role: weak.role })
    await stage.ok('UpdateIdentity', { identity: { uid: same.uid, claimMatch: mine } }, weak.token)
  })

  test('a caller can not widen their own role, neither directly nor through another group', async () => {
    const stage = get()
    const org = await stage.organisation()
    const team = await stage.group(org)
    const held = ['roles.update', 'roles.create', 'roles.list', 'groups.list']
    const weak = await stage.holding(org, held)
    const lead = await stage.holding(org, held, team)
    const wider = ['CAP_IAM_GROUPS_LIST', 'CAP_REPO_DELETE']
    await stage.refused(7, ['UpdateRole', { role: { uid: weak.role, capabilities: wider } }, weak.token])
    await stage.refused(7, ['UpdateRole', { role: { uid: weak.role, name: 'mine', capabilities: wider }, updateMask: '*' }, weak.token])
    // The team may not change the role of the root group.
    await stage.refused(5, ['UpdateRole', { role: { uid: lead.role, capabilities: wider } }, lead.token])
    for (const parent of [org.group, team]) {
      await stage.refused(7, ['CreateRole', { parent, role: { name: freshName('role'), capabilities: wider } }, weak.token])
    }
    await stage.ok('CreateRole', { parent: team, role: { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST'] } }, lead.token)
  })

  test('a caller can not change a built-in role', async () => {
    const stage = get()
    const org = await stage.organisation()
    const operator = await stage.server.operatorToken()
    for (const token of [org.token, operator]) {
      for (const uid of ['viewer', 'owner'].map(roleUid)) {
        await stage.refused(7, ['UpdateRole', { role: { uid, capabilities: ['CAP_REPO_DELETE'] } }, token])
        await stage.refused(7, ['UpdateRole', { role: { uid, name: 'mine', capabilities: ['CAP_REPO_DELETE'] }, updateMask: '*' }, token])
        await stage.refused(7, ['DeleteRole', { uid }, token])
      }
    }
    await stage.refused(3, ['CreateRole', { parent: org.group, role: { name: 'internal', capabilities: ['CAP_INTERNAL'] } }, operator])
  })

  test('a caller can not bind a role with a capability that they lack, alone or in a batch', async () => {
    const stage = get()
    const org = await stage.organisation()
    const binder = await stage.holding(org, ['role_bindings.create', 'role_bindings.update', 'role_bindings.list', 'groups.list'])
    const wide = await makeRole(stage.server, org.group, ['groups.list', 'repo.delete'])
    for (const role of [roleUid('owner'), roleUid('viewer'), wide]) {
      const roleBinding = { identityUid: binder.uid, roleUid: role }
      await stage.refused(7, ['CreateRoleBinding', { parent: org.group, roleBinding }, binder.token])
      const harmless = { roleBinding: { identityUid: org.owner, roleUid: binder.role } }
      await stage.refused(7, ['BatchCreateRoleBindings', { parent: org.group, requests: [harmless, { roleBinding }] }, binder.token])
      await stage.refused(7, [
        'BatchCreateRoleBindings',
        { parent: org.group, roleUid: role, requests: [{ roleBinding: { identityUid: binder.uid } }] },
        binder.token,
      ])
    }
  })

  test('a caller can not bind a role in a parent, sibling or unrelated group', async () => {
    const stage = get()
    const [org, other] = [await stage.organisation(), await stage.organisation()]
    const [team, sibling] = [await stage.group(org), await stage.group(org)]
    const lead = await makeMember(stage.server, org.group, { role: 'owner', bindAt: team })
    const roleBinding = { identityUid: lead.uid, roleUid: roleUid('viewer') }
    for (const parent of [org.group, sibling, other.group]) {
      await stage.refused(5, ['CreateRoleBinding', { parent, roleBinding }, lead.token])
      await stage.refused(5, ['BatchCreateRoleBindings', { parent, requests: [{ roleBinding }] }, lead.token])
      await stage.refused(3, ['BatchCreateRoleBindings', { parent: team, requests: [{ parent, roleBinding }] }, lead.token])
      await stage.refused(5, ['CreateGroupInvite', { parent, groupInvite: { roleUid: roleUid('viewer'), ttl: '60s' } }, lead.token])
    }
  })

  test('a caller can not move a binding to themselves, to another role or to another group', async () => {
    const stage = get()
    const org = await stage.organisation()
    const team = await stage.group(org)
    const binder = await stage.holding(org, ['role_bindings.create', 'role_bindings.update', 'role_bindings.list', 'groups.list'])
    const friend = await makeMember(stage.server, org.group)
    const strong = await stage.bind(org, friend.uid, 'editor')
    await stage.refused(7, ['UpdateRoleBinding', { roleBinding: { uid: strong, identityUid: binder.uid } }, binder.token])
    const [own] = (await stage.ok('ListRoleBindings', { identity: binder.uid }, org.token))['roleBindings'] as JsonObject[] // a list answer
    const uid = String(own?.['uid'])
    await stage.refused(7, ['UpdateRoleBinding', { roleBinding: { uid, roleUid: roleUid('editor') } }, binder.token])
    // The uid decides the group; other fields about it are ignored.
    const moved = { uid, roleUid: binder.role, group: { uid: team }, identity: { uid: friend.uid } }
    expect(await stage.ok('UpdateRoleBinding', { roleBinding: moved }, binder.token)).toMatchObject({
      uid,
      group: { uid: org.group },
      identity: { uid: binder.uid },
    })
  })

  test("a caller can not gain rights through a provider's default role, mapping, sign-in or SCIM token", async () => {
    const stage = get()
    const org = await stage.organisation()
    const held = ['identity_providers.create', 'identity_providers.update', 'identity_providers.list', 'identity_providers.scim.manage', 'role_bindings.create']
    const weak = await stage.holding(org, held)
    const make = (defaultRole: string, token: string): Promise<string> =>
      stage.uid('CreateIdentityProvider', { parent: org.group, identityProvider: { name: freshName('idp'), defaultRole, oidc } }, token)
    const [own, strong, mapped] = [await make(weak.role, weak.token), await make(roleUid('owner'), org.token), await make(weak.role, org.token)]
    const mapping = { externalGroupId: 'admins', roleUid: roleUid('owner'), scope: org.group }
    await stage.ok('CreateExternalGroupRoleMapping', { parent: mapped, externalGroupRoleMapping: mapping }, org.token)

    const identityProvider = { name: freshName('idp'), defaultRole: roleUid('owner'), oidc }
    await stage.refused(7, ['CreateIdentityProvider', { parent: org.group, identityProvider }, weak.token])
    await stage.refused(7, ['UpdateIdentityProvider', { identityProvider: { uid: own, defaultRole: roleUid('owner') } }, weak.token])
    await stage.refused(7, ['CreateExternalGroupRoleMapping', { parent: own, externalGroupRoleMapping: mapping }, weak.token])
    for (const uid of [strong, mapped]) {
      const theirs = { ...oidc, issuer: 'https://mallory.example' }
      await stage.refused(7, ['UpdateIdentityProvider', { identityProvider: { uid, oidc: theirs } }, weak.token])
      await stage.refused(7, [
        'UpdateIdentityProvider',
        { identityProvider: { uid, oidc: { groupsClaim: 'mine' } }, updateMask: 'oidc.groupsClaim' },
        weak.token,
      ])
      await stage.refused(7, ['GenerateScimToken', { identityProviderUid: uid }, weak.token])
      await stage.ok('UpdateIdentityProvider', { identityProvider: { uid, description: 'harmless' } }, weak.token)
    }
    await stage.ok('GenerateScimToken', { identityProviderUid: own }, weak.token)
  })

  test('a caller can not grant more through an invite than they hold', async () => {
    const stage = get()
    const org = await stage.organisation()
    const inviter = await stage.holding(org, ['group_invites.create', 'role_bindings.create', 'groups.list'])
    for (const role of [roleUid('owner'), await makeRole(stage.server, org.group, ['repo.list'])])
      await stage.refused(7, ['CreateGroupInvite', { parent: org.group, groupInvite: { roleUid: role, ttl: '60s' } }, inviter.token])
    await stage.ok('CreateGroupInvite', { parent: org.group, groupInvite: { roleUid: inviter.role, ttl: '60s' } }, inviter.token)
  })

  test('a caller can not grant, with a narrowed token, what only the full token allows', async () => {
    const stage = get()
    const org = await stage.organisation()
    const team = await stage.group(org)
    const friend = await makeMember(stage.server, org.group)
    const needed = ['role_bindings.create', 'roles.create', 'identity.update', 'groups.list']
    const cut = await stage.server.tokenFor(org.owner, { capabilities: setOf(needed) })
    await stage.refused(7, ['CreateRoleBinding', { parent: org.group, roleBinding: { identityUid: friend.uid, roleUid: roleUid('viewer') } }, cut])
    await stage.refused(7, ['CreateRole', { parent: org.group, role: { name: freshName('role'), capabilities: ['CAP_REPO_LIST'] } }, cut])
    await stage.refused(7, ['UpdateIdentity', { identity: { uid: org.owner, claimMatch: mine } }, cut])
    const placed = await stage.server.tokenFor(org.owner, { scopes: [trustedUid(team)] })
    await stage.refused(5, ['CreateRoleBinding', { parent: org.group, roleBinding: { identityUid: friend.uid, roleUid: roleUid('viewer') } }, placed])
    await stage.refused(7, ['CreateGroup', { group: { name: freshName('root') } }, placed])
  })

  test('a caller without operator rights is refused where only operators may act', async () => {
    const stage = get()
    const org = await stage.organisation()
    const team = await stage.group(org)
    await stage.refused(7, ['CreateGroup', { group: { name: freshName('root') } }, org.token])
    await stage.refused(7, ['CreateGroup', { parent: '/', group: { name: freshName('root') } }, org.token])
    await stage.refused(7, ['UpdateGroup', { group: { uid: org.group, verified: true, kind: 'ORG_KIND_CUSTOMER' } }, org.token])
    await stage.refused(7, ['UpdateGroup', { group: { uid: org.group, kind: 'ORG_KIND_DEV' } }, org.token])
    await stage.refused(7, ['UpdateGroup', { group: { uid: team, verified: true } }, org.token])
    await stage.refused(9, ['DeleteIdentity', { uid: org.owner }, org.token])
    const left = await stage.ok(
      'UpdateGroup',
      { group: { uid: org.group, status: 'ORG_STATUS_SUSPENDED', resourceLimits: { repositories: 7 } }, updateMask: 'status,resourceLimits' },
      org.token,
    )
    expect(left).toMatchObject({ status: 'ORG_STATUS_READY' })
    expect(left['resourceLimits'] ?? {}).toEqual({})
  })
}
