import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, expect, test } from 'vitest'
import { personUid } from '../../../../src/auth/oidc/issuer-name.ts'
import { accessRequestPrefix } from '../../../../src/iam/records/group-verbs.ts'
import { failNext } from '../../../support/fail-next.ts'
import { reinstate, suspend } from '../../../support/suspend.ts'
import { freshName, makeOrganisation, makePerson, roleUid, type Organisation } from '../../../support/test-server.ts'
import { signWith, startOidcProvider } from '../../../iam/signin/issuers.ts'
import { expectFailure, itemsOf, specSuite, uidOf, type Spec } from '../spec-suite.ts'

/** Where people sign in. */
const issuer = await startOidcProvider(['a client'])
afterAll(() => issuer.stop())

const mailIssuer = 'https://mail.example'
const closed = { code: 7, reason: 'ORGANIZATION_SUSPENDED' }

/** An organisation whose provider gives its people a role, and those of its group `staff` another. */
interface Employer extends Organisation {
  readonly provider: string
  readonly clientId: string
}

async function employer(spec: Spec): Promise<Employer> {
  const organisation = await makeOrganisation(spec.server)
  const { group, token } = organisation
  const clientId = freshName('client')
  const oidc = { issuer: issuer.issuer, clientId, clientSecret: 'a secret', groupsClaim: 'groups' }
  const identityProvider = { name: freshName('idp'), defaultRole: roleUid('viewer'), oidc }
  const provider = uidOf(await spec.ok('CreateIdentityProvider', { parent: group, identityProvider }, { token }))
  const externalGroupRoleMapping = { externalGroupId: 'staff', roleUid: roleUid('editor'), scope: group }
  await spec.ok('CreateExternalGroupRoleMapping', { parent: provider, externalGroupRoleMapping }, { token })
  return { ...organisation, provider, clientId }
}

/** A token of a person for the clients of these organisations. */
function tokenOf(subject: string, employers: readonly Employer[], more: JsonObject = {}): Promise<string> {
  return signWith(issuer.key(), issuer.claims({ sub: subject, aud: employers.map(({ clientId }) => clientId), ...more }))
}

specSuite(
  'suspended organisations',
  (spec) => {
    const bindingsOf = async (identity: string): Promise<unknown[]> =>
      itemsOf(await spec.ok('ListRoleBindings', { identity }, { token: await spec.server.operatorToken() }), 'roleBindings')
    const isRegistered = (identity: string): boolean => spec.server.running.engine.cache.tables.get('Identity', identity) !== undefined
    const invite = async ({ group, token }: Organisation, more: JsonObject = {}): Promise<string> =>
      String((await spec.ok('CreateGroupInvite', { parent: group, groupInvite: { roleUid: roleUid('viewer'), ttl: '3600s', ...more } }, { token }))['code'])

    // docs/spec/iam.md#suspended-organisations
    test('suspended organisations register no new person through their provider', async () => {
      const org = await employer(spec)
      const name = freshName('person')
      await suspend(spec.server, org.group)
      for (const validateOnly of [true, false]) {
        expectFailure(await spec.call('Register', {}, { token: await tokenOf(name, [org]), validateOnly }), closed)
      }
      expect(isRegistered(personUid(issuer.issuer, name))).toBe(false)
      await reinstate(spec.server, org.group)
      expect(await spec.ok('Register', {}, { token: await tokenOf(name, [org]) })).toMatchObject({ group: org.group })
    })

    // docs/spec/iam.md#suspended-organisations
    test("suspended organisations withhold their default role until they are open again, and another organisation's is granted", async () => {
      const [org, other] = [await employer(spec), await employer(spec)]
      const name = freshName('person')
      const uid = personUid(issuer.issuer, name)
      await suspend(spec.server, org.group)
      const register = async (...employers: Employer[]): Promise<JsonObject> => spec.ok('Register', {}, { token: await tokenOf(name, employers) })
      expect(await register(org, other)).toEqual({ identity: uid, group: other.group })
      expect(await bindingsOf(uid)).toMatchObject([{ group: { uid: other.group } }])
      // A known person registers again, and nothing changes.
      expect(await register(org)).toEqual({ identity: uid, group: '' })
      expect(await bindingsOf(uid)).toHaveLength(1)
      await reinstate(spec.server, org.group)
      // That was no first sign-in.
      expect(await register(org)).toEqual({ identity: uid, group: org.group })
      expect(await bindingsOf(uid)).toHaveLength(2)
    })

    // docs/spec/iam.md#suspended-organisations
    test('suspended organisations give no roles of mapped groups at a sign-in through their provider', async () => {
      const org = await employer(spec)
      const name = freshName('person')
      const sessionOf = async (): Promise<JsonObject> => {
        const { token } = await spec.ok('Exchange', { identityProvider: org.provider }, { token: await tokenOf(name, [org], { groups: ['staff'] }) })
        return JSON.parse(Buffer.from(String(token).split('.')[1] ?? '', 'base64url').toString()) as JsonObject
      }
      await spec.ok('Register', {}, { token: await tokenOf(name, [org]) })
      const open = JSON.stringify(await sessionOf())
      expect(open).toContain(roleUid('editor'))
      await suspend(spec.server, org.group)
      expect(JSON.stringify(await sessionOf())).not.toContain(roleUid('editor'))
    })

    // docs/spec/iam.md#suspended-organisations
    test.each([
      ['for any person', {}],
      ['for one person', { singleUse: true }],
    ])('suspended organisations refuse their invites %s to new people and members, and keep the invites', async (_name, more) => {
      const [org, other] = [await makeOrganisation(spec.server), await employer(spec)]
      const code = await invite(org, more)
      const [name, member] = [freshName('person'), freshName('member')]
      const platform = (subject: string): Promise<string> => signWith(issuer.key(), issuer.claims({ sub: subject, aud: spec.server.config.baseUrl }))
      const memberUid = personUid(issuer.issuer, member)
      await spec.ok('CreateRoleBinding', { parent: org.group, roleBinding: { identityUid: memberUid, roleUid: roleUid('viewer') } }, { token: org.token })
      await suspend(spec.server, org.group)
      for (const subject of [name, member]) {
        expectFailure(await spec.call('Register', { code }, { token: await platform(subject) }), closed)
        expect(isRegistered(personUid(issuer.issuer, subject))).toBe(false)
      }
      // To whom the invite is nothing it looks as before.
      expectFailure(await spec.call('Register', { code }, { token: await tokenOf(name, [other]) }), { code: 5 })
      await reinstate(spec.server, org.group)
      expect(await spec.ok('Register', { code }, { token: await platform(name) })).toMatchObject({ group: org.group })
    })

    // docs/spec/iam.md#suspended-organisations
    test('suspended organisations refuse a change that was planned before the suspension', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      failNext(
        spec.server,
        async (real, call) => {
          await suspend(spec.server, group)
          return real.transact(...call)
        },
        `r/Role/${group}/`,
      )
      const role = { name: 'late', capabilities: ['CAP_REPO_LIST'] }
      expectFailure(await spec.call('CreateRole', { parent: group, role }, { token }), closed)
      expect(spec.server.running.engine.cache.tables.table('Role').matching('parent', group).size).toBe(0)
    })

    // docs/spec/iam.md#suspended-organisations
    test('suspended organisations are not found by their domain, and accept no access requests', async () => {
      const domain = `${freshName('acme')}.example`
      const operator = await spec.server.operatorToken()
      const group = uidOf(await spec.ok('CreateGroup', { group: { name: domain, verified: true, kind: 'ORG_KIND_CUSTOMER' } }, { token: operator }))
      const { uid, token } = await makePerson(spec.server, { issuer: mailIssuer, subject: freshName('person'), email: `person@${domain}` })
      await suspend(spec.server, group)
      expectFailure(await spec.call('LookupGroup', {}, { token }), { code: 5 })
      expectFailure(await spec.call('RequestGroupAccess', { groupUid: group }, { token }), { code: 5 })
      expect(await spec.server.running.engine.store.get(`${accessRequestPrefix}${group}/${uid}`, AbortSignal.timeout(60_000))).toBeUndefined()
      await reinstate(spec.server, group)
      await spec.ok('RequestGroupAccess', { groupUid: group }, { token })
    })
  },
  {
    env: {
      TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'false',
      TAPROOT_ISSUERS: JSON.stringify([{ issuer: issuer.issuer, allowPrivate: true }, { issuer: mailIssuer }]),
    },
  },
)
