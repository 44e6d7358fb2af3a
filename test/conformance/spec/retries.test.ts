import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import type { Options } from '../../support/api-clients.ts'
import { freshName, makeMember, makeOrganisation, roleUid } from '../../support/test-server.ts'
import { claimMatch, create, identityUnder, specKinds, subgroup, type SpecKind } from './spec-kinds.ts'
import { etagOf, expectFailure, itemsOf, specSuiteEverywhere, uidOf } from './spec-suite.ts'

const everyKind = specKinds.map((kind) => [kind] as const)
const reused = { code: 3, reason: /^(INVALID_ARGUMENT|IDEMPOTENCY_KEY_REUSED)$/ } as const

specSuiteEverywhere('retries with an Idempotency-Key', (spec) => {
  const post = (kind: SpecKind, parent: string, draft: JsonObject, options: Options) =>
    spec.call(`Create${kind.kind}`, { parent, [kind.field]: draft }, options)
  const count = async (kind: SpecKind, parent: string, token: string): Promise<unknown> =>
    (await spec.ok(kind.list, { uidp: { childrenOf: parent } }, { token }))['totalCount']

  // docs/spec/conventions.md#idempotency-keys
  test.each(everyKind)('$kind: the same key and body create one record and return its current state', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const parent = await subgroup(spec, group, token)
    const options = { token, idempotencyKey: freshName('key') }
    const draft = await kind.draft(spec, group)
    const made = await post(kind, parent, draft, options)
    expect(made.code).toBe(0)
    expect((await post(kind, parent, draft, options)).body).toEqual(made.body)
    const changed = await spec.ok(`Update${kind.kind}`, { [kind.field]: { uid: uidOf(made.body), ...(await kind.change(spec, group)) } }, { token })
    const replayed = await post(kind, parent, draft, options)
    expect(replayed).toMatchObject({ code: 0, body: changed })
    expect(replayed.header('etag')?.replaceAll('"', '')).toBe(etagOf(changed))
    expect(await count(kind, parent, token)).toBe('1')
  })

  // docs/spec/conventions.md#idempotency-keys
  test.each(everyKind)('$kind: another body with the same key is code 3 and creates nothing', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const parent = await subgroup(spec, group, token)
    const options = { token, idempotencyKey: freshName('key') }
    expect((await post(kind, parent, await kind.draft(spec, group), options)).code).toBe(0)
    expectFailure(await post(kind, parent, await kind.draft(spec, group), options), reused)
    expect(await count(kind, parent, token)).toBe('1')
  })

  // docs/spec/conventions.md#idempotency-keys
  test.each(everyKind)('$kind: a replay after the deletion of the record is 404 and creates nothing', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const parent = await subgroup(spec, group, token)
    const options = { token, idempotencyKey: freshName('key') }
    const draft = await kind.draft(spec, group)
    const { body } = await post(kind, parent, draft, options)
    await spec.ok(`Delete${kind.kind}`, { uid: uidOf(body) }, { token })
    expectFailure(await post(kind, parent, draft, options), { code: 5 })
    expect(await count(kind, parent, token)).toBe('0')
  })

  // docs/spec/conventions.md#idempotency-keys
  test('an idempotency key is scoped to principal, method and parent', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const [one, other] = [await subgroup(spec, group, token), await subgroup(spec, group, token)]
    const second = await makeMember(spec.server, group, { role: 'owner' })
    const idempotencyKey = freshName('key')
    const identity = { name: 'scoped', claimMatch: claimMatch() }
    const make = (parent: string, by: string) => spec.ok('CreateIdentity', { parent, identity }, { token: by, idempotencyKey })
    const uids = [await make(one, token), await make(other, token), await make(one, second.token)].map(uidOf)
    const role = { name: 'scoped', capabilities: ['CAP_IAM_GROUPS_LIST'] }
    uids.push(uidOf(await spec.ok('CreateRole', { parent: one, role }, { token, idempotencyKey })))
    expect(new Set(uids).size).toBe(4)
    expect(uidOf(await make(one, token))).toBe(uids[0])
  })

  // docs/spec/conventions.md#idempotency-keys
  test('an idempotency key is remembered for 24 hours', async () => {
    const { group, owner } = await makeOrganisation(spec.server)
    const idempotencyKey = freshName('key')
    const identity = { name: 'remembered', claimMatch: claimMatch() }
    const make = async (): Promise<string> => {
      const token = await spec.server.tokenFor(owner)
      return uidOf(await spec.ok('CreateIdentity', { parent: group, identity }, { token, idempotencyKey }))
    }
    const first = await make()
    spec.clock.advance(24 * 3_600_000 - 60_000)
    expect(await make()).toBe(first)
    spec.clock.advance(2 * 60_000)
    const second = await make()
    expect(second).not.toBe(first)
    expect(await make()).toBe(second)
  })

  // docs/spec/conventions.md#idempotency-keys
  test('a replay is checked for authorisation again', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const member = await makeMember(spec.server, group, { role: 'owner' })
    const options = { token: member.token, idempotencyKey: freshName('key') }
    const identity = { name: 'authorized', claimMatch: claimMatch() }
    await spec.ok('CreateIdentity', { parent: group, identity }, options)
    const [binding] = itemsOf(await spec.ok('ListRoleBindings', { identity: member.uid }, { token }), 'roleBindings')
    await spec.ok('UpdateRoleBinding', { roleBinding: { uid: uidOf(binding ?? {}), roleUid: roleUid('viewer') } }, { token })
    expectFailure(await spec.call('CreateIdentity', { parent: group, identity }, options), { code: 7 })
    await spec.ok('DeleteRoleBinding', { uid: uidOf(binding ?? {}) }, { token })
    expectFailure(await spec.call('CreateIdentity', { parent: group, identity }, options), { code: 5 })
  })

  // docs/spec/conventions.md#idempotency-keys
  test('a create that failed is not remembered', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const options = { token, idempotencyKey: freshName('key') }
    const taken = await subgroup(spec, group, token, 'taken')
    const make = () => spec.call('CreateGroup', { parent: group, group: { name: 'taken' } }, options)
    expectFailure(await make(), { code: 6 })
    await spec.ok('DeleteGroup', { uid: taken }, { token })
    expect((await make()).code).toBe(0)
  })

  // docs/spec/conventions.md#idempotency-keys
  test('the same create sent several times at once creates one record', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const parent = await subgroup(spec, group, token)
    const options = { token, idempotencyKey: freshName('key') }
    const identity = { name: 'at once', claimMatch: claimMatch() }
    const replies = await Promise.all(Array.from({ length: 6 }, () => spec.call('CreateIdentity', { parent, identity }, options)))
    const made = replies.filter(({ code }) => code === 0).map(({ body }) => uidOf(body))
    expect(new Set(made).size).toBe(1)
    expect(replies.map(({ code }) => code)).toEqual(replies.map(() => 0))
    expect(await spec.ok('ListIdentities', { uidp: { childrenOf: parent } }, { token })).toMatchObject({ totalCount: '1' })
  })

  // docs/spec/conventions.md#idempotency-keys
  test('a replayed batch returns the whole batch', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const members = [await makeMember(spec.server, group), await makeMember(spec.server, group)]
    const requests = members.map(({ uid }) => ({ roleBinding: { identityUid: uid, roleUid: roleUid('viewer') } }))
    const options = { token, idempotencyKey: freshName('key') }
    const made = await spec.ok('BatchCreateRoleBindings', { parent: group, requests }, options)
    expect(await spec.ok('BatchCreateRoleBindings', { parent: group, requests }, options)).toEqual(made)
    expectFailure(await spec.call('BatchCreateRoleBindings', { parent: group, requests: requests.slice(1) }, options), reused)
    expectFailure(await spec.call('BatchCreateRoleBindings', { parent: group, requests }, { token }), { code: 6 })
  })

  // docs/spec/conventions.md#idempotency-keys
  test('the creation of a root group is replayed too', async () => {
    const options = { token: await spec.server.operatorToken(), idempotencyKey: freshName('key') }
    const group = { name: freshName('root') }
    const made = await spec.ok('CreateGroup', { group }, options)
    expect(await spec.ok('CreateGroup', { group }, options)).toEqual(made)
    expectFailure(await spec.call('CreateGroup', { group: { name: freshName('root') } }, options), reused)
  })
})

specSuiteEverywhere('dry runs', (spec) => {
  /** All that a change could show in: every list of the organisation. */
  const stateOf = async (group: string, token: string): Promise<JsonObject[]> => {
    const state = [await spec.ok('GetGroup', { uid: group }, { token })]
    for (const kind of specKinds) state.push(await spec.ok(kind.list, { uidp: { descendantsOf: group }, pageSize: 200 }, { token }))
    return state
  }
  const dry = (token: string): Options => ({ token, validateOnly: true })

  // docs/spec/conventions.md#dry-run
  test.each(everyKind)('$kind: create, update and delete with validateOnly return the usual answer and change nothing', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const draft = await kind.draft(spec, group)
    const other = await kind.draft(spec, group)
    const made = await create(spec, kind, { group, draft: other }, { token })
    const before = await stateOf(group, token)
    const created = await spec.ok(`Create${kind.kind}`, { parent: group, [kind.field]: draft }, dry(token))
    if (kind.kind === 'RoleBinding') expect(created).toMatchObject({ identity: { uid: draft['identityUid'] ?? '' }, role: { uid: draft['roleUid'] ?? '' } })
    else expect(created).toMatchObject(draft)
    const change = { [kind.field]: { uid: uidOf(made), ...(await kind.change(spec, group)) } }
    const changed = await spec.ok(`Update${kind.kind}`, change, dry(token))
    expect(changed['uid']).toBe(made['uid'])
    expect(changed).not.toEqual(made)
    expect(await spec.ok(`Delete${kind.kind}`, { uid: uidOf(made) }, dry(token))).toEqual({})
    expect(await stateOf(group, token)).toEqual(before)
    await spec.ok(`Create${kind.kind}`, { parent: group, [kind.field]: draft }, { token })
  })

  // docs/spec/conventions.md#dry-run
  test('a batch and a root group with validateOnly change nothing', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const { uid } = await makeMember(spec.server, group)
    const before = await stateOf(group, token)
    const requests = [{ roleBinding: { identityUid: uid, roleUid: roleUid('viewer') } }]
    const answer = await spec.ok('BatchCreateRoleBindings', { parent: group, requests }, dry(token))
    expect(itemsOf(answer, 'roleBindings')).toHaveLength(1)
    expect(await stateOf(group, token)).toEqual(before)
    const operator = await spec.server.operatorToken()
    const name = freshName('root')
    const root = await spec.ok('CreateGroup', { group: { name } }, dry(operator))
    expectFailure(await spec.call('GetGroup', { uid: uidOf(root) }, { token: operator }), { code: 5 })
    await spec.ok('CreateGroup', { group: { name } }, { token: operator })
  })

  // docs/spec/conventions.md#dry-run
  test('a dry run makes every check: input, rights, names, children, uses, owners, etags', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const sub = await subgroup(spec, group, token, 'taken')
    const identity = await identityUnder(spec, sub, token)
    const viewer = await makeMember(spec.server, group, { role: 'viewer' })
    const role = uidOf(await spec.ok('CreateRole', { parent: group, role: { name: 'used', capabilities: ['CAP_IAM_GROUPS_LIST'] } }, { token }))
    const roleBinding = { identityUid: viewer.uid, roleUid: role }
    await spec.ok('CreateRoleBinding', { parent: group, roleBinding }, { token })
    const before = await stateOf(group, token)
    expectFailure(await spec.call('CreateIdentity', { parent: group, identity: {} }, dry(token)), { code: 3 })
    expectFailure(await spec.call('CreateGroup', { parent: group, group: { name: 'taken' } }, dry(token)), { code: 6 })
    expectFailure(await spec.call('CreateRoleBinding', { parent: group, roleBinding }, dry(token)), { code: 6 })
    const message = 'Precondition failed: cannot delete group with child identities'
    expectFailure(await spec.call('DeleteGroup', { uid: sub }, dry(token)), { code: 9, message, violations: ['RESOURCE_NOT_EMPTY'] })
    expectFailure(await spec.call('DeleteRole', { uid: role }, dry(token)), { code: 9, reason: 'ROLE_IN_USE' })
    expectFailure(await spec.call('DeleteGroup', { uid: sub }, dry(viewer.token)), { code: 7 })
    expectFailure(await spec.call('DeleteIdentity', { uid: uidOf(identity) }, { ...dry(token), ifMatch: 'stale' }), { code: 10, reason: /./ })
    expectFailure(await spec.call('DeleteIdentity', { uid: `${sub}/0000000000000000` }, dry(token)), { code: 5 })
    expect(await stateOf(group, token)).toEqual(before)
  })

  // docs/spec/conventions.md#dry-run
  test('a dry run does not use up its idempotency key', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const idempotencyKey = freshName('key')
    const first = { name: 'first', claimMatch: claimMatch() }
    const planned = await spec.ok('CreateIdentity', { parent: group, identity: first }, { ...dry(token), idempotencyKey })
    const made = await spec.ok('CreateIdentity', { parent: group, identity: { ...first, name: 'other' } }, { token, idempotencyKey })
    expect(uidOf(made)).not.toBe(uidOf(planned))
    expect(made).toMatchObject({ name: 'other' })
  })
})
