import { fromBinary } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { AccountAssociationSchema } from '../../../../src/gen/taproot/iam/v2/account_associations_pb.ts'
import { makeMember, makeOrganisation } from '../../../support/test-server.ts'
import { eventsOf } from '../outbox.ts'
import { subgroup } from '../spec-kinds.ts'
import { etagOf, expectFailure, itemsOf, specSuite, uidOf } from '../spec-suite.ts'

const amazon = { account: '123456789012' }

specSuite('account associations', (spec) => {
  const associate = (parent: string, token: string, accountAssociation: object = { amazon }) =>
    spec.call('CreateAccountAssociation', { parent, accountAssociation: { name: 'accounts', ...accountAssociation } }, { token })
  const associated = async (parent: string, token: string, name = 'accounts') =>
    spec.ok('CreateAccountAssociation', { parent, accountAssociation: { name, amazon } }, { token })

  // docs/spec/resources.md#uid-hierarchy
  test('account associations have the uid of their group', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await associated(group, token)
    expect(made).toMatchObject({ uid: group, name: 'accounts', description: '', amazon })
    expect(made['createTime']).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    for (const block of ['google', 'azure', 'github', 'platform']) expect(made).not.toHaveProperty(block)
    expect(await spec.ok('GetAccountAssociation', { uid: group }, { token })).toEqual(made)
  })

  // docs/spec/iam.md#account-associations
  test('account associations are limited to one in a group: a second is code 6, also if both are created at once', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const child = await subgroup(spec, group, token)
    await associated(group, token)
    expectFailure(await associate(group, token), { code: 6 })
    const codes = (await Promise.all([1, 2, 3, 4].map(() => associate(child, token)))).map(({ code }) => code)
    expect(codes.toSorted((one, other) => one - other)).toEqual([0, 6, 6, 6])
  })

  // docs/spec/conventions.md#idempotency-keys
  test('account associations created twice with the same idempotency key are one association', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const request = { parent: group, accountAssociation: { name: 'accounts', amazon } }
    const options = { token, idempotencyKey: 'once' }
    expect(await spec.ok('CreateAccountAssociation', request, options)).toEqual(await spec.ok('CreateAccountAssociation', request, options))
  })

  // docs/spec/iam.md#account-associations
  test('account associations need at least one provider, and for each provider all its required fields', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const refused: readonly [object, readonly string[]][] = [
      [{}, ['amazon']],
      [{ amazon: { account: '12345678901' } }, ['amazon.account']],
      [{ google: { projectId: 'acme' } }, ['google.project_number']],
      [{ google: { projectNumber: '42' } }, ['google.project_id']],
      [{ azure: { tenantId: 'acme.example' } }, ['azure.client_ids']],
      [{ azure: { clientIds: { a: 'b' } } }, ['azure.tenant_id']],
      [
        { github: { appInstallations: { 7: { installations: [{ name: 'x' }] } } } },
        [String.raw`github.app_installations["7"].installations[0].installation_id`],
      ],
    ]
    for (const [blocks, fields] of refused) expectFailure(await associate(group, token, blocks), { code: 3, fields })
    expectFailure(await spec.call('CreateAccountAssociation', { parent: group, accountAssociation: {} }, { token }), { code: 3, fields: ['name', 'amazon'] })
  })

  // docs/spec/iam.md#account-associations
  test('account associations keep every provider as given', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const blocks = {
      google: { projectId: 'acme', projectNumber: '42' },
      azure: { tenantId: 'acme.example', clientIds: { one: 'a', two: 'b' } },
      github: { appInstallations: { 7: { installations: [{ installationId: '8', name: 'acme' }] } } },
    }
    const made = await associate(group, token, blocks)
    expect(made.body).toMatchObject(blocks)
    expect(made.body).not.toHaveProperty('amazon')
  })

  // docs/spec/iam.md#account-associations
  test('account associations bind a service only to an identity directly in the group of the association; others all get the same error', async () => {
    const [own, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    const child = await subgroup(spec, own.group, own.token)
    const below = await makeMember(spec.server, child)
    const messages: string[] = []
    for (const identity of [`${own.group}/0000000000000000`, other.owner, below.uid, own.owner]) {
      const reply = await associate(own.group, own.token, { platform: { serviceBindings: { INGESTER: identity } } })
      expectFailure(reply, { code: 3, fields: ['platform.service_bindings["INGESTER"]'] })
      messages.push(reply.message)
    }
    expect(new Set(messages).size).toBe(1)
  })

  // docs/spec/conventions.md#update-masks
  test('account associations change the named fields on update; an empty block in the mask removes a block, except the last one', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    await associated(group, token)
    const google = { projectId: 'acme', projectNumber: '42' }
    const both = await spec.ok('UpdateAccountAssociation', { accountAssociation: { uid: group, google } }, { token })
    expect(both).toMatchObject({ name: 'accounts', amazon, google })
    const one = await spec.ok('UpdateAccountAssociation', { accountAssociation: { uid: group }, updateMask: 'amazon' }, { token })
    expect(one).toMatchObject({ google })
    expect(one).not.toHaveProperty('amazon')
    const none = await spec.call('UpdateAccountAssociation', { accountAssociation: { uid: group }, updateMask: 'google' }, { token })
    expectFailure(none, { code: 3, fields: ['amazon'] })
    const replaced = await spec.ok('UpdateAccountAssociation', { accountAssociation: { uid: group, name: 'new', amazon }, updateMask: '*' }, { token })
    expect(replaced).toMatchObject({ name: 'new', amazon })
    expect(replaced).not.toHaveProperty('google')
    const stale = await spec.call('UpdateAccountAssociation', { accountAssociation: { uid: group, name: 'x', etag: etagOf(one) } }, { token })
    expectFailure(stale, { code: 10, reason: 'ETAG_MISMATCH' })
  })

  // docs/spec/errors.md#missing-records
  test('account associations are 404 for a group without one and for a missing group', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    await associated(group, token)
    await spec.ok('DeleteAccountAssociation', { uid: group }, { token })
    for (const uid of [group, `${group}/0000000000000000`]) {
      for (const rpc of ['GetAccountAssociation', 'DeleteAccountAssociation']) expectFailure(await spec.call(rpc, { uid }, { token }), { code: 5 })
      const providerType = 'ACCOUNT_PROVIDER_TYPE_AMAZON'
      expectFailure(await spec.call('CheckAccountAssociation', { uid, providerType }, { token }), { code: 5 })
    }
    // It can be created again.
    expect((await associate(group, token)).code).toBe(0)
  })

  // docs/spec/conventions.md#deletion-order
  test('account associations block the deletion of their group', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const child = await subgroup(spec, group, token)
    await associated(child, token)
    const refused = await spec.call('DeleteGroup', { uid: child }, { token })
    const message = 'Precondition failed: cannot delete group with child account associations'
    expectFailure(refused, { code: 9, violations: ['RESOURCE_NOT_EMPTY'], message })
    await spec.ok('DeleteAccountAssociation', { uid: child }, { token })
    await spec.ok('DeleteGroup', { uid: child }, { token })
  })

  // docs/spec/conventions.md#deletion-order
  test('account associations are created or their group is deleted, never both, if both happen at once', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    for (let round = 0; round < 5; round += 1) {
      const child = await subgroup(spec, group, token)
      const [made, deleted] = await Promise.all([associate(child, token), spec.call('DeleteGroup', { uid: child }, { token })])
      expect([
        [0, 9],
        [5, 0],
      ]).toContainEqual([made.code, deleted.code])
    }
  })

  // docs/spec/conventions.md#list-reach
  test('account associations are listed for groups within reach, by place and name, in the order of groups', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const [left, right] = (await Promise.all([subgroup(spec, group, token), subgroup(spec, group, token)])).toSorted()
    const deep = await subgroup(spec, left ?? '', token)
    for (const [uid, name] of [
      [group, 'root'],
      [left, 'left'],
      [right, 'right'],
      [deep, 'deep'],
    ] as const)
      await associated(uid ?? '', token, name)
    const list = async (request: object, by = token): Promise<unknown[]> =>
      itemsOf(await spec.ok('ListAccountAssociations', { ...request }, { token: by }), 'accountAssociations').map(({ name }) => name)
    expect(await list({})).toEqual(['root', 'left', 'deep', 'right'])
    expect(await list({ orderBy: 'group desc' })).toEqual(['right', 'deep', 'left', 'root'])
    expect(await list({ orderBy: 'name' })).toEqual(['deep', 'left', 'right', 'root'])
    expect(await list({ name: 'deep' })).toEqual(['deep'])
    expect(await list({ uidp: { descendantsOf: group } })).toEqual(['left', 'deep', 'right'])
    expect(await list({ uidp: { childrenOf: group } })).toEqual(['left', 'right'])
    expect(await list({ uidp: { ancestorsOf: deep } })).toEqual(['root', 'left'])
    expect(await list({ uidp: { inRoot: true } })).toEqual(['root'])
    expect(await list({ uidp: { ids: [deep, group] } })).toEqual(['root', 'deep'])
    const member = await makeMember(spec.server, left ?? '', { role: 'viewer' })
    expect(await list({}, member.token)).toEqual(['left', 'deep'])
    expect(await list({ uidp: { childrenOf: group } }, member.token)).toEqual(['left'])
    expect(await list({ uidp: { ids: [group, right ?? ''] } }, member.token)).toEqual([])
  })

  // docs/spec/events.md#event-bodies
  test('account associations have events about the group; the event of a deletion has no body', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await associated(group, token)
    await spec.ok('UpdateAccountAssociation', { accountAssociation: { uid: uidOf(made), description: 'changed' } }, { token })
    await spec.ok('DeleteAccountAssociation', { uid: group }, { token })
    const events = (await eventsOf(spec, group)).filter(({ type }) => type.includes('account_associations'))
    expect(events.map(({ type, group: of }) => [type, of])).toEqual(
      ['created', 'updated', 'deleted'].map((what) => [`dev.taproot.api.iam.account_associations.${what}.v1`, group]),
    )
    const [created, updated, deleted] = events
    expect(fromBinary(AccountAssociationSchema, created?.body ?? new Uint8Array())).toMatchObject({ uid: group, name: 'accounts' })
    expect(fromBinary(AccountAssociationSchema, updated?.body ?? new Uint8Array())).toMatchObject({ description: 'changed' })
    expect({ type: deleted?.bodyType, length: deleted?.body.length }).toEqual({ type: '', length: 0 })
  })
})
