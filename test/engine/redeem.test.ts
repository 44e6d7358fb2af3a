import { randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { personUid } from '../../src/auth/oidc/issuer-name.ts'
import { trustedUid, type Uid } from '../../src/base/uid.ts'
import { registerPerson } from '../../src/iam/records/people.ts'
import { makeOrganisation, roleUid } from '../support/test-server.ts'
import { identityUnder, subgroup } from '../conformance/spec/spec-kinds.ts'
import { itemsOf, specSuiteEverywhere, uidOf } from '../conformance/spec/spec-suite.ts'

specSuiteEverywhere(
  'redeeming an invite',
  (spec) => {
    const person = (): Uid => personUid('https://login.example', randomBytes(8).toString('hex'))
    const invite = async (parent: string, token: string, more: object = {}): Promise<string> => {
      const groupInvite = { roleUid: roleUid('viewer'), ttl: '3600s', ...more }
      return String((await spec.ok('CreateGroupInvite', { parent, groupInvite }, { token }))['code'])
    }
    /**
     * Commits a registration: the person, if they are new, and the rights of the invite. Resolves with the binding's uid, or the code of the refusal;
     * undefined if there is no invite.
     */
    const redeem = async (code: string, uid: Uid): Promise<string | number | undefined> => {
      const { services } = spec.server.running.engine
      const person = { uid, act: { issuer: 'https://login.example', subject: uid, audience: 'us' }, name: undefined, emailUnverified: undefined }
      const registration = { person, via: [], code, validateOnly: false, requestId: 'test', signal: AbortSignal.timeout(60_000) }
      const registered = registerPerson(services, registration).then(({ group }) => {
        const bindings = [...services.cache.tables.table('RoleBinding').matching('identity', uid)]
        return bindings.find((record) => record.parent === group)?.uid
      })
      return registered.catch((error: { code?: number }) => error.code)
    }
    const bindings = async (group: string, token: string, identity: string): Promise<string[]> =>
      itemsOf(await spec.ok('ListRoleBindings', { group, identity }, { token }), 'roleBindings').map(uidOf)

    // docs/spec/iam.md#invite-redemption
    test('the person gets the role in the group, and what it grants there and below', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const child = await subgroup(spec, group, token)
      const uid = person()
      const binding = await redeem(await invite(child, token), uid)
      expect(await bindings(child, token, uid)).toEqual([binding])
      const mine = await spec.server.tokenFor(uid)
      expect((await spec.call('GetGroup', { uid: child }, { token: mine })).code).toBe(0)
      expect((await spec.call('GetGroup', { uid: group }, { token: mine })).code).toBe(5)
    })

    // docs/spec/iam.md#invite-redemption
    test('an invite for many stays valid; the same person can redeem it again, and is bound once', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const code = await invite(group, token)
      const [one, other] = [person(), person()]
      const first = await redeem(code, one)
      expect(await redeem(code, one)).toBe(first)
      expect(typeof (await redeem(code, other))).toBe('string')
      expect(await bindings(group, token, one)).toEqual([first])
    })

    // docs/spec/iam.md#invite-redemption
    test('of many who redeem a single-use invite at once one joins; then the invite is gone', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const code = await invite(group, token, { singleUse: true })
      const people = Array.from({ length: 6 }, person)
      const outcomes = await Promise.all(people.map((uid) => redeem(code, uid)))
      expect(outcomes.filter((outcome) => outcome === 5)).toHaveLength(5)
      const joined = await Promise.all(people.map((uid) => bindings(group, token, uid)))
      expect(joined.flat()).toEqual(outcomes.filter((outcome) => typeof outcome === 'string'))
      expect(await redeem(code, person())).toBe(5)
    })

    // docs/spec/iam.md#invite-redemption
    test('an expired invite, or one whose role is gone, gets the same error as an unknown one', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const role = uidOf(await spec.ok('CreateRole', { parent: group, role: { name: 'gone', capabilities: ['CAP_IAM_GROUPS_LIST'] } }, { token }))
      const roleless = await invite(group, token, { roleUid: role })
      await spec.ok('DeleteRole', { uid: role }, { token })
      const brief = await invite(group, token, { ttl: '5s' })
      spec.clock.advance(5_000)
      const uid = person()
      for (const code of [roleless, brief, 'unknown']) expect(await redeem(code, uid)).toBe(5)
      expect(spec.server.running.engine.cache.tables.get('Identity', uid)).toBeUndefined()
    })

    // docs/spec/iam.md#invite-redemption
    test('an invite that is deleted while it is redeemed is either redeemed or deleted, not both', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      for (let round = 0; round < 5; round += 1) {
        const made = await spec.ok('CreateGroupInvite', { parent: group, groupInvite: { roleUid: roleUid('viewer'), ttl: '60s', singleUse: true } }, { token })
        const uid = person()
        const [joined, withdrawn] = await Promise.all([redeem(String(made['code']), uid), spec.call('DeleteGroupInvite', { uid: uidOf(made) }, { token })])
        expect([typeof joined, withdrawn.code]).toEqual(withdrawn.code === 0 ? ['number', 0] : ['string', 5])
        expect(await bindings(group, token, uid)).toHaveLength(withdrawn.code === 0 ? 0 : 1)
      }
    })

    // docs/spec/iam.md#last-owner
    test('a person who joins as an owner counts as an owner', async () => {
      const { group, owner, token } = await makeOrganisation(spec.server)
      const operator = await spec.server.operatorToken()
      const uid = person()
      const binding = await redeem(await invite(group, token, { roleUid: roleUid('owner') }), uid)
      const others = itemsOf(await spec.ok('ListRoleBindings', { group, role: roleUid('owner') }, { token: operator }), 'roleBindings').map(uidOf)
      const mine = await spec.server.tokenFor(uid)
      for (const other of others) if (other !== binding) await spec.ok('DeleteRoleBinding', { uid: other }, { token: mine })
      expect((await spec.call('DeleteRoleBinding', { uid: String(binding) }, { token: mine })).code).toBe(9)
      expect((await spec.call('GetIdentity', { uid: owner }, { token: mine })).code).toBe(0)
    })

    // docs/spec/iam.md#invite-redemption
    test('only people can join by an invite', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const child = await subgroup(spec, group, token)
      const identity = trustedUid(uidOf(await identityUnder(spec, child, token)))
      expect(await redeem(await invite(group, token), identity)).toBeUndefined()
      expect(await bindings(group, token, identity)).toEqual([])
    })
  },
  { transports: ['rest'] },
)
