import { createHash } from 'node:crypto'
import { fromBinary, type JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { trustedUid } from '../../../../src/base/uid.ts'
import { GenerateScimTokenResponseSchema } from '../../../../src/gen/taproot/iam/v2/identity_providers_pb.ts'
import { checkScimToken } from '../../../../src/iam/scim/scim-credentials.ts'
import { scimStateOf } from '../../../../src/iam/scim/scim-state.ts'
import { scimKey } from '../../../../src/store/keys.ts'
import { freshName, makeMember, makeOrganisation, roleUid } from '../../../support/test-server.ts'
import { eventsOf } from '../outbox.ts'
import { expectFailure, itemsOf, specSuite, uidOf, type Spec } from '../spec-suite.ts'

const hourMs = 3_600_000
const dayMs = 24 * hourMs

async function providerOf(spec: Spec) {
  const organisation = await makeOrganisation(spec.server)
  const { group, token } = organisation
  const oidc = { issuer: 'https://login.idp.example', clientId: 'platform', clientSecret: 'secret' }
  const identityProvider = { name: freshName('idp'), defaultRole: roleUid('viewer'), oidc }
  const uid = uidOf(await spec.ok('CreateIdentityProvider', { parent: group, identityProvider }, { token }))
  const scim = async (): Promise<JsonObject> => (await spec.ok('GetIdentityProvider', { uid }, { token }))['scim'] as JsonObject
  const works = (scimToken: unknown): boolean =>
    checkScimToken(scimStateOf(spec.server.running.engine.cache.tables, trustedUid(uid)), String(scimToken), spec.clock.now())
  const verb = (rpc: string, request: JsonObject = {}) => spec.ok(rpc, { identityProviderUid: uid, ...request }, { token })
  return { ...organisation, uid, scim, works, verb }
}

function near(actual: unknown, expectedMs: number): void {
  expect(Math.abs(Date.parse(String(actual)) - expectedMs)).toBeLessThan(60_000)
}

specSuite('SCIM tokens', (spec) => {
  // docs/spec/scim.md#scim-tokens
  test('SCIM tokens are returned once by generate; SCIM is off, and only a digest is stored', async () => {
    const { uid, scim, works, verb, token, group } = await providerOf(spec)
    const made = await verb('GenerateScimToken')
    expect(made['token']).toMatch(/^cgscim_[0-9a-f]{64}$/)
    const endpointUrl = `${spec.server.config.baseUrl}/scim/v2/${uid}`
    expect(made).toMatchObject({ endpointUrl, identityProviderUid: uid })
    near(made['expireTime'], spec.clock.now() + 365 * dayMs)
    const { expireTime, etag } = made
    expect(await scim()).toEqual({ enabled: false, endpointUrl, tokenExpireTime: expireTime, credentialState: 'CREDENTIAL_STATE_LIVE', etag })
    expect(works(made['token'])).toBe(true)
    // Lists leave the status out.
    const [listed] = itemsOf(await spec.ok('ListIdentityProviders', { uidp: { childrenOf: group } }, { token }), 'identityProviders')
    expect(listed?.['scim']).toEqual({ enabled: false, endpointUrl: '', credentialState: 'CREDENTIAL_STATE_UNSPECIFIED', etag })
    const { entries } = await spec.server.running.engine.store.range({ prefix: '', limit: 100_000 }, AbortSignal.timeout(60_000))
    const secret = String(made['token'])
    const all = `${entries.map(({ value }) => Buffer.from(value).toString('latin1')).join('\n')}${JSON.stringify(spec.server.logs)}`
    expect(all.includes(secret) || all.includes(secret.slice(7))).toBe(false)
    const kept = entries.find(({ key }) => key === scimKey(trustedUid(uid)))
    expect(Buffer.from(kept?.value ?? []).includes(createHash('sha256').update(secret).digest())).toBe(true)
  })

  // docs/spec/scim.md#scim-tokens
  test('SCIM tokens can not be generated a second time (code 9), also with the Idempotency-Key of the first call', async () => {
    const { uid, verb, token } = await providerOf(spec)
    const options = { token, idempotencyKey: freshName('key') }
    await spec.ok('GenerateScimToken', { identityProviderUid: uid }, options)
    const again = await spec.call('GenerateScimToken', { identityProviderUid: uid }, options)
    expectFailure(again, { code: 9, reason: 'SCIM_TOKEN_EXISTS', violations: ['SCIM_TOKEN_EXISTS'] })
    expect(JSON.stringify(again.body)).not.toContain('cgscim_')
    await verb('RevokeScimToken')
    expectFailure(await spec.call('GenerateScimToken', { identityProviderUid: uid }, { token }), { code: 9, reason: 'SCIM_TOKEN_EXISTS' })
  })

  // docs/spec/conventions.md#dry-run
  test('SCIM tokens are not created by a dry run', async () => {
    const { uid, scim, verb, token } = await providerOf(spec)
    const dry = await spec.ok('GenerateScimToken', { identityProviderUid: uid }, { token, validateOnly: true })
    expect(dry['token']).toBeUndefined()
    expect((await scim())['credentialState']).toBe('CREDENTIAL_STATE_NOT_ISSUED')
    const { etag = '' } = await verb('GenerateScimToken')
    const again = await spec.ok('RegenerateScimToken', { identityProviderUid: uid, etag }, { token, validateOnly: true })
    expect(again['token']).toBeUndefined()
    expect((await scim())['etag']).toBe(etag)
  })

  // docs/spec/scim.md#scim-tokens
  test('SCIM tokens may have no expiration, or one within two years', async () => {
    const never = await providerOf(spec)
    expect(await never.verb('GenerateScimToken', { neverExpires: true })).not.toHaveProperty('expireTime')
    expect(await never.scim()).not.toHaveProperty('tokenExpireTime')
    const { uid, verb, token } = await providerOf(spec)
    const generate = (ms: number) =>
      spec.call('GenerateScimToken', { identityProviderUid: uid, expireTime: new Date(spec.clock.now() + ms).toISOString() }, { token })
    for (const ms of [-1000, 732 * dayMs]) expectFailure(await generate(ms), { code: 3, fields: ['expire_time'] })
    const both = { neverExpires: true, expireTime: new Date(spec.clock.now() + dayMs).toISOString() }
    expectFailure(await spec.call('GenerateScimToken', { identityProviderUid: uid, ...both }, { token }), { code: 3, fields: ['expire_time'] })
    await verb('GenerateScimToken', { expireTime: new Date(spec.clock.now() + 730 * dayMs).toISOString() })
  })

  // docs/spec/scim.md#token-rotation
  test.each([
    ['defaults to an hour', undefined, hourMs, '3600s'],
    ['is as requested', '600s', 600_000, '600s'],
    ['is limited to a day', '172800s', dayMs, '172800s'],
    ['of zero ends the old token at once', '0s', undefined, '0s'],
  ])('the overlap of two SCIM tokens %s', async (_title, overlap, endMs, requestedOverlap) => {
    const { works, verb, scim } = await providerOf(spec)
    const first = await verb('GenerateScimToken')
    const second = await verb('RegenerateScimToken', { etag: first['etag'] ?? '', ...(overlap === undefined ? {} : { overlap }) })
    expect(second).toMatchObject({ requestedOverlap })
    expect([works(first['token']), works(second['token'])]).toEqual([endMs !== undefined, true])
    const { credentialState, previousTokenExpireTime, etag } = await scim()
    expect({ credentialState, previousTokenExpireTime, etag }).toEqual({
      credentialState: `CREDENTIAL_STATE_${endMs === undefined ? 'LIVE' : 'ROTATING'}`,
      previousTokenExpireTime: second['previousTokenExpireTime'],
      etag: second['etag'],
    })
    expect(etag).not.toBe(first['etag'])
    if (endMs !== undefined) near(previousTokenExpireTime, spec.clock.now() + endMs)
  })

  // docs/spec/scim.md#token-rotation
  test('SCIM tokens that are revoked or expired stay invalid after a regenerate', async () => {
    const { works, verb } = await providerOf(spec)
    const first = await verb('GenerateScimToken')
    const revoked = await verb('RevokeScimToken')
    expect(works(first['token'])).toBe(false)
    const second = await verb('RegenerateScimToken', { etag: revoked['etag'] ?? '' })
    expect(second).not.toHaveProperty('previousTokenExpireTime')
    expect([works(first['token']), works(second['token'])]).toEqual([false, true])
  })

  // docs/spec/scim.md#token-rotation
  test('SCIM tokens are regenerated with the current etag: without it code 3, with another code 10, without a token code 5', async () => {
    const { uid, verb, token } = await providerOf(spec)
    const regenerate = (request: JsonObject) => spec.call('RegenerateScimToken', { identityProviderUid: uid, ...request }, { token })
    expectFailure(await regenerate({}), { code: 3, fields: ['etag'] })
    const never = await regenerate({ etag: '0123456789abcdef' })
    expectFailure(never, { code: 5 })
    expect(never.details['ResourceInfo']).toMatchObject({ resourceType: 'iam.taproot.dev/ScimToken', resourceName: uid })
    const { etag = '' } = await verb('GenerateScimToken')
    expectFailure(await regenerate({ etag: '0123456789abcdef' }), { code: 10, reason: 'ETAG_MISMATCH' })
    const again = await Promise.all([regenerate({ etag }), regenerate({ etag })])
    expect(again.map(({ code }) => code).sort()).toEqual([0, 10])
  })

  // docs/spec/scim.md#token-revocation
  test('both end with revoke, which shows the time, leaves SCIM on or off, and may be repeated', async () => {
    const { uid, works, verb, scim, token } = await providerOf(spec)
    expectFailure(await spec.call('RevokeScimToken', { identityProviderUid: uid }, { token }), { code: 5 })
    const first = await verb('GenerateScimToken')
    const second = await verb('RegenerateScimToken', { etag: first['etag'] ?? '' })
    const revoked = await verb('RevokeScimToken')
    expect(revoked).toMatchObject({ identityProviderUid: uid, enabled: false })
    near(revoked['revokeTime'], spec.clock.now())
    expect([first, second].map((made) => works(made['token']))).toEqual([false, false])
    expect(await scim()).toMatchObject({ credentialState: 'CREDENTIAL_STATE_REVOKED', etag: revoked['etag'] })
    expect((await verb('RevokeScimToken'))['revokeTime']).toBe(revoked['revokeTime'])
  })

  // docs/spec/scim.md#enabling
  test('SCIM tokens need two registered owners, bound directly in the organisation, before SCIM is turned on', async () => {
    const { uid, group, verb, scim, token } = await providerOf(spec)
    const set = (request: JsonObject) => spec.call('SetScimEnabled', { identityProviderUid: uid, ...request }, { token })
    expectFailure(await set({ enabled: true }), { code: 3, fields: ['etag'] })
    const { etag = '' } = await verb('GenerateScimToken')
    const few = { code: 9, reason: 'SCIM_MIN_OWNERS', violations: ['SCIM_MIN_OWNERS'] }
    expectFailure(await set({ enabled: true, etag }), few)
    // An owner in name only, who has never signed in; and a role through a mapping.
    const { uid: anonymous = '' } = await spec.ok('LookupIdentity', { issuer: 'https://issuer.example', subject: freshName('unknown') }, { token })
    await spec.ok('CreateRoleBinding', { parent: group, roleBinding: { identityUid: anonymous, roleUid: roleUid('owner') } }, { token })
    const mapping = { externalGroupId: 'admins', roleUid: roleUid('owner'), scope: group }
    await spec.ok('CreateExternalGroupRoleMapping', { parent: uid, externalGroupRoleMapping: mapping }, { token })
    expectFailure(await set({ enabled: true, etag }), few)
    await makeMember(spec.server, group, { role: 'owner' })
    const on = await set({ enabled: true, etag })
    expect(on.body).toEqual({ identityProviderUid: uid, enabled: true, etag: expect.not.stringMatching(String(etag)) as unknown })
    expect(await scim()).toMatchObject({ enabled: true, etag: on.body['etag'] })
    expectFailure(await set({ enabled: false, etag }), { code: 10, reason: 'ETAG_MISMATCH' })
    const revoked = await verb('RevokeScimToken')
    expect(revoked['enabled']).toBe(true)
    // Off needs no owners, on no token that works.
    const off = await set({ enabled: false, etag: revoked['etag'] ?? '' })
    expect(off.body['enabled']).toBe(false)
    expect((await set({ enabled: true, etag: off.body['etag'] ?? '' })).body['enabled']).toBe(true)
  })

  // docs/spec/events.md#omitted-data
  test('SCIM tokens have an event for each verb, without the token', async () => {
    const { uid, group, verb } = await providerOf(spec)
    const first = await verb('GenerateScimToken')
    const second = await verb('RegenerateScimToken', { etag: first['etag'] ?? '' })
    const { etag = '' } = await verb('RevokeScimToken')
    await verb('SetScimEnabled', { enabled: false, etag })
    const events = (await eventsOf(spec, uid)).filter(({ type }) => type.includes('.scim_'))
    expect(events.map(({ type }) => type.replace('dev.taproot.api.iam.identity_providers.', '')).sort()).toEqual([
      'scim_enabled.updated.v1',
      'scim_token.generated.v1',
      'scim_token.regenerated.v1',
      'scim_token.revoked.v1',
    ])
    for (const event of events) {
      expect(event).toMatchObject({ group, source: `${spec.server.config.baseUrl}/iam/v2/identityProviders`, internal: false })
      for (const { token } of [first, second]) expect(Buffer.from(event.body).includes(String(token).slice(7))).toBe(false)
    }
    const generated = events.find(({ type }) => type.endsWith('.generated.v1'))
    expect(fromBinary(GenerateScimTokenResponseSchema, generated?.body ?? new Uint8Array())).toMatchObject({ token: '', etag: first['etag'] })
  })

  // docs/spec/scim.md#credential-states
  test("SCIM tokens are unaffected by the scim field of a provider's update, and its etag stays", async () => {
    const { uid, verb, scim, token } = await providerOf(spec)
    const before = await spec.ok('GetIdentityProvider', { uid }, { token })
    await verb('GenerateScimToken')
    expect((await spec.ok('GetIdentityProvider', { uid }, { token }))['etag']).toBe(before['etag'])
    const sent = { uid, description: 'x', scim: { enabled: true, credentialState: 'CREDENTIAL_STATE_REVOKED' } }
    await spec.ok('UpdateIdentityProvider', { identityProvider: sent }, { token })
    expect(await scim()).toMatchObject({ enabled: false, credentialState: 'CREDENTIAL_STATE_LIVE' })
  })
})
