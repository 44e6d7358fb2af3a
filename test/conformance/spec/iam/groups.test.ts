import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { personUid } from '../../../../src/auth/oidc/issuer-name.ts'
import { trustedUid } from '../../../../src/base/uid.ts'
import { freshName, makeMember, makeOrganisation, makePerson, roleUid } from '../../../support/test-server.ts'
import { identityUnder, subgroup } from '../spec-kinds.ts'
import { expectFailure, itemsOf, preconditionViolations, specSuite, uidOf } from '../spec-suite.ts'

const mailIssuer = 'https://mail.example'

specSuite(
  'groups',
  (spec) => {
    const operator = (): Promise<string> => spec.server.operatorToken()

    // docs/spec/resources.md#uid-shape
    test('a group created with an empty parent is a root group, with a uid of 40 hex digits', async () => {
      const name = freshName('root')
      const made = await spec.ok('CreateGroup', { group: { name, description: 'an organisation' } }, { token: await operator() })
      expect(made).toMatchObject({ name, description: 'an organisation', status: 'ORG_STATUS_READY', verified: false })
      expect(uidOf(made)).toMatch(/^[0-9a-f]{40}$/)
      expect(await spec.ok('GetGroup', { uid: uidOf(made) }, { token: await operator() })).toEqual(made)
    })

    // docs/spec/resources.md#uid-shape
    test('a subgroup can be created below its parent at any depth', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const sub = await subgroup(spec, group, token)
      const deep = await subgroup(spec, sub, token)
      expect(sub).toMatch(new RegExp(`^${group}/[0-9a-f]{16}$`))
      expect(deep).toMatch(new RegExp(`^${sub}/[0-9a-f]{16}$`))
    })

    // docs/spec/iam.md#root-groups
    test('the person who creates a root group becomes its owner', async () => {
      const group = uidOf(await spec.ok('CreateGroup', { group: { name: freshName('root') } }, { token: await operator() }))
      const bindings = itemsOf(await spec.ok('ListRoleBindings', { group }, { token: await operator() }), 'roleBindings')
      expect(bindings).toHaveLength(1)
      const uid = personUid(spec.server.devIssuer.issuer, 'operator')
      expect(bindings[0]).toMatchObject({ identity: { uid }, role: { uid: roleUid('owner') } })
    })

    // docs/spec/iam.md#root-groups
    test('without self service an owner of one root group can not create another', async () => {
      const { token } = await makeOrganisation(spec.server)
      expectFailure(await spec.call('CreateGroup', { group: { name: freshName('root') } }, { token }), { code: 7 })
    })

    // docs/spec/resources.md#names
    test.each([['a'], ['qa'], ['abc'], ['a.b_c-d e'], ['0'.repeat(63)]])('%j is a valid group name', async (name) => {
      const { group, token } = await makeOrganisation(spec.server)
      expect(await spec.ok('CreateGroup', { parent: group, group: { name } }, { token })).toMatchObject({ name })
    })

    // docs/spec/resources.md#names
    test.each([[''], ['0'.repeat(64)], ['ABC'], ['a/b/c'], ['abc\n']])('%j is an invalid group name', async (name) => {
      const { group, token } = await makeOrganisation(spec.server)
      expectFailure(await spec.call('CreateGroup', { parent: group, group: { name } }, { token }), { code: 3, fields: ['name'] })
    })

    // docs/spec/resources.md#descriptions
    test('a description may have several lines, and at most 512 characters', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const long = `two\nlines ${'x'.repeat(502)}`
      expect(await spec.ok('CreateGroup', { parent: group, group: { name: 'described', description: long } }, { token })).toMatchObject({ description: long })
      const tooLong = { name: 'too long', description: 'x'.repeat(513) }
      expectFailure(await spec.call('CreateGroup', { parent: group, group: tooLong }, { token }), { code: 3, fields: ['description'] })
    })

    // docs/spec/resources.md#unique-names
    test('a name is unique within its parent, also after a rename, and free after a delete', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const sub = await subgroup(spec, group, token, 'taken')
      await subgroup(spec, sub, token, 'taken')
      expectFailure(await spec.call('CreateGroup', { parent: group, group: { name: 'taken' } }, { token }), { code: 6 })
      const other = await subgroup(spec, group, token, 'other')
      expectFailure(await spec.call('UpdateGroup', { group: { uid: other, name: 'taken' } }, { token }), { code: 6 })
      await spec.ok('UpdateGroup', { group: { uid: other, name: 'other' } }, { token })
      await spec.ok('DeleteGroup', { uid: other }, { token })
      expect(await subgroup(spec, group, token, 'other')).not.toBe(other)
    })

    // docs/spec/resources.md#unique-names
    test('the name of a root group is unique in the whole installation', async () => {
      const name = freshName('root')
      await spec.ok('CreateGroup', { group: { name } }, { token: await operator() })
      expectFailure(await spec.call('CreateGroup', { group: { name } }, { token: await operator() }), { code: 6 })
    })

    // docs/spec/iam.md#groups
    test('a parent may be given as a uid, as the last part of a uid, or as a name in reach', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const name = freshName('named')
      const named = await subgroup(spec, group, token, name)
      const parents = [named, named.slice(named.lastIndexOf('/') + 1), name]
      for (const [at, parent] of parents.entries()) expect((await subgroup(spec, parent, token, `child ${at}`)).startsWith(`${named}/`)).toBe(true)
    })

    // docs/spec/iam.md#groups
    test('an ambiguous parent name is code 3, one out of reach is 404 like a missing one', async () => {
      const [own, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
      const [one, two] = [await subgroup(spec, own.group, own.token), await subgroup(spec, own.group, own.token)]
      const [twin, theirs] = [freshName('twin'), freshName('theirs')]
      for (const parent of [one, two]) await subgroup(spec, parent, own.token, twin)
      const foreign = await subgroup(spec, other.group, other.token, theirs)
      const create = (parent: string) => spec.call('CreateGroup', { parent, group: { name: 'child' } }, { token: own.token })
      expectFailure(await create(twin), { code: 3, fields: ['parent'] })
      for (const parent of [theirs, foreign, foreign.slice(-16), freshName('unknown'), 'f'.repeat(40)]) expectFailure(await create(parent), { code: 5 })
    })

    // docs/spec/resources.md#output-only-fields
    test('status, resource limits and other output-only fields of a request are ignored', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const given = { name: 'ignored', status: 'ORG_STATUS_SUSPENDED', resourceLimits: { repositories: 1 } }
      expect(await spec.ok('CreateGroup', { parent: group, group: given }, { token })).toMatchObject({ status: 'ORG_STATUS_READY', resourceLimits: {} })
    })

    // docs/spec/iam.md#verified-groups
    test('only operators set verified and kind, and only on root groups', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const sub = await subgroup(spec, group, token)
      // A caller who may not set them is denied first, whether or not they fit.
      for (const fields of [{ verified: true, kind: 'ORG_KIND_CUSTOMER' }, { verified: true }, { kind: 'ORG_KIND_CUSTOMER' }]) {
        expectFailure(await spec.call('UpdateGroup', { group: { uid: group, ...fields } }, { token }), { code: 7 })
      }
      expectFailure(await spec.call('UpdateGroup', { group: { uid: sub, verified: true } }, { token }), { code: 7 })
      const staff = { token: await operator() }
      expectFailure(await spec.call('UpdateGroup', { group: { uid: group, verified: true } }, staff), { code: 3, fields: ['kind'] })
      expectFailure(await spec.call('UpdateGroup', { group: { uid: sub, verified: true } }, staff), { code: 3, fields: ['verified'] })
      expectFailure(await spec.call('UpdateGroup', { group: { uid: sub, kind: 'ORG_KIND_CUSTOMER' } }, staff), { code: 3, fields: ['kind'] })
      await spec.ok('UpdateGroup', { group: { uid: group, verified: true, kind: 'ORG_KIND_CUSTOMER' } }, staff)
      expect(await spec.ok('GetGroup', { uid: sub }, { token })).toMatchObject({ kind: 'ORG_KIND_CUSTOMER', verified: false })
    })

    // docs/spec/iam.md#verified-groups
    test('the owner of a verified root group may change its description, but not its name (code 9)', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const fixed = { uid: group, verified: true, kind: 'ORG_KIND_CUSTOMER' }
      const { name } = await spec.ok('UpdateGroup', { group: fixed }, { token: await operator() })
      expectFailure(await spec.call('UpdateGroup', { group: { uid: group, name: freshName('renamed') } }, { token }), { code: 9 })
      const described = await spec.ok('UpdateGroup', { group: { uid: group, description: 'ours' } }, { token })
      expect(described).toMatchObject({ name, description: 'ours', verified: true, kind: 'ORG_KIND_CUSTOMER' })
    })

    // docs/spec/conventions.md#deletion-order
    test('delete of a group with children is code 9: one RESOURCE_NOT_EMPTY violation per kind, with its count', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const sub = await subgroup(spec, group, token)
      for (let at = 0; at < 2; at++) await subgroup(spec, sub, token)
      for (let at = 0; at < 3; at++) await identityUnder(spec, sub, token)
      await spec.ok('CreateRole', { parent: sub, role: { name: 'one', capabilities: ['CAP_IAM_GROUPS_LIST'] } }, { token })
      const reply = await spec.call('DeleteGroup', { uid: sub }, { token })
      const message = 'Precondition failed: cannot delete group with child groups, identities, roles'
      expectFailure(reply, { code: 9, reason: 'FAILED_PRECONDITION', message, violations: ['RESOURCE_NOT_EMPTY', 'RESOURCE_NOT_EMPTY', 'RESOURCE_NOT_EMPTY'] })
      expect(reply.details['PreconditionFailure']?.['@type']).toBe('type.googleapis.com/google.rpc.PreconditionFailure')
      const descriptions = preconditionViolations(reply).map(({ description }) => description)
      const rows = { groups: 2, identities: 3, roles: 1 }
      for (const [kind, count] of Object.entries(rows)) {
        expect(descriptions).toContainEqual(expect.stringMatching(new RegExp(`^cannot delete group with child ${kind}\\b.*\\b${count}\\b`)))
      }
      expect((await spec.call('GetGroup', { uid: sub }, { token })).code).toBe(0)
    })

    // docs/spec/conventions.md#deletion-order
    test('only child records block a deletion: an empty group is deleted together with its own bindings', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const sub = await subgroup(spec, group, token)
      const member = await makeMember(spec.server, group, { role: 'viewer', bindAt: sub })
      const identity = uidOf(await identityUnder(spec, sub, token))
      expectFailure(await spec.call('DeleteGroup', { uid: sub }, { token }), {
        code: 9,
        message: 'Precondition failed: cannot delete group with child identities',
        violations: ['RESOURCE_NOT_EMPTY'],
      })
      await spec.ok('DeleteIdentity', { uid: identity }, { token })
      const [binding] = itemsOf(await spec.ok('ListRoleBindings', { identity: member.uid }, { token }), 'roleBindings')
      expect(await spec.ok('DeleteGroup', { uid: sub }, { token })).toEqual({})
      expectFailure(await spec.call('GetGroup', { uid: sub }, { token }), { code: 5 })
      expectFailure(await spec.call('GetRoleBinding', { uid: uidOf(binding ?? {}) }, { token }), { code: 5 })
      expect(await spec.ok('ListRoleBindings', { identity: member.uid }, { token })).toMatchObject({ roleBindings: [], totalCount: '0' })
      expectFailure(await spec.call('CreateGroup', { parent: sub, group: { name: 'orphan' } }, { token }), { code: 5 })
    })

    // docs/spec/conventions.md#deletion-order
    test('an owner can delete a root group although it holds their own binding', async () => {
      const name = freshName('root')
      const token = await operator()
      const group = uidOf(await spec.ok('CreateGroup', { group: { name } }, { token }))
      await spec.ok('DeleteGroup', { uid: group }, { token })
      expectFailure(await spec.call('GetGroup', { uid: group }, { token }), { code: 5 })
      expect(uidOf(await spec.ok('CreateGroup', { group: { name } }, { token }))).not.toBe(group)
    })

    /** A token of a person whose sign-in at `issuer` gave this verified address. */
    const mailToken = async (email: string, { issuer = mailIssuer, subject = freshName('person') } = {}): Promise<string> =>
      (await makePerson(spec.server, { issuer, subject, email })).token
    const forgedToken = async (group: string, email: string): Promise<string> => {
      const { uid } = await makeMember(spec.server, group)
      const audience = spec.server.config.baseUrl
      const act = { issuer: mailIssuer, subject: 'person', audience, email }
      return (await spec.server.running.signIn.tokens.mint({ identityUid: trustedUid(uid), audiences: [audience], act, restrictions: {} })).token
    }
    const verifiedRoot = async (): Promise<{ group: string; domain: string }> => {
      const domain = `${freshName('acme')}.example`
      const made = await spec.ok('CreateGroup', { group: { name: domain, verified: true, kind: 'ORG_KIND_CUSTOMER' } }, { token: await operator() })
      return { group: uidOf(made), domain }
    }

    // docs/spec/iam.md#group-lookup
    test('lookupGroup finds the verified root that is named like the domain of the verified address', async () => {
      const { group, domain } = await verifiedRoot()
      const token = await mailToken(`person@${domain.toUpperCase()}`)
      expect((await spec.ok('LookupGroup', {}, { token }))['group'] as JsonObject).toMatchObject({ uid: group, name: domain, verified: true })
      expect(await spec.ok('CheckEligibility', {}, { token })).toEqual({ eligible: true })
    })

    // docs/spec/iam.md#group-lookup
    test('every failure of lookupGroup is the same 404; checkEligibility never fails that way', async () => {
      const home = await makeOrganisation(spec.server)
      const { domain } = await verifiedRoot()
      const rows = [
        [await mailToken(`person@unknown.example`), true],
        [await mailToken(`person@gmail.com`), false],
        [await mailToken(`person@${domain}`, { issuer: 'https://untrusted.example' }), false],
        [home.token, false],
        // Any tenant can make an identity that names the trusted issuer and signs any address with keys of its own.
        [await forgedToken(home.group, `person@${domain}`), false],
      ] as const
      const messages = new Set<string>()
      for (const [token, eligible] of rows) {
        const reply = await spec.call('LookupGroup', {}, { token })
        expectFailure(reply, { code: 5 })
        messages.add(JSON.stringify([reply.message, reply.details['ResourceInfo']]))
        expect(await spec.ok('CheckEligibility', {}, { token })).toEqual({ eligible })
      }
      expect(messages.size).toBe(1)
      for (const rpc of ['LookupGroup', 'CheckEligibility']) expectFailure(await spec.call(rpc, {}), { code: 16 })
    })

    // docs/spec/iam.md#group-lookup
    test('requestGroupAccess concerns exactly the named group, once in 24 hours', async () => {
      const home = await makeOrganisation(spec.server)
      const { group, domain } = await verifiedRoot()
      const subject = freshName('person')
      const token = await mailToken(`person@${domain}`, { subject })
      // A dry run does not count.
      for (const validateOnly of [true, false]) {
        expect(await spec.ok('RequestGroupAccess', { groupUid: group }, { token, validateOnly })).toEqual({})
      }
      const repeated = await spec.call('RequestGroupAccess', { groupUid: group }, { token })
      expectFailure(repeated, { code: 8 })
      expect(repeated.details).toHaveProperty('RetryInfo')
      if (spec.transport === 'rest') expect(Number(repeated.header('retry-after'))).toBeGreaterThan(0)
      expectFailure(await spec.call('RequestGroupAccess', { groupUid: home.group }, { token }), { code: 5 })
      expectFailure(await spec.call('RequestGroupAccess', { groupUid: group }, { token: home.token }), { code: 5 })
      if (spec.transport === 'grpc') expectFailure(await spec.call('RequestGroupAccess', {}, { token }), { code: 3, fields: ['group_uid'] })
      spec.clock.advance(24 * 3_600_000 + 1000)
      const later = await mailToken(`person@${domain}`, { subject })
      await spec.ok('RequestGroupAccess', { groupUid: group }, { token: later })
    })

    spec.only('rest', () => {
      // docs/spec/iam.md#group-lookup
      test('requestGroupAccess without a group in its path is code 3', async () => {
        const { token } = await makeOrganisation(spec.server)
        const url = `http://127.0.0.1:${spec.server.config.api.port}/iam/v2/groups/:requestGroupAccess`
        const response = await fetch(url, { method: 'POST', headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' }, body: '{}' })
        expect(response.status).toBe(400)
        expect(await response.json()).toMatchObject({ code: 3, message: expect.stringMatching(/^Invalid argument: groupUid: /) as unknown })
      })
    })
  },
  { env: { TAPROOT_ISSUERS: JSON.stringify([{ issuer: mailIssuer }]), TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'false' } },
)
