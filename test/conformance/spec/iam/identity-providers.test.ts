import { createServer } from 'node:http'
import { fromBinary, type JsonObject } from '@bufbuild/protobuf'
import { afterAll, expect, test } from 'vitest'
import { trustedUid } from '../../../../src/base/uid.ts'
import { IdentityProviderSchema } from '../../../../src/gen/taproot/iam/v2/identity_providers_pb.ts'
import { clientSecretPath } from '../../../../src/iam/records/identity-providers.ts'
import { openSecret } from '../../../../src/engine/secrets.ts'
import { scimKey } from '../../../../src/store/keys.ts'
import { expectSoundStore } from '../../model/store-invariants.ts'
import { freshName, makeMember, makeOrganisation, roleUid } from '../../../support/test-server.ts'
import { eventsOf } from '../outbox.ts'
import { subgroup } from '../spec-kinds.ts'
import { expectFailure, itemsOf, specSuite, uidOf, type Spec } from '../spec-suite.ts'
import { listenOnLoopback } from '../../../support/parts/loopback.ts'

const secret = 'the secret of this client, and of no other'

/** Issuers on loopback, each with what its discovery document says of PKCE; the last has no document. */
const methodsByPath: Readonly<Record<string, readonly string[] | undefined>> = { '/s256': ['plain', 'S256'], '/plain': ['plain'], '/silent': undefined }
const issuers = createServer((request, response) => {
  const path = (request.url ?? '').replace('/.well-known/openid-configuration', '')
  if (!(path in methodsByPath)) return void response.writeHead(500).end()
  const methods = methodsByPath[path]
  const document = { issuer: `${origin}${path}`, ...(methods === undefined ? {} : { code_challenge_methods_supported: methods }) }
  response.setHeader('content-type', 'application/json').end(JSON.stringify(document))
})
const port = await listenOnLoopback(issuers)
const origin = `http://127.0.0.1:${port}`
afterAll(() => void issuers.close())
const paths = [...Object.keys(methodsByPath), '/down']
const env = { TAPROOT_ISSUERS: JSON.stringify(paths.map((path) => ({ issuer: `${origin}${path}`, allowPrivate: true }))) }

const oidc = { issuer: 'https://login.idp.example', clientId: 'platform', clientSecret: secret }
const provider = (change: JsonObject = {}): JsonObject => ({ name: freshName('idp'), defaultRole: roleUid('viewer'), oidc, ...change })

function make(spec: Spec, group: string, token: string, change: JsonObject = {}): Promise<JsonObject> {
  return spec.ok('CreateIdentityProvider', { parent: group, identityProvider: provider(change) }, { token })
}

/** The provider's client secret, as who signs people in will see it. */
function stored(spec: Spec, uid: string): string | undefined {
  const { cache, services } = spec.server.running.engine
  const record = cache.tables.get('IdentityProvider', uid)
  if (record === undefined) throw new Error('no provider')
  return openSecret(services.keyring, record, clientSecretPath)
}

/** Everything that the store holds and everything that was logged, as text. */
async function everywhere(spec: Spec): Promise<string> {
  const { entries } = await spec.server.running.engine.store.range({ prefix: '', limit: 100_000 }, AbortSignal.timeout(60_000))
  return [...entries.map(({ key, value }) => `${key} ${Buffer.from(value).toString('latin1')}`), JSON.stringify(spec.server.logs)].join('\n')
}

specSuite(
  'identity providers',
  (spec) => {
    // docs/spec/errors.md#messages
    test('identity providers are refused without an oidc block, with a message that names it', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const identityProvider = { name: freshName('idp'), defaultRole: roleUid('viewer') }
      const reply = await spec.call('CreateIdentityProvider', { parent: group, identityProvider }, { token })
      expect(reply.message).toBe('Invalid argument: oidc: is required')
    })

    // docs/spec/identities.md#client-secrets
    test('identity providers are returned by create with their defaults, without the secret; get returns the same', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const made = await make(spec, group, token, { name: 'login', description: 'ours' })
      const uid = uidOf(made)
      expect(made).toMatchObject({
        name: 'login',
        description: 'ours',
        defaultRole: roleUid('viewer'),
        oidc: { issuer: oidc.issuer, clientId: 'platform', correlationRule: 'CORRELATION_RULE_SUB_EQUALS_EXTERNAL_ID', pkceEnabled: false },
        scim: { enabled: false, endpointUrl: `${spec.server.config.baseUrl}/scim/v2/${uid}`, credentialState: 'CREDENTIAL_STATE_NOT_ISSUED' },
      })
      expect(await spec.ok('GetIdentityProvider', { uid }, { token })).toEqual(made)
    })

    // docs/spec/resources.md#secret-fields
    test('identity providers keep the secret out of answers, lists, events, logs and store keys; the store has it encrypted', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const made = await make(spec, group, token)
      const uid = uidOf(made)
      const updated = await spec.ok('UpdateIdentityProvider', { identityProvider: { uid, oidc: { ...oidc, groupsClaim: 'groups' } } }, { token })
      const list = await spec.ok('ListIdentityProviders', { uidp: { childrenOf: group } }, { token })
      await spec.call('UpdateIdentityProvider', { identityProvider: { uid, name: 'NO NAME', oidc } }, { token })
      expect(JSON.stringify([made, updated, list])).not.toContain('clientSecret')
      const all = await everywhere(spec)
      expect(all).toContain(uid)
      for (const form of [secret, Buffer.from(secret).toString('base64').slice(0, -2), Buffer.from(secret).toString('hex')])
        expect(all.includes(form)).toBe(false)
      expect(stored(spec, uid)).toBe(secret)
    })

    // docs/spec/events.md#omitted-data
    test('identity providers have events without the secret and times', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const uid = uidOf(await make(spec, group, token, { oidc: { ...oidc, correlationRule: 'CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID' } }))
      await spec.ok('UpdateIdentityProvider', { identityProvider: { uid, description: 'x' } }, { token })
      await spec.ok('DeleteIdentityProvider', { uid }, { token })
      const events = await eventsOf(spec, uid)
      expect(events.map(({ type }) => type.replace('dev.taproot.api.iam.identity_providers.', '')).sort()).toEqual(['created.v1', 'deleted.v1', 'updated.v1'])
      for (const event of events) {
        expect(event).toMatchObject({ group, internal: false, source: `${spec.server.config.baseUrl}/iam/v2/identityProviders` })
        if (event.type.endsWith('deleted.v1')) continue
        const { createTime, updateTime, scim, configuration } = fromBinary(IdentityProviderSchema, event.body)
        expect({ createTime, updateTime, scim }).toEqual({ createTime: undefined, updateTime: undefined, scim: undefined })
        expect(configuration.value).toMatchObject({ clientSecret: '', correlationRule: 2, pkceEnabled: false })
      }
    })

    const keepsOrReplaces = (rows: readonly [what: string, request: JsonObject, expected: string | undefined][]): void =>
      // docs/spec/identities.md#client-secrets
      test.each(rows)('identity providers keep or replace the stored secret in an update, if it %s', async (_what, request, expected) => {
        const { group, token } = await makeOrganisation(spec.server)
        const uid = uidOf(await make(spec, group, token, { oidc: { ...oidc, pkceEnabled: true } }))
        await spec.ok('UpdateIdentityProvider', { ...request, identityProvider: { ...(request['identityProvider'] as JsonObject), uid } }, { token })
        expect(stored(spec, uid)).toBe(expected)
      })
    keepsOrReplaces([
      ['is not named in the mask', { identityProvider: { description: 'x' }, updateMask: 'description' }, secret],
      ['is empty in a replaced block', { identityProvider: { oidc: { ...oidc, clientSecret: '' } }, updateMask: 'oidc' }, secret],
      [
        'is absent from a full replacement',
        { identityProvider: provider({ oidc: { ...oidc, clientSecret: '', pkceEnabled: true } }), updateMask: '*' },
        secret,
      ],
      ['is named in the mask and empty', { identityProvider: { oidc: { ...oidc, clientSecret: '' } }, updateMask: 'oidc.clientSecret' }, undefined],
      ['is different', { identityProvider: { oidc: { ...oidc, clientSecret: 'new' } }, updateMask: 'oidc.clientSecret' }, 'new'],
      ['comes in a replaced block', { identityProvider: { oidc: { ...oidc, clientSecret: 'new' } }, updateMask: 'oidc' }, 'new'],
    ])
    spec.only('rest', () =>
      keepsOrReplaces([
        ['is an empty key of a body without mask', { identityProvider: { oidc: { clientSecret: '' } } }, undefined],
        ['is absent from a body without mask', { identityProvider: { oidc: { groupsClaim: 'groups' } } }, secret],
      ]),
    )
    const withoutMask = { identityProvider: { oidc: { issuer: oidc.issuer, clientId: 'other', pkceEnabled: true } } }
    spec.only('grpc', () => keepsOrReplaces([['is empty in a message without mask', withoutMask, secret]]))

    // docs/spec/identities.md#identity-providers
    test('identity providers need a secret or PKCE after every write', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const uid = uidOf(await make(spec, group, token, { oidc: { ...oidc, pkceEnabled: true } }))
      const update = (change: JsonObject, updateMask: string) =>
        spec.call('UpdateIdentityProvider', { identityProvider: { uid, oidc: change }, updateMask }, { token })
      expect((await update({ pkceEnabled: false }, 'oidc.pkceEnabled')).code).toBe(0)
      expectFailure(await update({ clientSecret: '' }, 'oidc.clientSecret'), { code: 3, fields: ['oidc.client_secret'] })
      expect((await update({ clientSecret: '', pkceEnabled: true }, 'oidc.clientSecret,oidc.pkceEnabled')).code).toBe(0)
      expectFailure(await update({ pkceEnabled: false }, 'oidc.pkceEnabled'), { code: 3, fields: ['oidc.client_secret'] })
      expect(stored(spec, uid)).toBeUndefined()
    })

    // docs/spec/identities.md#client-secrets
    test('identity providers drop the secret when the issuer changes', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const uid = uidOf(await make(spec, group, token))
      const update = (change: JsonObject, updateMask: string) =>
        spec.call('UpdateIdentityProvider', { identityProvider: { uid, oidc: change }, updateMask }, { token })
      const issuer = 'https://elsewhere.example'
      expectFailure(await update({ issuer, pkceEnabled: true }, 'oidc.issuer,oidc.pkceEnabled'), { code: 3, fields: ['oidc.client_secret'] })
      expect((await update({ issuer, clientSecret: 'theirs' }, 'oidc.issuer,oidc.clientSecret')).code).toBe(0)
      expect(stored(spec, uid)).toBe('theirs')
    })

    // docs/spec/identities.md#correlation-rules
    test('identity providers accept the correlation rule unchanged or left out, never changed', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const correlationRule = 'CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID'
      const uid = uidOf(await make(spec, group, token, { oidc: { ...oidc, correlationRule } }))
      const update = (change: JsonObject, updateMask: string) =>
        spec.call('UpdateIdentityProvider', { identityProvider: { uid, oidc: change }, updateMask }, { token })
      for (const mask of ['oidc', 'oidc.correlationRule']) {
        expect((await update({ ...oidc, correlationRule }, mask)).body['oidc']).toMatchObject({ correlationRule })
        expect((await update(oidc, mask)).body['oidc']).toMatchObject({ correlationRule })
        const other = { ...oidc, correlationRule: 'CORRELATION_RULE_SUB_EQUALS_EXTERNAL_ID' }
        expectFailure(await update(other, mask), { code: 3, fields: ['oidc.correlation_rule'] })
      }
    })

    // docs/spec/identities.md#identity-providers
    test.each([
      ['/s256', 0],
      ['/silent', 0],
      ['/down', 0],
      ['/plain', 3],
    ])('identity providers with PKCE and an issuer whose document is %s get code %i', async (path, code) => {
      const { group, token } = await makeOrganisation(spec.server)
      const asked = { ...oidc, issuer: `${origin}${path}`, pkceEnabled: true }
      const made = await spec.call('CreateIdentityProvider', { parent: group, identityProvider: provider({ oidc: asked }) }, { token })
      const without = await make(spec, group, token, { oidc: { ...asked, pkceEnabled: false } })
      const change = { identityProvider: { uid: uidOf(without), oidc: { pkceEnabled: true } }, updateMask: 'oidc.pkceEnabled' }
      for (const reply of [made, await spec.call('UpdateIdentityProvider', change, { token })]) {
        if (code === 0) expect(reply.code, reply.message).toBe(0)
        else expectFailure(reply, { code, fields: ['oidc.pkce_enabled'] })
      }
    })

    // docs/spec/resources.md#unique-names
    test('identity providers have unique names in a group', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      await make(spec, group, token, { name: 'login' })
      expectFailure(await spec.call('CreateIdentityProvider', { parent: group, identityProvider: provider({ name: 'login' }) }, { token }), { code: 6 })
      expect((await make(spec, await subgroup(spec, group, token), token, { name: 'login' }))['name']).toBe('login')
    })

    // docs/spec/identities.md#default-roles
    test('identity providers need a caller who holds the rights of the default role; a deleted default role grants nothing', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const role = uidOf(await spec.ok('CreateRole', { parent: group, role: { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_DELETE'] } }, { token }))
      const capabilities = ['CAP_IAM_IDENTITY_PROVIDERS_CREATE', 'CAP_IAM_IDENTITY_PROVIDERS_UPDATE', 'CAP_IAM_ROLE_BINDINGS_CREATE']
      const weak = uidOf(await spec.ok('CreateRole', { parent: group, role: { name: freshName('weak'), capabilities } }, { token }))
      const member = await makeMember(spec.server, group, { role: weak })
      const by = { token: member.token }
      expectFailure(await spec.call('CreateIdentityProvider', { parent: group, identityProvider: provider({ defaultRole: role }) }, by), { code: 7 })
      const uid = uidOf(await make(spec, group, token, { defaultRole: role }))
      const changed = { identityProvider: { uid, oidc: { groupsClaim: 'groups' } }, updateMask: 'oidc.groupsClaim' }
      expectFailure(await spec.call('UpdateIdentityProvider', changed, by), { code: 7 })
      expect((await spec.ok('UpdateIdentityProvider', { identityProvider: { uid, description: 'x' } }, by))['description']).toBe('x')
      await spec.ok('DeleteRole', { uid: role }, { token })
      expect((await spec.ok('UpdateIdentityProvider', changed, by))['defaultRole']).toBe(role)
    })

    // docs/spec/iam.md#no-escalation
    test('need, for a change of sign-in or SCIM tokens, a caller who holds the rights of their mappings', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const team = await subgroup(spec, group, token)
      const uid = uidOf(await make(spec, team, token))
      const mapping = { externalGroupId: 'admins', roleUid: roleUid('owner'), scope: group }
      // The owner of the subgroup holds all that the default role grants there, but nothing in the organisation.
      const local = { token: (await makeMember(spec.server, team, { role: 'owner' })).token }
      const changed = { identityProvider: { uid, oidc: { groupsClaim: 'groups' } }, updateMask: 'oidc.groupsClaim' }
      await spec.ok('UpdateIdentityProvider', changed, local)
      expectFailure(await spec.call('CreateExternalGroupRoleMapping', { parent: uid, externalGroupRoleMapping: mapping }, local), { code: 7 })
      await spec.ok('CreateExternalGroupRoleMapping', { parent: uid, externalGroupRoleMapping: mapping }, { token })
      const again = { identityProvider: { uid, oidc: { groupsClaim: 'roles' } }, updateMask: 'oidc.groupsClaim' }
      expectFailure(await spec.call('UpdateIdentityProvider', again, local), { code: 7 })
      const secretOnly = { identityProvider: { uid, oidc: { clientSecret: 'mine' } }, updateMask: 'oidc.clientSecret' }
      expectFailure(await spec.call('UpdateIdentityProvider', secretOnly, local), { code: 7 })
      expectFailure(await spec.call('GenerateScimToken', { identityProviderUid: uid }, local), { code: 7 })
      const { etag = '' } = await spec.ok('GenerateScimToken', { identityProviderUid: uid }, { token })
      expectFailure(await spec.call('RegenerateScimToken', { identityProviderUid: uid, etag }, local), { code: 7 })
      expectFailure(await spec.call('SetScimEnabled', { identityProviderUid: uid, etag, enabled: true }, local), { code: 7 })
      // Stopping it takes no more than the capability.
      await spec.ok('RevokeScimToken', { identityProviderUid: uid }, local)
      expect((await spec.ok('UpdateIdentityProvider', { identityProvider: { uid, description: 'x' } }, local))['description']).toBe('x')
    })

    // docs/spec/iam.md#references-in-bodies
    test("identity providers treat a role of a group above the caller's reach like a missing one", async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const team = await subgroup(spec, group, token)
      const above = uidOf(await spec.ok('CreateRole', { parent: group, role: { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST'] } }, { token }))
      const local = { token: (await makeMember(spec.server, team, { role: 'owner' })).token }
      const missing = `${group}/${'0'.repeat(16)}`
      const answers = await Promise.all(
        [above, missing].map((defaultRole) => spec.call('CreateIdentityProvider', { parent: team, identityProvider: provider({ defaultRole }) }, local)),
      )
      for (const reply of answers) expectFailure(reply, { code: 3, fields: ['default_role'] })
      expect(answers[0]?.message).toBe(answers[1]?.message)
    })

    // docs/spec/conventions.md#deletion-order
    test('identity providers never move to another group, and take mappings and SCIM credentials along when deleted', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const team = await subgroup(spec, group, token)
      const uid = uidOf(await make(spec, team, token))
      const mapping = { externalGroupId: 'staff', roleUid: roleUid('viewer'), scope: group }
      const mapped = uidOf(await spec.ok('CreateExternalGroupRoleMapping', { parent: uid, externalGroupRoleMapping: mapping }, { token }))
      await spec.ok('GenerateScimToken', { identityProviderUid: uid }, { token })
      const { store } = spec.server.running.engine
      expect(await store.get(scimKey(trustedUid(uid)), AbortSignal.timeout(60_000))).toBeDefined()
      expectFailure(await spec.call('DeleteGroup', { uid: team }, { token }), {
        code: 9,
        violations: ['RESOURCE_NOT_EMPTY'],
        message: 'Precondition failed: cannot delete group with child identity providers',
      })
      await spec.ok('DeleteIdentityProvider', { uid }, { token })
      expectFailure(await spec.call('GetExternalGroupRoleMapping', { uid: mapped }, { token }), { code: 5 })
      expect(await spec.ok('ListExternalGroupRoleMappings', { identityProviderUid: uid }, { token })).toMatchObject({ totalCount: '0' })
      expect(await store.get(scimKey(trustedUid(uid)), AbortSignal.timeout(60_000))).toBeUndefined()
      for (const rpc of ['GenerateScimToken', 'RevokeScimToken']) expectFailure(await spec.call(rpc, { identityProviderUid: uid }, { token }), { code: 5 })
      await spec.ok('DeleteGroup', { uid: team }, { token })
      await expectSoundStore(store)
      const { entries } = await store.range({ prefix: '', limit: 100_000 }, AbortSignal.timeout(60_000))
      expect(entries.map(({ key }) => key).filter((key) => /^[ri]\//.test(key) && key.includes(uid))).toEqual([])
    })

    // docs/spec/identities.md#client-secrets
    test('identity providers return no secret from a repeated create; a request with another secret is another request', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const options = { token, idempotencyKey: freshName('key') }
      const body = { parent: group, identityProvider: provider() }
      const made = await spec.ok('CreateIdentityProvider', body, options)
      const again = await spec.ok('CreateIdentityProvider', body, options)
      expect(again).toEqual(made)
      const other = { parent: group, identityProvider: { ...body.identityProvider, oidc: { ...oidc, clientSecret: 'another' } } }
      expectFailure(await spec.call('CreateIdentityProvider', other, options), { code: 3, reason: 'IDEMPOTENCY_KEY_REUSED' })
      expect(itemsOf(await spec.ok('ListIdentityProviders', { uidp: { childrenOf: group } }, { token }), 'identityProviders')).toHaveLength(1)
    })
  },
  { env },
)
