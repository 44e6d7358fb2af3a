import { fromBinary, type JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { trustedUid } from '../../../../src/base/uid.ts'
import { BatchDeleteExternalGroupRoleMappingsResponseSchema } from '../../../../src/gen/taproot/iam/v2/external_group_role_mappings_pb.ts'
import type { OutboxEvent } from '../../../../src/gen/taproot/store/v1/envelope_pb.ts'
import { mappingsFor } from '../../../../src/iam/records/external-group-role-mappings.ts'
import { freshName, makeMember, makeOrganisation, roleUid } from '../../../support/test-server.ts'
import { eventsOf } from '../outbox.ts'
import { subgroup } from '../spec-kinds.ts'
import { expectFailure, itemsOf, specSuite, uidOf, type Spec } from '../spec-suite.ts'

async function makeProvider(spec: Spec, group: string, token: string): Promise<string> {
  const oidc = { issuer: 'https://login.idp.example', clientId: 'platform', clientSecret: 'secret' }
  const identityProvider = { name: freshName('idp'), defaultRole: roleUid('viewer'), oidc }
  return uidOf(await spec.ok('CreateIdentityProvider', { parent: group, identityProvider }, { token }))
}

async function ground(spec: Spec) {
  const organisation = await makeOrganisation(spec.server)
  const { group, token } = organisation
  const provider = await makeProvider(spec, group, token)
  const draft = (change: JsonObject = {}): JsonObject => ({ externalGroupId: 'staff', roleUid: roleUid('viewer'), scope: group, ...change })
  const map = (change: JsonObject = {}, parent = provider): Promise<JsonObject> =>
    spec.ok('CreateExternalGroupRoleMapping', { parent, externalGroupRoleMapping: draft(change) }, { token })
  const list = async (request: JsonObject): Promise<string[]> =>
    itemsOf(await spec.ok('ListExternalGroupRoleMappings', request, { token }), 'externalGroupRoleMappings').map(uidOf)
  return { ...organisation, provider, draft, map, list }
}

async function mappingEvents(spec: Spec, subject: string, type: string): Promise<OutboxEvent[]> {
  return (await eventsOf(spec, subject)).filter((event) => event.type.endsWith(`.external_group_role_mappings.${type}.v1`))
}

specSuite('external group role mappings', (spec) => {
  // docs/spec/identities.md#group-mappings
  test('external group role mappings are children of a provider, shown in uid and a field; get, lists and filters find them', async () => {
    const { group, token, provider, draft, map, list } = await ground(spec)
    const made = await map()
    expect(made).toMatchObject({ ...draft(), identityProviderUid: provider })
    expect(uidOf(made).slice(0, provider.length + 1)).toBe(`${provider}/`)
    expect(await spec.ok('GetExternalGroupRoleMapping', { uid: uidOf(made) }, { token })).toEqual(made)
    const other = await map({}, await makeProvider(spec, group, token))
    expect(await list({ identityProviderUid: provider })).toEqual([uidOf(made)])
    expect(await list({ uidp: { childrenOf: provider } })).toEqual([uidOf(made)])
    expect(await list({ uidp: { descendantsOf: group } })).toEqual([uidOf(made), uidOf(other)].sort())
    const [event] = await mappingEvents(spec, uidOf(made), 'created')
    expect(event).toMatchObject({ group, source: `${spec.server.config.baseUrl}/iam/v2/externalGroupRoleMappings` })
  })

  // docs/spec/identities.md#group-mappings
  test('external group role mappings are unique in provider, external group, role and scope; each difference makes another mapping', async () => {
    const { group, token, provider, draft, map } = await ground(spec)
    const made = await map()
    expectFailure(await spec.call('CreateExternalGroupRoleMapping', { parent: provider, externalGroupRoleMapping: draft() }, { token }), { code: 6 })
    await map({ externalGroupId: 'STAFF' })
    await map({ roleUid: roleUid('editor') })
    await map({}, await makeProvider(spec, group, token))
    await spec.ok('DeleteExternalGroupRoleMapping', { uid: uidOf(made) }, { token })
    expect(uidOf(await map())).not.toBe(uidOf(made))
  })

  // docs/spec/identities.md#group-mappings
  test.each([
    ['a typical name', 'CN=Größe/Ω,OU=a b,DC=example'],
    ['special characters', 'a:b%2F/../{}"\\'],
    ['one character', '*'],
    ['the longest name', 'ж'.repeat(255)],
  ])('external group role mappings accept as external group: %s', async (_title, externalGroupId) => {
    const { map, provider } = await ground(spec)
    const made = await map({ externalGroupId })
    expect(made['externalGroupId']).toBe(externalGroupId)
    const { tables } = spec.server.running.engine.cache
    expect(mappingsFor(tables, trustedUid(provider), [externalGroupId]).map(({ mapping }) => mapping)).toEqual([uidOf(made)])
  })

  // docs/spec/identities.md#group-mappings
  test('external group role mappings have the organisation as scope, also for a provider of a subgroup', async () => {
    const { group, token, draft, map } = await ground(spec)
    const team = await subgroup(spec, group, token)
    const provider = await makeProvider(spec, team, token)
    for (const scope of [team, provider, 'f'.repeat(40)]) {
      const request = { parent: provider, externalGroupRoleMapping: draft({ scope }) }
      expectFailure(await spec.call('CreateExternalGroupRoleMapping', request, { token }), { code: 3, fields: ['scope'] })
    }
    expect((await map({}, provider))['scope']).toBe(group)
  })

  // docs/spec/iam.md#no-escalation
  test('external group role mappings need a creator who holds what the role grants; a custom role works at and below its group only', async () => {
    const { group, token, provider, draft, map } = await ground(spec)
    const capabilities = ['CAP_IAM_IDENTITY_PROVIDERS_CREATE', 'CAP_IAM_ROLE_BINDINGS_CREATE']
    const role = uidOf(await spec.ok('CreateRole', { parent: group, role: { name: freshName('role'), capabilities } }, { token }))
    const member = await makeMember(spec.server, group, { role })
    const request = (roleUidText: string) => ({ parent: provider, externalGroupRoleMapping: draft({ roleUid: roleUidText }) })
    const denied = await spec.call('CreateExternalGroupRoleMapping', request(roleUid('viewer')), { token: member.token })
    expectFailure(denied, { code: 7 })
    expect((await spec.ok('CreateExternalGroupRoleMapping', request(role), { token: member.token }))['roleUid']).toBe(role)
    const team = await subgroup(spec, group, token)
    const below = uidOf(await spec.ok('CreateRole', { parent: team, role: { name: freshName('role'), capabilities } }, { token }))
    expectFailure(await spec.call('CreateExternalGroupRoleMapping', request(below), { token }), { code: 3, fields: ['role_uid'] })
    // docs/spec/identities.md#group-mappings: a mapping keeps no role from being deleted, and grants nothing then.
    const other = uidOf(await spec.ok('CreateRole', { parent: group, role: { name: freshName('role'), capabilities } }, { token }))
    const mapped = await map({ roleUid: other })
    await spec.ok('DeleteRole', { uid: other }, { token })
    expect((await spec.ok('GetExternalGroupRoleMapping', { uid: uidOf(mapped) }, { token }))['roleUid']).toBe(other)
  })

  // docs/spec/identities.md#mapped-sessions
  test('mappings of one external group to several roles grant all of them; groups of other providers and tenants do not count', async () => {
    const { group, token, provider, map } = await ground(spec)
    const foreign = await ground(spec)
    await foreign.map()
    await map({}, await makeProvider(spec, group, token))
    const wanted = [await map(), await map({ roleUid: roleUid('editor') }), await map({ externalGroupId: 'leads', roleUid: roleUid('owner') })]
    await map({ externalGroupId: 'others' })
    const { tables } = spec.server.running.engine.cache
    const found = mappingsFor(tables, trustedUid(provider), ['staff', 'leads', 'staff', 'unknown', ''])
    expect(found.map(({ mapping }) => mapping)).toEqual(wanted.map(uidOf).sort())
    expect(found.map(({ roleUid: role }) => role).sort()).toEqual(['viewer', 'editor', 'owner'].map(roleUid).sort())
    expect(new Set(found.map(({ scope }) => scope))).toEqual(new Set([group]))
    expect(mappingsFor(tables, trustedUid(foreign.provider), ['leads'])).toEqual([])
  })

  // docs/spec/identities.md#mapping-batches
  test('external group role mappings are deleted in a batch that skips missing ones, and returns and reports the deleted ones', async () => {
    const { group, token, provider, map, list } = await ground(spec)
    const [one, two, three] = [await map({ externalGroupId: 'a' }), await map({ externalGroupId: 'b' }), await map({ externalGroupId: 'c' })]
    await spec.ok('DeleteExternalGroupRoleMapping', { uid: uidOf(one) }, { token })
    const names = [two, one, two].map(uidOf).concat(`${provider}/${'0'.repeat(16)}`)
    expect(await spec.ok('BatchDeleteExternalGroupRoleMappings', { parent: provider, names }, { token })).toEqual({
      parent: provider,
      externalGroupRoleMappings: [two],
    })
    expect(await list({ identityProviderUid: provider })).toEqual([uidOf(three)])
    const events = await mappingEvents(spec, provider, 'deleted.batch')
    expect(events).toMatchObject([{ group, bodyType: BatchDeleteExternalGroupRoleMappingsResponseSchema.typeName }])
    // All gone: success, and nothing to tell.
    expect(await spec.ok('BatchDeleteExternalGroupRoleMappings', { parent: provider, names }, { token })).toEqual({
      parent: provider,
      externalGroupRoleMappings: [],
    })
    expect(await mappingEvents(spec, provider, 'deleted.batch')).toHaveLength(1)
  })

  // docs/spec/identities.md#mapping-batches
  test('external group role mappings are not deleted in a batch with a uid of another parent (code 3), nor in a dry run', async () => {
    const { group, token, provider, map, list } = await ground(spec)
    const mine = uidOf(await map())
    const other = await makeProvider(spec, group, token)
    const theirs = uidOf(await map({}, other))
    for (const name of [theirs, other, provider, group]) {
      const reply = await spec.call('BatchDeleteExternalGroupRoleMappings', { parent: provider, names: [mine, name] }, { token })
      expectFailure(reply, { code: 3, fields: ['names[1]'] })
    }
    await spec.ok('BatchDeleteExternalGroupRoleMappings', { parent: provider, names: [mine] }, { token, validateOnly: true })
    expect(await list({ uidp: { descendantsOf: group } })).toEqual([mine, theirs].sort())
  })

  // docs/spec/identities.md#mapping-batches
  test('external group role mappings are deleted in a batch larger than one store transaction', async () => {
    const { token, provider, map, list } = await ground(spec)
    const made: string[] = []
    for (let at = 0; at < 130; at += 10) {
      made.push(...(await Promise.all(Array.from({ length: 10 }, (_, index) => map({ externalGroupId: `group ${at + index}` })))).map(uidOf))
    }
    const kept = made.pop() ?? ''
    const { externalGroupRoleMappings } = await spec.ok('BatchDeleteExternalGroupRoleMappings', { parent: provider, names: made }, { token })
    expect((externalGroupRoleMappings as JsonObject[]).map(uidOf)).toEqual(made)
    expect(await list({ identityProviderUid: provider })).toEqual([kept])
    const events = await mappingEvents(spec, provider, 'deleted.batch')
    const reported = events.flatMap(({ body }) => fromBinary(BatchDeleteExternalGroupRoleMappingsResponseSchema, body).externalGroupRoleMappings)
    expect(reported.map(({ uid }) => uid).sort()).toEqual([...made].sort())
  })
})
