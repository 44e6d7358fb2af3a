import { fromBinary, type JsonObject } from '@bufbuild/protobuf'
import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { GroupInviteSchema } from '../../../../src/gen/taproot/iam/v2/group_invites_pb.ts'
import { findInvite, inviteTerms } from '../../../../src/iam/records/group-invites.ts'
import { freshName, makeMember, makeOrganisation, roleUid } from '../../../support/test-server.ts'
import { eventsOf } from '../outbox.ts'
import { subgroup } from '../spec-kinds.ts'
import { expectFailure, itemsOf, specSuite, uidOf } from '../spec-suite.ts'

const dayMs = 24 * 3600 * 1000

specSuite('group invites', (spec) => {
  const post = (parent: string, groupInvite: JsonObject, token: string) => spec.call('CreateGroupInvite', { parent, groupInvite }, { token })
  const invite = (parent: string, token: string, more: JsonObject = {}) =>
    spec.ok('CreateGroupInvite', { parent, groupInvite: { roleUid: roleUid('viewer'), ttl: '3600s', ...more } }, { token })
  const customRole = async (parent: string, token: string, capabilities: readonly string[]) =>
    uidOf(await spec.ok('CreateRole', { parent, role: { name: freshName('role'), capabilities: [...capabilities] } }, { token }))

  // docs/spec/iam.md#group-invites
  test('group invites return on create the code, the role with its capabilities, and the expiration time', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const role = await customRole(group, token, ['CAP_IAM_GROUPS_LIST', 'CAP_REPO_LIST'])
    const before = spec.clock.now()
    const made = await invite(group, token, { roleUid: role, ttl: '86400.5s', email: 'new@example.com', singleUse: true })
    expect(made).toMatchObject({ email: 'new@example.com', singleUse: true, role: { uid: role, capabilities: ['CAP_IAM_GROUPS_LIST', 'CAP_REPO_LIST'] } })
    expect(uidOf(made)).toMatch(new RegExp(`^${group}/[0-9a-f]{16}$`))
    expect(made['code']).toMatch(/^[A-Za-z0-9_-]{43}$/)
    expect(made['keyId']).toMatch(/^[0-9a-f]{16}$/)
    expect(made).not.toHaveProperty('ttl')
    const expiresMs = Date.parse(String(made['expirationTime'])) - dayMs - 500
    expect(expiresMs).toBeGreaterThanOrEqual(before)
    expect(expiresMs).toBeLessThanOrEqual(spec.clock.now())
  })

  // docs/spec/resources.md#secret-fields
  test('group invites show their code in no other answer, event or log; the store has only its digest', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    spec.server.logs.length = 0
    const options = { token, idempotencyKey: freshName('key') }
    const request = { parent: group, groupInvite: { roleUid: roleUid('viewer'), ttl: '60s' } }
    const made = await spec.ok('CreateGroupInvite', request, options)
    const uid = uidOf(made)
    const code = String(made['code'])
    const digest = createHash('sha256').update(code).digest('hex')
    const again = await spec.ok('CreateGroupInvite', request, options)
    const { code: _code, ...rest } = made
    expect(again).toEqual(rest)
    expect(await spec.ok('GetGroupInvite', { uid }, { token })).toEqual(again)
    expect(itemsOf(await spec.ok('ListGroupInvites', { uidp: { childrenOf: group } }, { token }), 'groupInvites')).toEqual([again])
    const { entries } = await spec.server.running.engine.store.range({ prefix: '', limit: 100_000 }, AbortSignal.timeout(60_000))
    const texts = entries.map(({ key, value }) => `${key} ${Buffer.from(value).toString('latin1')}`)
    expect(texts.filter((text) => text.includes(code))).toEqual([])
    expect(texts.filter((text) => text.includes(digest)).map((text) => text.slice(0, 9))).toEqual(['r/GroupIn'])
    expect(JSON.stringify(spec.server.logs)).not.toContain(code)
    expect(JSON.stringify([again, spec.server.logs])).not.toContain(digest)
    expect(digest).not.toContain(made['keyId'])
  })

  // docs/spec/conventions.md#dry-run
  test('group invites are not created in a dry run, which shows no code', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const request = { parent: group, groupInvite: { roleUid: roleUid('viewer'), ttl: '60s' } }
    expect(await spec.ok('CreateGroupInvite', request, { token, validateOnly: true })).not.toHaveProperty('code')
    expect(await spec.ok('ListGroupInvites', { uidp: { childrenOf: group } }, { token })).toMatchObject({ totalCount: '0' })
  })

  // docs/spec/iam.md#group-invites
  test('group invites need a ttl above zero and at most 365 days', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const viewer = { roleUid: roleUid('viewer') }
    for (const ttl of ['0s', '-1s', '31536000.000000001s', '315576000000s'])
      expectFailure(await post(group, { ...viewer, ttl }, token), { code: 3, fields: ['ttl'] })
    expectFailure(await post(group, {}, token), { code: 3, fields: ['role_uid', 'ttl'] })
    for (const ttl of ['0.000000001s', '31536000s']) expect((await post(group, { ...viewer, ttl }, token)).code).toBe(0)
  })

  // docs/spec/iam.md#references-in-bodies
  test('group invites with a missing, foreign or misplaced role get the same code 3', async () => {
    const [own, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    const child = await subgroup(spec, own.group, own.token)
    const roles = [
      `${own.group}/0000000000000000`,
      'f'.repeat(40),
      await customRole(other.group, other.token, ['CAP_IAM_GROUPS_LIST']),
      await customRole(child, own.token, ['CAP_IAM_GROUPS_LIST']),
      own.owner,
    ]
    const messages: string[] = []
    for (const role of roles) {
      const reply = await post(own.group, { roleUid: role, ttl: '60s' }, own.token)
      expectFailure(reply, { code: 3, fields: ['role_uid'] })
      messages.push(reply.message)
    }
    expect(new Set(messages).size).toBe(1)
  })

  // docs/spec/iam.md#no-escalation
  test('group invites can not grant what the creator does not hold in that group', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const child = await subgroup(spec, group, token)
    const own = ['CAP_IAM_GROUP_INVITES_CREATE', 'CAP_IAM_ROLE_BINDINGS_CREATE', 'CAP_IAM_GROUPS_LIST']
    const inviter = await makeMember(spec.server, group, { role: await customRole(group, token, own), bindAt: child })
    const role = await customRole(child, token, own)
    expect((await post(child, { roleUid: role, ttl: '60s' }, inviter.token)).code).toBe(0)
    expectFailure(await post(child, { roleUid: roleUid('viewer'), ttl: '60s' }, inviter.token), { code: 7 })
    expectFailure(await post(group, { roleUid: role, ttl: '60s' }, inviter.token), { code: 5 })
  })

  // docs/spec/iam.md#no-escalation
  test('group invites that are open let a caller widen their role only if the caller holds the added rights', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const capabilities = ['CAP_IAM_GROUP_INVITES_CREATE', 'CAP_IAM_ROLE_BINDINGS_CREATE', 'CAP_IAM_ROLES_UPDATE']
    const role = await customRole(group, token, capabilities)
    const inviter = await makeMember(spec.server, group, { role })
    const { uid } = await invite(group, inviter.token, { roleUid: role })
    const wider = { uid: role, capabilities: [...capabilities, 'CAP_REPO_DELETE'] }
    expectFailure(await spec.call('UpdateRole', { role: wider }, { token: inviter.token }), { code: 7 })
    await spec.ok('UpdateRole', { role: wider }, { token })
    const { role: shown } = await spec.ok('GetGroupInvite', { uid: String(uid) }, { token })
    expect((shown as JsonObject)['capabilities']).toContain('CAP_REPO_DELETE')
  })

  // docs/spec/iam.md#group-invites
  test('group invites show the current role, and none once it is deleted', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const role = await customRole(group, token, ['CAP_IAM_GROUPS_LIST'])
    const { uid } = await invite(group, token, { roleUid: role })
    await spec.ok('UpdateRole', { role: { uid: role, description: 'renewed', capabilities: ['CAP_REPO_LIST'] } }, { token })
    const shown = await spec.ok('GetGroupInvite', { uid: String(uid) }, { token })
    expect(shown).toMatchObject({ role: { description: 'renewed', capabilities: ['CAP_REPO_LIST'] } })
    await spec.ok('DeleteRole', { uid: role }, { token })
    const bare = await spec.ok('GetGroupInvite', { uid: String(uid) }, { token })
    expect(bare).not.toHaveProperty('role')
    expect(bare).toMatchObject({ roleUid: role })
  })

  // docs/spec/conventions.md#ordering
  test('group invites are listed newest first, with the exact filter key_id, also after they expire', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made: JsonObject[] = []
    for (const ttl of ['1s', '60s', '60s']) {
      made.push(await invite(group, token, { ttl }))
      spec.clock.advance(10)
    }
    spec.clock.advance(2_000)
    const list = async (request: JsonObject): Promise<string[]> =>
      itemsOf(await spec.ok('ListGroupInvites', { uidp: { childrenOf: group }, ...request }, { token }), 'groupInvites').map(uidOf)
    const uids = made.map(uidOf)
    expect(await list({})).toEqual(uids.toReversed())
    expect(await list({ orderBy: 'created_at' })).toEqual(uids)
    expect(await list({ keyId: made[1]?.['keyId'] ?? '' })).toEqual([uids[1]])
    expect(await list({ keyId: 'unknown' })).toEqual([])
  })

  // docs/spec/conventions.md#delete
  test('group invites are gone after a delete; deleting a missing one is 404', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const { uid, code } = await invite(group, token)
    const { cache } = spec.server.running.engine
    expect(findInvite(cache.tables, String(code))?.uid).toBe(uid)
    await spec.ok('DeleteGroupInvite', { uid: String(uid) }, { token })
    for (const rpc of ['GetGroupInvite', 'DeleteGroupInvite']) expectFailure(await spec.call(rpc, { uid: String(uid) }, { token }), { code: 5 })
    expect(findInvite(cache.tables, String(code))).toBeUndefined()
  })

  // docs/spec/conventions.md#deletion-order
  test('group invites block the deletion of their group', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const child = await subgroup(spec, group, token)
    await invite(child, token)
    const message = 'Precondition failed: cannot delete group with child group invites'
    expectFailure(await spec.call('DeleteGroup', { uid: child }, { token }), { code: 9, violations: ['RESOURCE_NOT_EMPTY'], message })
  })

  // docs/spec/events.md#omitted-data
  test('group invites have a create event with uid and expiration time alone', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const { uid, expirationTime } = await invite(group, token, { email: 'new@example.com' })
    await spec.ok('DeleteGroupInvite', { uid: String(uid) }, { token })
    const events = await eventsOf(spec, String(uid))
    expect(events.map(({ type, group: of }) => [type, of])).toEqual(
      ['created', 'deleted'].map((what) => [`dev.taproot.api.iam.group_invite.${what}.v1`, group]),
    )
    const body = fromBinary(GroupInviteSchema, events[0]?.body ?? new Uint8Array())
    expect({ ...body, $typeName: '', expirationTime: Number(body.expirationTime?.seconds) }).toEqual({
      $typeName: '',
      uid,
      expirationTime: Math.floor(Date.parse(String(expirationTime)) / 1000),
      ...{ roleUid: '', email: '', singleUse: false, code: '', keyId: '', etag: '', managedBy: '' },
    })
  })

  // docs/spec/iam.md#group-invites
  test('group invites reveal their role only to a caller with the code', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const { uid, code, keyId, expirationTime } = await invite(group, token, { email: 'New@Example.com', singleUse: true })
    const { tables } = spec.server.running.engine.cache
    const record = findInvite(tables, String(code))
    expect(record && inviteTerms(record)).toEqual({
      group,
      roleUid: roleUid('viewer'),
      email: 'new@example.com',
      singleUse: true,
      expirationMs: Date.parse(String(expirationTime)),
    })
    const digest = createHash('sha256').update(String(code)).digest('hex')
    for (const other of ['', 'x', uid, keyId, digest, `${String(code)} `, String(code).slice(0, -1)]) expect(findInvite(tables, String(other))).toBeUndefined()
  })
})
