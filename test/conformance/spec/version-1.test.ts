import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { freshName, makeMember, makeOrganisation, makePerson, roleUid } from '../../support/test-server.ts'
import { expectFailure, itemsOf, specSuiteEverywhere, uidOf } from './spec-suite.ts'

specSuiteEverywhere('version 1', (spec) => {
  const idsOf = (body: JsonObject): string[] => itemsOf(body, 'items').map(({ id }) => String(id))

  // docs/spec/version-1.md#lists
  test('a list with an id has this group or nothing, and answers alike for a missing and a hidden one', async () => {
    const [{ group, token }, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    expect(idsOf(await spec.ok('Groups/List', { id: group }, { token }))).toEqual([group])
    const missing = await spec.call('Groups/List', { id: `${group}/${'0'.repeat(16)}` }, { token, requestId: 'v1' })
    const hidden = await spec.call('Groups/List', { id: other.group }, { token, requestId: 'v1' })
    expect(missing.body).toEqual({ items: [] })
    expect(hidden.raw).toBe(missing.raw)
    expect((await spec.call('Groups/List', { id: 'no-uid' }, { token })).body).toEqual({ items: [] })
    const denials = spec.server.logs.filter(({ message, fields }) => message === 'audit' && fields['requestId'] === 'v1')
    expect(denials).toEqual([])
  })

  // docs/spec/version-1.md#lists
  test('a list by id alone has the record that other lists have', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const claimMatch = { issuer: 'https://issuer.example', subject: 'one' }
    const identity = String((await spec.ok('Identities/Create', { parentId: group, identity: { name: 'one', claimMatch } }, { token }))['id'])
    const role = String((await spec.ok('Roles/Create', { parentId: group, role: { name: 'one', capabilities: ['groups.list'] } }, { token }))['id'])
    const binding = String((await spec.ok('RoleBindings/Create', { parent: group, roleBinding: { identity, role } }, { token }))['id'])
    const subscription = { sink: 'https://hooks.example.com/v1' }
    const ids = {
      Groups: group,
      Identities: identity,
      Roles: role,
      RoleBindings: binding,
      Subscriptions: String((await spec.ok('Subscriptions/Create', { parentId: group, subscription }, { token }))['id']),
    }
    for (const [service, id] of Object.entries(ids)) {
      const byId = await spec.call(`${service}/List`, { id }, { token })
      expect(idsOf(byId.body), service).toEqual([id])
      expect(byId.body, service).toEqual(await spec.ok(`${service}/List`, { uidp: { ids: [id] } }, { token }))
    }
    // A caller who is in the organisation, and may see no identities.
    const { token: member } = await makeMember(spec.server, group, { role: 'registry.pull' })
    expect((await spec.call('Identities/List', { id: identity }, { token: member })).body).toEqual({ items: [] })
  })

  // docs/spec/version-1.md#lists
  test('a list has all groups, however many, each once', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await Promise.all(
      Array.from({ length: 205 }, async (_, at) => uidOf(await spec.ok('CreateGroup', { parent: group, group: { name: `team-${at}` } }, { token }))),
    )
    const reply = await spec.call('Groups/List', { uidp: { childrenOf: group } }, { token })
    expect(idsOf(reply.body).toSorted()).toEqual(made.toSorted())
    expect(Object.keys(reply.body)).toEqual(['items'])
  })

  // docs/spec/version-1.md#lists
  test('a list has the section that a request selects, by page or by offset', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const uidp = { childrenOf: group }
    for (let at = 0; at < 5; at++) await spec.ok('CreateGroup', { parent: group, group: { name: `team-${at}` } }, { token })
    const ids = idsOf(await spec.ok('Groups/List', { uidp }, { token }))
    expect(ids).toEqual(ids.toSorted())
    const section = async (request: JsonObject) => idsOf(await spec.ok('Groups/List', { uidp, ...request }, { token }))
    expect(await section({ pageSize: 2 })).toEqual(ids.slice(0, 2))
    expect(await section({ pageSize: 2, page: 2 })).toEqual(ids.slice(2, 4))
    expect(await section({ pageSize: 2, page: 3 })).toEqual(ids.slice(4))
    expect(await section({ page: 2 })).toEqual([])
    expect(await section({ offset: 3 })).toEqual(ids.slice(3))
    expect(await section({ offset: 1, pageSize: 3 })).toEqual(ids.slice(1, 4))
    expect(await section({ page: 2_147_483_647, pageSize: 2_147_483_647 })).toEqual([])
    expectFailure(await spec.call('Groups/List', { offset: 1, page: 1 }, { token }), { code: 3, fields: ['page'] })
    expectFailure(await spec.call('Groups/List', { pageSize: -1 }, { token }), { code: 3, fields: ['page_size'] })
  })

  // docs/spec/version-1.md#roles
  test('a batch creates all role bindings, or none', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const identities = [(await makeMember(spec.server, group)).uid, (await makeMember(spec.server, group)).uid]
    const roleBindings = identities.map((identity) => ({ identity, role: roleUid('viewer') }))
    const bad = await spec.call(
      'RoleBindings/CreateBatch',
      { parent: group, roleBindings: [...roleBindings, { identity: group, role: roleUid('viewer') }] },
      { token },
    )
    expectFailure(bad, { code: 3, fields: [/^role_bindings\[2\]\.identity$/] })
    const made = itemsOf(await spec.ok('RoleBindings/CreateBatch', { parent: group, roleBindings }, { token }), 'roleBindings')
    expect(made).toMatchObject(roleBindings.map((binding) => ({ ...binding, group })))
  })

  // docs/spec/version-1.md#identity-providers
  test('an update of an identity provider resets what it lacks, but neither the secret nor the correlation rule', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const oidc = { issuer: 'https://login.example', clientId: 'one', clientSecret: 'a secret', groupsClaim: 'groups' }
    const rule = { correlationRule: 'CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID' }
    const plain = { name: 'sso', description: 'first', defaultRole: roleUid('viewer') }
    const made = await spec.ok('IdentityProviders/Create', { parentId: group, identityProvider: { ...plain, oidc: { ...oidc, ...rule } } }, { token })
    const id = String(made['id'])
    expect(made).toMatchObject({ ...plain, oidc: { clientId: 'one', groupsClaim: 'groups', ...rule } })
    expect(JSON.stringify(made)).not.toContain('a secret')
    const bare = { issuer: oidc.issuer, clientId: 'two' }
    const changed = await spec.ok('IdentityProviders/Update', { id, name: 'sso', defaultRole: roleUid('viewer'), oidc: bare }, { token })
    expect(changed).toMatchObject({ description: '', oidc: { ...bare, groupsClaim: '', ...rule } })
    expect(await spec.ok('GetIdentityProvider', { uid: id }, { token })).toMatchObject({ description: '', oidc: { ...bare, ...rule } })
  })

  // docs/spec/version-1.md#account-associations
  test('an update of an account association removes the accounts that it lacks', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const github = { appInstallations: { 7: { installations: [{ installationId: '8', name: 'acme' }] } } }
    const made = await spec.ok('GroupAccountAssociations/Create', { group, name: 'accounts', amazon: { account: '123456789012' }, github }, { token })
    expect(made).toMatchObject({ group, name: 'accounts', amazon: { account: '123456789012' }, github })
    const updated = await spec.ok('GroupAccountAssociations/Update', { group, name: 'accounts', github }, { token })
    expect(updated['amazon'] ?? null).toBeNull()
    expect(itemsOf(await spec.ok('GroupAccountAssociations/List', { group }, { token }), 'items')).toEqual([updated])
    expect(await spec.ok('GroupAccountAssociations/Delete', { group }, { token })).toEqual({})
    expect(await spec.ok('GroupAccountAssociations/List', { group }, { token })).toEqual({ items: [] })
  })

  // docs/spec/version-1.md#invites
  test('an invite has its code in the answer of the create alone', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await spec.ok('GroupInvites/Create', { group, role: roleUid('viewer'), ttl: '3600s', email: 'new@acme.example' }, { token })
    expect(made).toMatchObject({ code: expect.stringMatching(/./) as unknown, role: { id: roleUid('viewer'), name: 'viewer' } })
    const [listed] = itemsOf(await spec.ok('GroupInvites/List', { group }, { token }), 'items')
    expect(listed).toMatchObject({ id: made['id'], email: 'new@acme.example', role: { id: roleUid('viewer') }, expiration: made['expiration'] })
    expect(JSON.stringify(listed)).not.toContain(String(made['code']))
  })

  // docs/spec/version-1.md#updates
  test('an update replaces the group, but neither its limits, nor what only operators set', async () => {
    const operator = await spec.server.operatorToken()
    const name = `${freshName('corp')}.example`
    const group = { name, description: 'before', verified: true, kind: 'ORG_KIND_CUSTOMER' }
    const made = await spec.ok('Groups/Create', { group }, { token: operator })
    const id = String(made['id'])
    expect(made).toMatchObject({ ...group, id, status: 'ORG_STATUS_READY' })
    await spec.ok('SetGroupLimits', { uid: id, resourceLimits: { groups: 7 } }, { token: operator })
    const replaced = await spec.ok('Groups/Update', { id, name, resourceLimits: {} }, { token: operator })
    expect(replaced).toEqual({ ...made, description: '', resourceLimits: { groups: 7 } })
    expect(itemsOf(await spec.ok('Groups/List', { id }, { token: operator }), 'items')).toEqual([replaced])
    expect(await spec.ok('GetGroup', { uid: id }, { token: operator })).toMatchObject({
      uid: id,
      name,
      description: '',
      verified: true,
      resourceLimits: { groups: 7 },
    })
  })

  // docs/spec/version-1.md#deletes
  test('a delete succeeds without a group, and removes nothing that the caller may not see', async () => {
    const [{ group, token }, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    const id = String((await spec.ok('Groups/Create', { parent: group, group: { name: 'short' } }, { token }))['id'])
    for (let times = 0; times < 2; times++) expect(await spec.ok('Groups/Delete', { id }, { token })).toEqual({})
    expect(await spec.ok('Groups/Delete', { id: other.group }, { token })).toEqual({})
    await spec.ok('GetGroup', { uid: other.group }, { token: other.token })
    await spec.ok('Groups/Create', { parent: group, group: { name: 'stays' } }, { token })
    expectFailure(await spec.call('Groups/Delete', { id: group }, { token }), { code: 9, reason: 'FAILED_PRECONDITION' })
  })

  // docs/spec/version-1.md#groups
  test('the parent of a new group is a uid, the end of a uid, or a name within reach', async () => {
    const [{ group, token }, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    const [team, shared] = [freshName('team'), freshName('shared')]
    const id = String((await spec.ok('Groups/Create', { parent: group, group: { name: team } }, { token }))['id'])
    await spec.ok('Groups/Create', { parent: group, group: { name: shared } }, { token })
    await spec.ok('Groups/Create', { parent: id, group: { name: shared } }, { token })
    for (const [at, parent] of [id, id.slice(41), team].entries()) {
      const made = await spec.ok('Groups/Create', { parent, group: { name: `below-${at}` } }, { token })
      expect(made['id']).toMatch(new RegExp(`^${id}/`))
    }
    expectFailure(await spec.call('Groups/Create', { parent: shared, group: { name: 'below' } }, { token }), { code: 3, fields: ['parent'] })
    // All groups of an organisation begin with its uid, so that the start of a uid selects none.
    for (const parent of [group.slice(0, 39), id.slice(0, -1), freshName('none')])
      expectFailure(await spec.call('Groups/Create', { parent, group: { name: 'below' } }, { token }), { code: 5 })
    const hidden = await spec.call('Groups/Create', { parent: team, group: { name: 'below' } }, { token: other.token })
    expectFailure(hidden, { code: 5 })
  })

  // docs/spec/version-1.md#errors
  test('errors name the fields of version 1', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const bad = await spec.call('Groups/Create', { parent: group, group: { name: 'BAD', description: 'x'.repeat(513) } }, { token })
    expectFailure(bad, { code: 3, fields: ['name', 'description'] })
    const update = await spec.call('Groups/Update', { id: `${group}/${'0'.repeat(16)}`, name: 'no' }, { token })
    expectFailure(update, { code: 5 })
    const without = await spec.call('Identities/Create', { parentId: group, identity: { name: 'none' } }, { token })
    expectFailure(without, { code: 3, fields: ['claim_match'] })
    expect(without.message).toContain('`static`')
    expect(without.message).not.toMatch(/static_?keys/i)
    const aws = { awsAccount: '123456789012', arn: 'arn:aws:sts::123456789012:assumed-role/x/y' }
    const unnamed = await spec.call('Identities/Create', { parentId: group, identity: { name: 'none', awsIdentity: aws } }, { token })
    expectFailure(unnamed, { code: 3 })
    expect(unnamed.message).toMatch(/one of `user_?id`/i)
  })

  // docs/spec/version-1.md#identities
  test('a lookup finds a person who signed in, and shows the record to those who may list it', async () => {
    const { token } = await makeOrganisation(spec.server)
    const person = { issuer: 'https://login.example', subject: freshName('person') }
    const before = await spec.call('Identities/Lookup', person, { token })
    expectFailure(before, { code: 5 })
    const { uid } = await makePerson(spec.server, person)
    const seen = await spec.ok('Identities/Lookup', person, { token })
    expect(seen).toMatchObject({ id: uid, name: '', claimMatch: person })
    expect(seen['createdAt']).toBeNull()
    const all = await spec.ok('Identities/Lookup', person, { token: await spec.server.operatorToken() })
    expect(all).toMatchObject({ id: uid, createdAt: expect.stringMatching(/Z$/) as unknown })
    expect(await spec.ok('LookupIdentity', person, { token })).toEqual({ uid })
  })

  // docs/spec/version-1.md#identities
  test('an update of an identity replaces its relationship, and keeps what only version 2 has', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const claimMatch = { issuer: 'https://issuer.example', subject: 'one', claims: { a: 'b' } }
    const uid = uidOf(
      await spec.ok('CreateIdentity', { parent: group, identity: { name: 'builder', company: 'ACME', description: 'x', claimMatch } }, { token }),
    )
    const awsIdentity = { awsAccount: '123456789012', arn: 'arn:aws:sts::123456789012:assumed-role/x/y', userId: 'AROA:y' }
    const replaced = await spec.ok('Identities/Update', { id: uid, name: 'builder', awsIdentity }, { token })
    expect(replaced).toMatchObject({ id: uid, description: '', awsIdentity })
    expect(replaced['claimMatch']).toBeUndefined()
    expect(await spec.ok('GetIdentity', { uid }, { token })).toMatchObject({ company: 'ACME', description: '', awsIdentity })
  })

  const jwk = {
    kty: 'EC',
    crv: 'P-256',
    x: 'f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU',
    y: 'x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0',
    kid: 'one',
    alg: 'ES256',
  }
  const keys = { issuer: 'https://issuer.example', subject: 'one', issuerKeys: JSON.stringify({ keys: [jwk] }) }

  // docs/spec/version-1.md#identities
  test('static keys live 30 days from their create and update if nothing else is said', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await spec.ok('Identities/Create', { parentId: group, identity: { name: 'static', static: keys } }, { token })
    const replaced = await spec.ok('Identities/Update', { id: String(made['id']), name: 'static', static: keys }, { token })
    for (const { static: stored, updatedAt } of [made, replaced]) {
      const { expiration } = stored as JsonObject // a message
      expect((Date.parse(String(expiration)) - Date.parse(String(updatedAt))) / (24 * 3600 * 1000)).toBeCloseTo(30, 3)
    }
  })

  // docs/spec/version-1.md#identities
  test('a create of static keys without an end happens once for its idempotency key', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const request = { parentId: group, identity: { name: 'static', static: keys } }
    const options = { token, idempotencyKey: freshName('key') }
    const made = await spec.ok('Identities/Create', request, options)
    expect(await spec.ok('Identities/Create', request, options)).toEqual(made)
    expect(itemsOf(await spec.ok('Identities/List', { uidp: { childrenOf: group } }, { token }), 'items').filter(({ name }) => name === 'static')).toHaveLength(
      1,
    )
    const other = { parentId: group, identity: { name: 'static', static: { ...keys, expiration: new Date(Date.now() + 60_000).toISOString() } } }
    expectFailure(await spec.call('Identities/Create', other, options), { code: 3, reason: 'IDEMPOTENCY_KEY_REUSED' })
  })

  // docs/spec/conventions.md#order-of-checks
  test('static keys that live too long are only named to callers who may create them', async () => {
    const [{ group, token }, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    const expiration = new Date(Date.now() + 31 * 24 * 3600 * 1000).toISOString()
    const request = { parentId: group, identity: { name: 'static', static: { ...keys, expiration } } }
    const { token: member } = await makeMember(spec.server, group, { role: 'viewer' })
    expectFailure(await spec.call('Identities/Create', request, { token: other.token }), { code: 5 })
    expectFailure(await spec.call('Identities/Create', request, { token: member }), { code: 7 })
    expectFailure(await spec.call('Identities/Create', request, { token }), { code: 3, fields: ['static.expiration'] })
    const missing = { ...request, parentId: `${group}/${'0'.repeat(16)}` }
    expectFailure(await spec.call('Identities/Create', missing, { token }), { code: 5 })
  })

  // docs/spec/version-1.md#roles
  test('roles have names of capabilities, and a parent filters them', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const role = await spec.ok('Roles/Create', { parentId: group, role: { name: freshName('role'), capabilities: ['groups.list', 'repo.list'] } }, { token })
    expect(await spec.ok('GetRole', { uid: String(role['id']) }, { token })).toMatchObject({ capabilities: ['CAP_IAM_GROUPS_LIST', 'CAP_REPO_LIST'] })
    expect(idsOf(await spec.ok('Roles/List', { parent: group }, { token }))).toEqual([role['id']])
    const builtIn = itemsOf(await spec.ok('Roles/List', { parent: '/', name: 'viewer' }, { token }), 'items')
    expect(builtIn).toMatchObject([{ id: roleUid('viewer'), name: 'viewer', capabilities: expect.arrayContaining(['groups.list']) as unknown }])
    expect(idsOf(await spec.ok('Roles/List', { parent: group, uidp: { childrenOf: '/' } }, { token }))).toEqual([])
  })

  // docs/spec/version-1.md#roles
  test('role bindings are uids in the answer of a create, and have what they name in a list', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const { uid: identity } = await makeMember(spec.server, group)
    const made = await spec.ok('RoleBindings/Create', { parent: group, roleBinding: { identity, role: roleUid('viewer'), group: 'ignored' } }, { token })
    const id = String(made['id'])
    expect(made).toEqual({ id, identity, group, role: roleUid('viewer') })
    const [listed] = itemsOf(await spec.ok('RoleBindings/List', { id }, { token }), 'items')
    expect(listed).toMatchObject({ id, identity, group: { id: group }, role: { id: roleUid('viewer'), name: 'viewer', capabilities: [] }, emailUnverified: '' })
    expect(await spec.ok('RoleBindings/Update', { id, identity, role: roleUid('editor') }, { token })).toEqual({ ...made, role: roleUid('editor') })
  })

  // docs/spec/version-1.md#subscriptions
  test('a subscription is created, listed and deleted', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const sink = 'https://hooks.example.com/v1'
    const made = await spec.ok('Subscriptions/Create', { parentId: group, subscription: { sink } }, { token })
    const id = String(made['id'])
    expect(made).toEqual({ id, sink })
    expect(itemsOf(await spec.ok('Subscriptions/List', { id }, { token }), 'items')).toEqual([{ id, sink }])
    expect(await spec.ok('GetSubscription', { uid: id }, { token })).toMatchObject({ sink, types: [] })
    expect(await spec.ok('Subscriptions/Delete', { id }, { token })).toEqual({})
    expect(await spec.ok('Subscriptions/List', { id }, { token })).toEqual({ items: [] })
  })

  // docs/spec/conventions.md#idempotency-keys
  test('a create with an idempotency key happens once', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const request = { parent: group, group: { name: 'once' } }
    const options = { token, idempotencyKey: freshName('key') }
    expect(await spec.ok('Groups/Create', request, options)).toEqual(await spec.ok('Groups/Create', request, options))
  })

  spec.only('rest', () => {
    // docs/spec/version-1.md#json-form
    test('what is not set is null, and an answer can be sent back as an update', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const association = { name: 'accounts', description: '', github: { appInstallations: {} } }
      const made = await spec.ok('GroupAccountAssociations/Create', { group, ...association }, { token })
      expect(made).toEqual({ group, ...association, amazon: null, azure: null, google: null, platform: null })
      expect(itemsOf(await spec.ok('GroupAccountAssociations/List', { group }, { token }), 'items')).toEqual([made])
      const replaced = await fetch(`http://127.0.0.1:${spec.server.config.api.port}/iam/v1/account_associations/${group}`, {
        method: 'PUT',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body: JSON.stringify({ ...made, description: 'changed' }),
      })
      expect(await replaced.json()).toEqual({ ...made, description: 'changed' })
    })

    // docs/spec/version-1.md#paths
    test('unknown parameters and keys are ignored', async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const base = `http://127.0.0.1:${spec.server.config.api.port}/iam/v1/groups`
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
      const made = await fetch(`${base}/${encodeURIComponent(group)}?colour=red`, {
        method: 'POST',
        headers,
        body: '{"name":"lenient","colour":"red","resource_limits":{}}',
      })
      expect(made.status).toBe(200)
      const found = await fetch(`${base}?uidp.children_of=${group}&uidp.ids=&name=lenient`, { headers })
      expect(await found.json()).toMatchObject({ items: [{ name: 'lenient', description: '', verified: false }] })
    })
  })
})
