import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import type { Reply } from '../../support/api-clients.ts'
import { freshName, makeMember, makeOrganisation, roleUid } from '../../support/test-server.ts'
import { create, identityUnder, specKinds, subgroup, type SpecKind } from './spec-kinds.ts'
import { expectFailure, itemsOf, specSuiteEverywhere, uidOf } from './spec-suite.ts'

const everyKind = specKinds.map((kind) => [kind] as const)

/** The calls on one record, with a body that would not pass any check. */
function callsOn(kind: SpecKind, uid: string): [rpc: string, request: JsonObject][] {
  return [
    [`Get${kind.kind}`, { uid }],
    [`Update${kind.kind}`, { [kind.field]: { uid, ...(kind.kind === 'RoleBinding' ? { roleUid: 'x' } : { name: 'NOT A NAME' }) } }],
    [`Delete${kind.kind}`, { uid }],
  ]
}

function createIn(kind: SpecKind, parent: string): [rpc: string, request: JsonObject] {
  return [`Create${kind.kind}`, { parent, [kind.field]: {} }]
}

specSuiteEverywhere('errors', (spec) => {
  // docs/spec/errors.md#missing-records
  test.each(everyKind)('every call that names a missing $kind is 404 with ResourceInfo', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    for (const uid of [`${group}/0000000000000000`, `${group}/0000000000000000/0000000000000000`]) {
      for (const [rpc, request] of callsOn(kind, uid)) {
        const reply = await spec.call(rpc, request, { token })
        expectFailure(reply, { code: 5, reason: 'NOT_FOUND' })
        expect(reply.details['ResourceInfo']).toMatchObject({
          '@type': 'type.googleapis.com/google.rpc.ResourceInfo',
          resourceType: `${kind.domain}.taproot.dev/${kind.kind}`,
          resourceName: uid,
          owner: expect.any(String) as unknown,
        })
      }
    }
  })

  // docs/spec/errors.md#missing-records
  test.each(everyKind)('a deleted $kind is missing, also for a second delete', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const uid = uidOf(await create(spec, kind, { group }, { token }))
    await spec.ok(`Delete${kind.kind}`, { uid }, { token })
    for (const [rpc, request] of callsOn(kind, uid)) expectFailure(await spec.call(rpc, request, { token }), { code: 5 })
  })

  // docs/spec/errors.md#missing-records
  test.each(everyKind)('the uid of another kind of record is a missing $kind', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const others = specKinds.filter(({ kind: name }) => name !== kind.kind)
    for (const other of others) {
      const uid = uidOf(await create(spec, other, { group }, { token }))
      for (const [rpc, request] of callsOn(kind, uid)) expectFailure(await spec.call(rpc, request, { token }), { code: 5 })
    }
  })

  // docs/spec/errors.md#missing-records
  test.each(everyKind)('a malformed uid of a $kind is 404, for operators as well', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const operator = await spec.server.operatorToken()
    // Escapes: an HTTP client would take dots and blanks out of the path itself.
    const malformed = ['x', group.toUpperCase(), `${group}/short`, `${group}/000000000000000g`, `/${group}`, `${group}%2F..`, `${group}%20`, 'é']
    for (const uid of malformed) {
      for (const [rpc, request] of callsOn(kind, uid)) expectFailure(await spec.call(rpc, request, { token: operator }), { code: 5 })
      expectFailure(await spec.call(`Get${kind.kind}`, { uid }, { token }), { code: 5 })
    }
  })

  // docs/spec/errors.md#missing-records
  test.each(everyKind)('create of a $kind below a missing parent is 404', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const draft = await kind.draft(spec, group)
    const leaf = uidOf(await identityUnder(spec, group, token))
    for (const parent of [`${group}/0000000000000000`, leaf, 'f'.repeat(40), 'no-such-parent']) {
      const reply = await spec.call(`Create${kind.kind}`, { parent, [kind.field]: draft }, { token })
      expectFailure(reply, { code: 5 })
      expect(reply.details['ResourceInfo']).toMatchObject({ resourceType: 'iam.taproot.dev/Group', resourceName: parent })
    }
  })

  // docs/spec/errors.md#error-info
  test('every error contains the request id, which a client may choose', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const requestId = freshName('request')
    const viewer = await makeMember(spec.server, group, { role: 'viewer' })
    const sub = await subgroup(spec, group, token, 'taken')
    await identityUnder(spec, sub, token)
    const rows: [code: number, reply: Reply][] = [
      [16, await spec.call('GetGroup', { uid: group }, { requestId })],
      [5, await spec.call('GetGroup', { uid: 'x' }, { token, requestId })],
      [7, await spec.call('DeleteGroup', { uid: sub }, { token: viewer.token, requestId })],
      [3, await spec.call('CreateIdentity', { parent: group, identity: {} }, { token, requestId })],
      [6, await spec.call('CreateGroup', { parent: group, group: { name: 'taken' } }, { token, requestId })],
      [9, await spec.call('DeleteGroup', { uid: sub }, { token, requestId })],
      [10, await spec.call('DeleteGroup', { uid: sub }, { token, requestId, ifMatch: 'stale' })],
    ]
    for (const [code, reply] of rows) {
      expectFailure(reply, { code, reason: /^[A-Z]+(_[A-Z]+)*$/ })
      expect(reply.details['ErrorInfo']).toMatchObject({ metadata: { requestId } })
    }
    const ids = [await spec.call('GetGroup', { uid: 'x' }, { token }), await spec.call('GetGroup', { uid: 'x' }, { token })].map((reply) =>
      reply.header('x-request-id'),
    )
    expect(new Set(ids).size).toBe(2)
    expect((await spec.call('GetGroup', { uid: group }, { token, requestId })).header('x-request-id')).toBe(requestId)
  })

  // docs/spec/tokens.md#credentials
  test('no token or an unreadable one is code 16, one for another audience code 7', async () => {
    const { group, owner } = await makeOrganisation(spec.server)
    const act = { issuer: 'https://issuer.example', subject: 's', audience: 'registry.example' }
    const grant = { identityUid: trustedUid(owner), audiences: ['registry.example'], act, restrictions: {} }
    const { token: foreign } = await spec.server.running.signIn.tokens.mint(grant)
    for (const token of [undefined, 'x', 'a.b.c', foreign.slice(0, -6)]) expectFailure(await spec.call('GetGroup', { uid: group }, { token }), { code: 16 })
    expectFailure(await spec.call('GetGroup', { uid: group }, { token: foreign }), { code: 7 })
  })

  // docs/spec/tokens.md#access-tokens
  test('an access token lives an hour, and a minute of leeway', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    spec.clock.advance(3590_000)
    expect((await spec.call('GetGroup', { uid: group }, { token })).code).toBe(0)
    spec.clock.advance(90_000)
    expectFailure(await spec.call('GetGroup', { uid: group }, { token }), { code: 16 })
  })
})

specSuiteEverywhere('order of checks', (spec) => {
  // docs/spec/conventions.md#order-of-checks
  test.each(everyKind)('$kind: without a token every call is code 16', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const uid = uidOf(await create(spec, kind, { group }, { token }))
    const calls = [uid, `${group}/0000000000000000`, 'x'].flatMap((target) => [...callsOn(kind, target), createIn(kind, target)])
    for (const [rpc, request] of [...calls, [kind.list, { pageSize: -1 }] as const]) expectFailure(await spec.call(rpc, request), { code: 16 })
  })

  // docs/spec/conventions.md#order-of-checks
  test.each(everyKind)('$kind: an existing record out of reach is 404, exactly like a missing one', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const stranger = await makeOrganisation(spec.server)
    const uid = uidOf(await create(spec, kind, { group }, { token }))
    const missing = `${group}/0000000000000000`
    const said = ({ code, message, details }: Reply, target: string): string => {
      const { ResourceInfo, BadRequest, PreconditionFailure } = details
      return JSON.stringify([code, message, ResourceInfo, BadRequest ?? '', PreconditionFailure ?? '']).replaceAll(target, '<uid>')
    }
    const existing = [...callsOn(kind, uid), createIn(kind, group)]
    const absent = [...callsOn(kind, missing), createIn(kind, 'e'.repeat(40))]
    for (const [at, [rpc, request]] of existing.entries()) {
      const reply = await spec.call(rpc, request, { token: stranger.token })
      expectFailure(reply, { code: 5 })
      const other = await spec.call(rpc, absent[at]?.[1] ?? {}, { token: stranger.token })
      const [target, otherTarget] = at < 3 ? [uid, missing] : [group, 'e'.repeat(40)]
      expect(said(reply, target)).toBe(said(other, otherTarget))
    }
  })

  // docs/spec/conventions.md#order-of-checks
  test.each(everyKind)('$kind: a record in reach without the capability is code 7, before existence and validation', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const viewer = await makeMember(spec.server, group, { role: 'viewer' })
    const uid = uidOf(await create(spec, kind, { group }, { token }))
    for (const target of [uid, `${group}/0000000000000000`]) {
      const [, update, remove] = callsOn(kind, target)
      for (const [rpc, request] of [update, remove, createIn(kind, target === uid ? group : target)].filter((call) => call !== undefined)) {
        expectFailure(await spec.call(rpc, request, { token: viewer.token }), { code: 7, reason: 'PERMISSION_DENIED' })
      }
    }
    expect((await spec.call(`Get${kind.kind}`, { uid }, { token: viewer.token })).code).toBe(0)
  })

  // docs/spec/conventions.md#order-of-checks
  test.each(everyKind)('$kind: existence is checked before validation', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const missing = `${group}/0000000000000000`
    for (const [rpc, request] of [...callsOn(kind, missing), createIn(kind, missing)]) expectFailure(await spec.call(rpc, request, { token }), { code: 5 })
    const uid = uidOf(await create(spec, kind, { group }, { token }))
    const [, update] = callsOn(kind, uid)
    for (const [rpc, request] of [update, createIn(kind, group)].filter((call) => call !== undefined))
      expectFailure(await spec.call(rpc, request, { token }), { code: 3 })
  })

  // docs/spec/conventions.md#order-of-checks
  test('a batch checks token, reach, capability, existence and validation, in this order', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const stranger = await makeOrganisation(spec.server)
    const viewer = await makeMember(spec.server, group, { role: 'viewer' })
    const batch = (parent: string, by: string | undefined) => spec.call('BatchCreateRoleBindings', { parent, requests: [] }, { token: by })
    expectFailure(await batch(group, undefined), { code: 16 })
    expectFailure(await batch(group, stranger.token), { code: 5 })
    expectFailure(await batch(group, viewer.token), { code: 7 })
    expectFailure(await batch(`${group}/0000000000000000`, token), { code: 5 })
    expectFailure(await batch(group, token), { code: 3 })
  })

  // docs/spec/conventions.md#order-of-checks
  test('validation is checked before the state of the record', async () => {
    const { group, owner, token } = await makeOrganisation(spec.server)
    const operator = await spec.server.operatorToken()
    await spec.ok('UpdateGroup', { group: { uid: group, verified: true, kind: 'ORG_KIND_CUSTOMER' } }, { token: operator })
    expectFailure(await spec.call('UpdateGroup', { group: { uid: group, name: 'NOT A NAME' } }, { token }), { code: 3, fields: ['name'] })
    const owners = itemsOf(await spec.ok('ListRoleBindings', { group, role: roleUid('owner') }, { token: operator }), 'roleBindings')
    const isOwn = (binding: JsonObject): boolean => (binding['identity'] as JsonObject)['uid'] === owner
    for (const binding of owners.filter((other) => !isOwn(other))) await spec.ok('DeleteRoleBinding', { uid: uidOf(binding) }, { token: operator })
    const remaining = { uid: uidOf(owners.find(isOwn) ?? {}), roleUid: 'f'.repeat(40) }
    expectFailure(await spec.call('UpdateRoleBinding', { roleBinding: remaining }, { token }), { code: 3, fields: ['role_uid'] })
  })

  // docs/spec/conventions.md#method-scopes
  test('a capability in a group covers that group and those below, never its parents or siblings', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const [sub, sibling] = [await subgroup(spec, group, token), await subgroup(spec, group, token)]
    const viewer = await makeMember(spec.server, group, { role: 'viewer', bindAt: sub })
    expect((await spec.call('GetGroup', { uid: sub }, { token: viewer.token })).code).toBe(0)
    expectFailure(await spec.call('DeleteGroup', { uid: sub }, { token: viewer.token }), { code: 7 })
    for (const uid of [group, sibling]) expectFailure(await spec.call('DeleteGroup', { uid }, { token: viewer.token }), { code: 5 })
  })
})
