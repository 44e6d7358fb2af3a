import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import type { Options } from '../../support/api-clients.ts'
import { makeMember, makeOrganisation, roleUid } from '../../support/test-server.ts'
import { create, identityUnder, specKinds, type SpecKind } from './spec-kinds.ts'
import { etagOf, expectFailure, specSuite, specSuiteEverywhere, uidOf } from './spec-suite.ts'

const everyKind = specKinds.map((kind) => [kind] as const)

/** What an update may not touch. */
const fixed = (record: JsonObject): JsonObject => ({ uid: record['uid'] ?? '', createTime: record['createTime'] ?? '' })

specSuite('updates', (spec) => {
  const identityWith = async (fields: JsonObject = {}) => {
    const { group, token } = await makeOrganisation(spec.server)
    const claimMatch = { issuer: 'https://issuer.example', subject: 'old', audience: 'old', claims: { team: 'old' } }
    const identity = { name: 'old name', description: 'old', company: 'old company', claimMatch, ...fields }
    const made = await spec.ok('CreateIdentity', { parent: group, identity }, { token })
    return { made, group, uid: uidOf(made), token }
  }
  const change = (identity: JsonObject, request: JsonObject, options: Options) => spec.ok('UpdateIdentity', { identity, ...request }, options)

  // docs/spec/conventions.md#update-masks
  test.each(everyKind)('$kind: without a mask the fields in the body change, and others keep their value', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await create(spec, kind, { group }, { token })
    const changed = await spec.ok(`Update${kind.kind}`, { [kind.field]: { uid: uidOf(made), ...(await kind.change(spec, group)) } }, { token })
    expect(changed).not.toEqual(made)
    const { etag, updateTime, description, role, ...kept } = made
    expect([etag, updateTime, description ?? role]).not.toContain(undefined)
    expect(changed).toMatchObject(kept)
    if (kind.kind === 'RoleBinding') expect(changed).toMatchObject({ role: { name: 'editor' } })
    else expect(changed).toMatchObject({ description: 'changed' })
    expect(await spec.ok(`Get${kind.kind}`, { uid: uidOf(made) }, { token })).toEqual(changed)
  })

  // docs/spec/conventions.md#update
  test.each(everyKind)('$kind: an update returns the whole resource with a later updateTime and a new etag, even without a change', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const draft = await kind.draft(spec, group)
    const made = await create(spec, kind, { group, draft }, { token })
    const again = await spec.ok(`Update${kind.kind}`, { [kind.field]: { ...draft, uid: uidOf(made) } }, { token })
    expect({ ...again, updateTime: made['updateTime'], etag: made['etag'] }).toEqual(made)
    expect(Date.parse(String(again['updateTime']))).toBeGreaterThan(Date.parse(String(made['updateTime'])))
    expect(again['etag']).not.toBe(made['etag'])
  })

  // docs/spec/resources.md#output-only-fields
  test.each(everyKind)('$kind: a record can be sent back complete, with a change, with and without the wildcard mask', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const uid = uidOf(await create(spec, kind, { group }, { token }))
    const change = await kind.change(spec, group)
    const read = (): Promise<JsonObject> => spec.ok(`Get${kind.kind}`, { uid }, { token })
    const first = await read()
    const changed = await spec.ok(`Update${kind.kind}`, { [kind.field]: { ...first, ...change } }, { token })
    const { etag, updateTime } = changed
    expect(etag).not.toBe(first['etag'])
    // Answers of a binding name identity and role under other fields than requests.
    if (kind.kind === 'RoleBinding') return
    expect(changed).toEqual({ ...first, ...change, etag, updateTime })
    const replaced = await spec.ok(`Update${kind.kind}`, { [kind.field]: await read(), updateMask: '*' }, { token })
    expect(replaced).toEqual({ ...changed, etag: replaced['etag'], updateTime: replaced['updateTime'] })
  })

  // docs/spec/resources.md#output-only-fields
  test('a subgroup that shows an inherited kind can be sent back complete', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    await spec.ok('UpdateGroup', { group: { uid: group, kind: 'ORG_KIND_CUSTOMER' } }, { token: await spec.server.operatorToken() })
    const sub = await spec.ok('CreateGroup', { parent: group, group: { name: 'sub' } }, { token })
    expect(sub).toMatchObject({ kind: 'ORG_KIND_CUSTOMER' })
    const changed = await spec.ok('UpdateGroup', { group: { ...sub, description: 'changed' } }, { token })
    expect(changed).toMatchObject({ kind: 'ORG_KIND_CUSTOMER', description: 'changed' })
    expect(await spec.ok('UpdateGroup', { group: changed, updateMask: '*' }, { token })).toMatchObject({ kind: 'ORG_KIND_CUSTOMER', description: 'changed' })
  })

  // docs/spec/conventions.md#update-masks
  test('a mask changes only the named fields; other body fields are ignored', async () => {
    const { made, uid, token } = await identityWith()
    const body = { uid, name: 'new name', description: 'new', company: 'new company' }
    const changed = await change(body, { updateMask: 'description' }, { token })
    expect(changed).toMatchObject({ ...fixed(made), name: 'old name', description: 'new', company: 'old company', claimMatch: made['claimMatch'] ?? null })
  })

  // docs/spec/conventions.md#update-masks
  test('a mask that names a field missing in the body clears it', async () => {
    const { uid, token } = await identityWith()
    expect(await change({ uid, name: 'new name' }, { updateMask: 'name,company' }, { token })).toMatchObject({
      name: 'new name',
      company: '',
      description: 'old',
    })
  })

  // docs/spec/conventions.md#update-masks
  test('a mask can name nested fields', async () => {
    const { uid, token } = await identityWith()
    const changed = await change({ uid, claimMatch: { subject: 'new', issuer: 'https://ignored.example' } }, { updateMask: 'claimMatch.subject' }, { token })
    expect(changed['claimMatch']).toEqual({ issuer: 'https://issuer.example', subject: 'new', audience: 'old', claims: { team: 'old' }, claimPatterns: {} })
  })

  // docs/spec/conventions.md#update-masks
  test('a mask that names a field of a missing message clears that field and no other', async () => {
    const { made, group, uid, token } = await identityWith()
    const match = made['claimMatch'] as JsonObject
    const { audience: _, ...others } = match
    expect((await change({ uid }, { updateMask: 'claimMatch.audience' }, { token }))['claimMatch']).toEqual(others)
    expectFailure(await spec.call('UpdateIdentity', { identity: { uid }, updateMask: 'claimMatch.subject' }, { token }), { code: 3 })
    const overlay = { contents: { packages: ['curl'] }, environment: { A: '1' }, annotations: { b: '2' } }
    const repo = uidOf(await spec.ok('CreateRepo', { parent: group, repo: { name: 'masked', customOverlay: overlay } }, { token }))
    const cleared = await spec.ok('UpdateRepo', { repo: { uid: repo }, updateMask: 'customOverlay.environment' }, { token })
    expect(cleared['customOverlay']).toMatchObject({ ...overlay, environment: {} })
    // What is not there stays so.
    const plain = uidOf(await spec.ok('CreateRepo', { parent: group, repo: { name: 'plain' } }, { token }))
    expect(await spec.ok('UpdateRepo', { repo: { uid: plain }, updateMask: 'customOverlay.environment' }, { token })).not.toHaveProperty('customOverlay')
  })

  // docs/spec/conventions.md#update-masks
  test('an empty string clears one of several fields, too', async () => {
    const { made, uid, token } = await identityWith()
    const { audience: _, ...others } = made['claimMatch'] as JsonObject
    const changed = await change({ uid, claimMatch: { audience: '' } }, { updateMask: 'claimMatch.audience' }, { token })
    expect(changed['claimMatch']).toEqual(others)
    const issuer = await spec.call('UpdateIdentity', { identity: { uid, claimMatch: { issuer: '' } }, updateMask: 'claimMatch.issuer' }, { token })
    expectFailure(issuer, { code: 3, fields: [/^claim_?[mM]atch\.iss(uer)?$/] })
  })

  // docs/spec/conventions.md#update-masks
  test('the wildcard mask replaces the record: fields missing in the body are cleared', async () => {
    const { made, uid, token } = await identityWith()
    const claimMatch = { issuer: 'https://new.example', subject: 'new' }
    const changed = await change({ uid, name: 'new name', claimMatch }, { updateMask: '*' }, { token })
    expect(changed).toMatchObject({ ...fixed(made), name: 'new name', description: '', company: '' })
    expect(changed['claimMatch']).toEqual({ ...claimMatch, claims: {}, claimPatterns: {} })
  })

  // docs/spec/conventions.md#update
  test.each(everyKind)('$kind: the wildcard mask with an empty body is refused if a field is required, and changes nothing', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await create(spec, kind, { group }, { token })
    const reply = await spec.call(`Update${kind.kind}`, { [kind.field]: { uid: uidOf(made) }, updateMask: '*' }, { token })
    expectFailure(reply, { code: 3 })
    expect(await spec.ok(`Get${kind.kind}`, { uid: uidOf(made) }, { token })).toEqual(made)
  })

  // docs/spec/conventions.md#update-masks
  test('output-only fields in a mask are ignored', async () => {
    const { made, uid, token } = await identityWith()
    const body = { uid, description: 'new', createTime: '2001-01-01T00:00:00Z', email: 'a@example.com' }
    const changed = await change(body, { updateMask: 'description,createTime,email,uid' }, { token })
    expect(changed).toMatchObject({ ...fixed(made), description: 'new', email: made['email'] ?? null })
  })

  // docs/spec/conventions.md#update-masks
  test.each([['nothing'], ['claimMatch.nothing'], ['name.more'], ['description,nothing'], ['*,name']])(
    'the mask %j is code 3 on updateMask',
    async (updateMask) => {
      const { made, uid, token } = await identityWith()
      const reply = await spec.call('UpdateIdentity', { identity: { uid, description: 'new' }, updateMask }, { token })
      expectFailure(reply, { code: 3, fields: [/^update_?[mM]ask$/] })
      expect(await spec.ok('GetIdentity', { uid }, { token })).toEqual(made)
    },
  )

  // docs/spec/conventions.md#update
  test('an update to an invalid value is code 3 and changes nothing', async () => {
    const { made, uid, token } = await identityWith()
    const reply = await spec.call('UpdateIdentity', { identity: { uid, name: 'Not Allowed', description: 'new' } }, { token })
    expectFailure(reply, { code: 3, fields: ['name'] })
    expect(await spec.ok('GetIdentity', { uid }, { token })).toEqual(made)
  })

  // docs/spec/iam.md#no-escalation
  test("a change of an identity's sign-in needs a caller who holds all rights of the identity", async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const capabilities = ['CAP_IAM_IDENTITY_UPDATE', 'CAP_IAM_IDENTITY_LIST']
    const role = uidOf(await spec.ok('CreateRole', { parent: group, role: { name: 'updater', capabilities } }, { token }))
    const updater = await makeMember(spec.server, group, { role })
    const strong = await makeMember(spec.server, group, { role: 'owner' })
    const weak = uidOf(await identityUnder(spec, group, token))
    const taken = { issuer: 'https://evil.example', subject: 'me' }
    const take = (uid: string) => spec.call('UpdateIdentity', { identity: { uid, claimMatch: taken } }, { token: updater.token })
    expectFailure(await take(strong.uid), { code: 7 })
    expect((await take(weak)).code).toBe(0)
    expect((await spec.call('UpdateIdentity', { identity: { uid: strong.uid, description: 'harmless' } }, { token: updater.token })).code).toBe(0)
  })

  spec.only('rest', () => {
    const patch = async (path: string, body: JsonObject, token: string): Promise<{ status: number; body: JsonObject }> => {
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
      const url = `http://127.0.0.1:${spec.server.config.api.port}/iam/v2/identities/${path}`
      const response = await fetch(url, { method: 'PATCH', headers, body: JSON.stringify(body) })
      return { status: response.status, body: (await response.json()) as JsonObject }
    }

    // docs/spec/conventions.md#update-masks
    test('without a mask an explicit empty value in the body clears the field', async () => {
      const { uid, token } = await identityWith()
      expect(await change({ uid, description: '' }, {}, { token })).toMatchObject({ description: '', company: 'old company' })
    })

    // docs/spec/conventions.md#update-masks
    test('without a mask nested keys are applied one by one', async () => {
      const { uid, token } = await identityWith()
      const changed = await change({ uid, claimMatch: { subject: 'new' } }, {}, { token })
      expect(changed['claimMatch']).toMatchObject({ issuer: 'https://issuer.example', subject: 'new', audience: 'old', claims: { team: 'old' } })
    })

    // docs/spec/conventions.md#update-masks
    test('mask paths and the parameter may be in snake or camel case', async () => {
      const { uid, token } = await identityWith()
      for (const [at, query] of [
        'updateMask=claim_match.subject',
        'update_mask=claimMatch.subject',
        'updateMask=description&updateMask=claim_match.subject',
      ].entries()) {
        const { status, body } = await patch(`${uid}?${query}`, { claimMatch: { subject: `new ${at}` }, company: 'ignored' }, token)
        expect(status).toBe(200)
        expect(body).toMatchObject({ claimMatch: { subject: `new ${at}` }, company: 'old company' })
      }
    })

    // docs/spec/conventions.md#request-bodies
    test('an unknown key in a PATCH body without mask is code 3, with a mask it is ignored', async () => {
      const { uid, token } = await identityWith()
      expect(await patch(uid, { nothing: 1 }, token)).toMatchObject({ status: 400, body: { code: 3 } })
      expect(await patch(`${uid}?updateMask=description`, { nothing: 1, description: 'new' }, token)).toMatchObject({
        status: 200,
        body: { description: 'new' },
      })
    })

    // docs/spec/resources.md#output-only-fields
    test('the uid of the path is used; another one in the body is ignored', async () => {
      const [one, other] = [await identityWith(), await identityWith()]
      expect(await patch(one.uid, { uid: other.uid, description: 'new' }, one.token)).toMatchObject({ status: 200, body: { uid: one.uid, description: 'new' } })
      expect(await spec.ok('GetIdentity', { uid: other.uid }, { token: other.token })).toEqual(other.made)
    })
  })

  spec.only('grpc', () => {
    // docs/spec/conventions.md#update-masks
    test('over gRPC without a mask only fields with a value change', async () => {
      const { uid, token } = await identityWith()
      expect(await change({ uid, description: '', company: 'new company' }, {}, { token })).toMatchObject({ description: 'old', company: 'new company' })
    })
  })
})

specSuiteEverywhere('etags', (spec) => {
  const update = (kind: SpecKind, record: JsonObject, options: Options, request: JsonObject = {}) =>
    spec.call(`Update${kind.kind}`, { [kind.field]: record, ...request }, options)

  // docs/spec/resources.md#etags
  test.each(everyKind)('$kind: get, create, update and lists return the etag, also in the header', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const created = await spec.call(`Create${kind.kind}`, { parent: group, [kind.field]: await kind.draft(spec, group) }, { token })
    const uid = uidOf(created.body)
    const changed = await update(kind, { uid, ...(await kind.change(spec, group)) }, { token })
    const read = await spec.call(`Get${kind.kind}`, { uid }, { token })
    for (const reply of [created, changed, read]) {
      expect(etagOf(reply.body)).toMatch(/./)
      expect(reply.header('etag')).toBe(spec.transport === 'rest' ? `"${etagOf(reply.body)}"` : etagOf(reply.body))
    }
    expect(etagOf(changed.body)).not.toBe(etagOf(created.body))
    expect(read.body).toEqual(changed.body)
    const list = await spec.ok(kind.list, { uidp: { ids: [uid] } }, { token })
    // Lists leave the status of SCIM credentials out (docs/spec/scim.md#credential-states).
    const { scim: _status, ...listed } = read.body
    expect(list).toMatchObject({ [kind.plural]: [listed] })
  })

  // docs/spec/conventions.md#etag-preconditions
  test.each(everyKind)('$kind: a wrong If-Match is code 10 on update and delete, and changes nothing', async (kind) => {
    const { group, token } = await makeOrganisation(spec.server)
    const first = await create(spec, kind, { group }, { token })
    const uid = uidOf(first)
    const body = { uid, ...(await kind.change(spec, group)) }
    const second = await spec.ok(`Update${kind.kind}`, { [kind.field]: body }, { token, ifMatch: etagOf(first) })
    expectFailure(await update(kind, body, { token, ifMatch: etagOf(first) }), { code: 10, reason: /^(ABORTED|ETAG_MISMATCH)$/ })
    expectFailure(await spec.call(`Delete${kind.kind}`, { uid }, { token, ifMatch: etagOf(first) }), { code: 10, reason: /^(ABORTED|ETAG_MISMATCH)$/ })
    expect(await spec.ok(`Get${kind.kind}`, { uid }, { token })).toEqual(second)
    await spec.ok(`Delete${kind.kind}`, { uid }, { token, ifMatch: etagOf(second) })
  })

  // docs/spec/conventions.md#etag-preconditions
  test('the etag in a body works like If-Match', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await identityUnder(spec, group, token)
    const [uid, etag] = [uidOf(made), etagOf(made)]
    const changed = await spec.ok('UpdateIdentity', { identity: { uid, etag, description: 'one' } }, { token })
    expectFailure(await spec.call('UpdateIdentity', { identity: { uid, etag, description: 'two' } }, { token }), { code: 10, reason: /./ })
    for (const updateMask of ['*', 'description,etag']) {
      const identity = { ...made, description: 'two', etag }
      expectFailure(await spec.call('UpdateIdentity', { identity, updateMask }, { token }), { code: 10, reason: /./ })
    }
    expect(await spec.ok('GetIdentity', { uid }, { token })).toEqual(changed)
  })

  // docs/spec/conventions.md#etag-preconditions
  test('the etag in a body is ignored if the mask excludes it', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const { uid } = await identityUnder(spec, group, token)
    const identity = { uid: String(uid), etag: 'stale', description: 'two' }
    expect(await spec.ok('UpdateIdentity', { identity, updateMask: 'description' }, { token })).toMatchObject({ description: 'two' })
  })

  // docs/spec/conventions.md#etag-preconditions
  test('of two writers who read the same state, the second is refused', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await identityUnder(spec, group, token)
    const write = (description: string) => spec.call('UpdateIdentity', { identity: { uid: uidOf(made), description } }, { token, ifMatch: etagOf(made) })
    const replies = await Promise.all(['one', 'two', 'three'].map(write))
    expect(replies.map(({ code }) => code).sort((a, b) => a - b)).toEqual([0, 10, 10])
    const winner = replies.find(({ code }) => code === 0)
    expect(await spec.ok('GetIdentity', { uid: uidOf(made) }, { token })).toEqual(winner?.body)
  })

  // docs/spec/conventions.md#etag-preconditions
  test('If-Match for a deleted record is 404', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await identityUnder(spec, group, token)
    await spec.ok('DeleteIdentity', { uid: uidOf(made) }, { token })
    expectFailure(await spec.call('DeleteIdentity', { uid: uidOf(made) }, { token, ifMatch: etagOf(made) }), { code: 5 })
  })

  // docs/spec/resources.md#etags
  test('a built-in role has an etag too', async () => {
    const { token } = await makeOrganisation(spec.server)
    expect(etagOf(await spec.ok('GetRole', { uid: roleUid('viewer') }, { token }))).toMatch(/./)
  })
})
