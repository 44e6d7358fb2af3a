import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { setOf } from '../../../../src/base/capability.ts'
import { trustedUid } from '../../../../src/base/uid.ts'
import type { Reply } from '../../../support/api-clients.ts'
import { freshName, makeOrganisation, makePerson, roleUid } from '../../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, uidOf } from '../spec-suite.ts'

specSuite(
  'self-service root groups',
  (spec) => {
    const person = () => makePerson(spec.server, { issuer: 'https://people.example', subject: freshName('person') })

    // docs/spec/iam.md#root-groups
    test('self-service root groups are created and owned by any person', async () => {
      const { uid, token } = await person()
      const group = uidOf(await spec.ok('CreateGroup', { group: { name: freshName('root') } }, { token }))
      const bindings = itemsOf(await spec.ok('ListRoleBindings', { group }, { token }), 'roleBindings')
      expect(bindings).toMatchObject([{ identity: { uid }, role: { uid: roleUid('owner') }, group: { uid: group } }])
      await spec.ok('CreateGroup', { parent: group, group: { name: 'first' } }, { token })
      expectFailure(await spec.call('DeleteRoleBinding', { uid: uidOf(bindings[0] ?? {}) }, { token }), {
        code: 9,
        reason: 'LAST_OWNER',
        violations: ['LAST_OWNER'],
      })
    })

    // docs/spec/limits.md#organisation-limits
    test('self-service root groups have limits and usage only for kinds of records that this server serves', async () => {
      const { token } = await person()
      const made = await spec.ok('CreateGroup', { group: { name: freshName('root') } }, { token })
      const { usage } = await spec.ok('GetGroupUsage', { uid: uidOf(made) }, { token })
      for (const named of [made['resourceLimits'], usage]) {
        expect(named).toHaveProperty('repositories')
        for (const name of ['clusters']) expect(named).not.toHaveProperty(name)
      }
    })

    test('self-service root groups are limited to three for each person; a deletion makes room, and operators are exempt', async () => {
      const { token } = await person()
      const make = (by: string): Promise<Reply> => spec.call('CreateGroup', { group: { name: freshName('root') } }, { token: by })
      const made = await Promise.all([make(token), make(token), make(token), make(token), make(token)])
      const codes = made.map(({ code, message }) => (code === 0 || code === 8 ? code : message))
      expect([codes.filter((code) => code === 0).length, codes.filter((code) => code === 8).length]).toEqual([3, 2])
      const refused = await make(token)
      expectFailure(refused, { code: 8, reason: 'QUOTA_EXCEEDED' })
      expect(refused.details['ErrorInfo']?.['metadata']).toMatchObject({ limit: 'organizationsPerPerson', max: '3', use: '3' })
      await spec.ok('DeleteGroup', { uid: uidOf(made.find(({ code }) => code === 0)?.body ?? {}) }, { token })
      expect((await make(token)).code).toBe(0)
      const operator = await spec.server.operatorToken()
      for (let count = 0; count < 4; count++) expect((await make(operator)).code).toBe(0)
    })

    // docs/spec/iam.md#root-groups
    test('self-service root groups can not be created by an assumable identity', async () => {
      const { token } = await makeOrganisation(spec.server)
      expectFailure(await spec.call('CreateGroup', { group: { name: freshName('root') } }, { token }), { code: 7 })
    })

    // docs/spec/iam.md#root-groups
    test('self-service root groups can not be created with a narrowed token', async () => {
      const { uid, token } = await person()
      const group = uidOf(await spec.ok('CreateGroup', { group: { name: freshName('root') } }, { token }))
      for (const restrictions of [{ scopes: [trustedUid(group)] }, { capabilities: setOf(['groups.list']) }]) {
        const restricted = await spec.server.tokenFor(uid, restrictions)
        expectFailure(await spec.call('CreateGroup', { group: { name: freshName('root') } }, { token: restricted }), { code: 7 })
      }
    })

    // docs/spec/iam.md#verified-groups
    test('self-service root groups can not be created as verified; a dry run creates none', async () => {
      const { token } = await person()
      const group: JsonObject = { name: freshName('root') }
      expectFailure(await spec.call('CreateGroup', { group: { ...group, verified: true, kind: 'ORG_KIND_CUSTOMER' } }, { token }), { code: 7 })
      await spec.ok('CreateGroup', { group }, { token, validateOnly: true })
      expect(await spec.ok('ListGroups', {}, { token })).toMatchObject({ groups: [], totalCount: '0' })
    })
  },
  { env: { TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'true', TAPROOT_SELF_SERVICE_ORGANIZATIONS_PER_PERSON: '3' } },
)
