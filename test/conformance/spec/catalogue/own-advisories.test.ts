import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { importDocuments, osvDocument } from '../../../support/import-advisories.ts'
import { freshName, makeMember, makeOrganisation, type Organisation } from '../../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, uidOf } from '../spec-suite.ts'

/** An event of version 1 whose review is final. */
const approved = (type: JsonObject): JsonObject => ({ status: 'APPROVED', ...type })
const notAffected = approved({ falsePositiveDetermination: { type: 'VULNERABLE_CODE_NOT_IN_EXECUTION_PATH', note: 'not called' } })

specSuite('hand-made advisories', (spec) => {
  const advisoryOf = (name: string, more: JsonObject = {}): JsonObject => ({
    advisoryId: `X-${name}`,
    artifactName: name,
    artifactType: 'PyPI',
    aliases: [`CVE-${name}`],
    ...more,
  })
  const created = ({ group, token }: Pick<Organisation, 'group' | 'token'>, advisory: JsonObject): Promise<JsonObject> =>
    spec.ok('Advisories/Create', { parentId: group, advisory }, { token })
  const listed = async (token: string, request: JsonObject): Promise<unknown[]> =>
    itemsOf(await spec.ok('ListAdvisories', request, { token }), 'advisories').map(({ advisoryId }) => advisoryId)

  // docs/spec/advisories.md#hand-made-advisories
  test('a created advisory is in the gets and lists of both versions at once', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('own')
    const made = await created(
      { group, token },
      advisoryOf(name, { events: [notAffected, { detection: { scanv1: { scanner: 'me', subpackageName: 'sub', componentName: 'part' } } }] }),
    )
    const id = String(made['id'])
    expect(made).toMatchObject({
      id: expect.stringMatching(new RegExp(`^${group}/[0-9a-f]{16}$`)) as unknown,
      artifactName: name,
      componentName: name,
      componentType: 'PyPI',
      events: [
        { id: expect.stringMatching(new RegExp(`^${id}/[0-9a-f]{16}$`)) as unknown, status: 'APPROVED', falsePositiveDetermination: { note: 'not called' } },
        { status: 'PENDING', detection: { scanv1: { subpackageName: 'sub', componentName: 'part' } } },
      ],
    })
    const shown = await spec.ok('GetAdvisory', { uid: id }, { token })
    expect(shown).toMatchObject({
      uid: id,
      advisoryId: `X-${name}`,
      createTime: made['createdAt'],
      events: [{ reviewState: 'REVIEW_STATE_APPROVED' }, { detection: { scanv1: { subpackage: 'sub', component: 'part' } } }],
    })
    expect(itemsOf(await spec.ok('ListAdvisories', { artifactNames: [name] }, { token }), 'advisories')).toEqual([shown])
    expect(itemsOf(await spec.ok('Advisories/List', { aliases: [`CVE-${name}`] }, { token }), 'items')).toEqual([made])
    expect(itemsOf(await spec.ok('Advisories/ListAdvisoryEvents', { parentId: id }, { token }), 'items')).toEqual(made['events'])
    const other = await makeOrganisation(spec.server)
    expect(await listed(other.token, { artifactNames: [name] })).toEqual([])
    expectFailure(await spec.call('GetAdvisory', { uid: id }, { token: other.token }), { code: 5 })
  })

  // docs/spec/advisories.md#hand-made-advisories
  test('pages of imported and hand-made advisories are one list, in any order and with any skip', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('mixed')
    const documents = Array.from({ length: 9 }, (_, at) =>
      osvDocument(`I-${at}`, { modified: `2026-02-0${at + 1}T00:00:00Z`, affected: [{ package: { ecosystem: 'PyPI', name } }] }),
    )
    await importDocuments(spec.server, group, documents)
    for (let at = 0; at < 7; at++) await created({ group, token }, { advisoryId: `H-${at}`, artifactName: name, artifactType: 'PyPI' })
    for (const orderBy of ['uid', 'uid desc', 'updated_at', 'created_at desc, uid desc']) {
      const request = { artifactNames: [name], orderBy }
      const whole = await spec.ok('ListAdvisories', { ...request, pageSize: 200 }, { token })
      const all = itemsOf(whole, 'advisories').map(uidOf)
      expect(whole['totalCount']).toBe('16')
      expect(new Set(all).size).toBe(16)
      if (orderBy === 'uid') expect(all).toEqual(all.toSorted())
      for (const skip of [1, 5, 8, 15, 16, 20]) {
        const page = await spec.ok('ListAdvisories', { ...request, skip, pageSize: 3 }, { token })
        expect(itemsOf(page, 'advisories').map(uidOf)).toEqual(all.slice(skip, skip + 3))
        expect((page['nextPageToken'] ?? '') !== '').toBe(skip + 3 < 16)
      }
      const seen: string[] = []
      for (let pageToken = ''; ;) {
        const page = await spec.ok('ListAdvisories', { ...request, pageSize: 4, pageToken }, { token })
        seen.push(...itemsOf(page, 'advisories').map(uidOf))
        pageToken = String(page['nextPageToken'] ?? '')
        if (pageToken === '') break
      }
      expect(seen).toEqual(all)
    }
  })

  // docs/spec/advisories.md#hand-made-advisories
  test('an update replaces the advisory and keeps its events, and a delete removes it', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('own')
    const made = await created({ group, token }, advisoryOf(name, { componentLocation: 'somewhere', events: [notAffected] }))
    const id = String(made['id'])
    const changed = await spec.ok('Advisories/Update', { id, artifactName: name, artifactType: 'PyPI' }, { token })
    expect(changed).toMatchObject({ id, advisoryId: `X-${name}`, author: made['author'], createdAt: made['createdAt'], events: made['events'] })
    expect([changed['componentLocation'] ?? '', changed['aliases'] ?? []]).toEqual(['', []])
    expect(await listed(token, { aliases: [`CVE-${name}`] })).toEqual([])
    expect(await spec.ok('Advisories/Delete', { id }, { token })).toEqual({})
    expect(await spec.ok('Advisories/Delete', { id }, { token })).toEqual({})
    expect(await listed(token, { artifactNames: [name] })).toEqual([])
    expectFailure(await spec.call('Advisories/Update', { id, artifactName: name }, { token }), { code: 5 })
  })

  // docs/spec/advisories.md#hand-made-advisories
  test('a second advisory about the same is code 6, one like an imported advisory is not, and imported ones cannot be changed', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('twice')
    await importDocuments(spec.server, group, [osvDocument(`X-${name}`, { affected: [{ package: { ecosystem: 'PyPI', name } }] })])
    const [imported = {}] = itemsOf(await spec.ok('ListAdvisories', { artifactNames: [name] }, { token }), 'advisories')
    await created({ group, token }, advisoryOf(name))
    expectFailure(await spec.call('Advisories/Create', { parentId: group, advisory: advisoryOf(name) }, { token }), { code: 6 })
    expect(await listed(token, { artifactNames: [name] })).toEqual([`X-${name}`, `X-${name}`])
    const about = { id: uidOf(imported) }
    for (const [rpc, request] of [
      ['Update', { ...about, artifactName: name }],
      ['Delete', about],
      ['CreateAdvisoryEvent', { parentId: about.id, advisoryEvent: { detection: { manual: {} } } }],
      ['UpdateAdvisoryEvent', { id: `${about.id}/${'0'.repeat(16)}`, detection: { manual: {} } }],
    ] as const)
      expectFailure(await spec.call(`Advisories/${rpc}`, request, { token }), { code: 9, reason: 'ADVISORY_IMPORTED', message: expect.anything() as never })
  })

  // docs/spec/conventions.md#idempotency-keys
  test('creates of an advisory and of its event that are repeated with a key make one', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('once')
    const once = { token, idempotencyKey: name }
    const create = { parentId: group, advisory: advisoryOf(name) }
    const made = await spec.call('Advisories/Create', create, once)
    const id = String(made.body['id'])
    expect((await spec.call('Advisories/Create', create, once)).body).toEqual(made.body)
    const addition = { parentId: id, advisoryEvent: { detection: { manual: {} } } }
    const event = await spec.call('Advisories/CreateAdvisoryEvent', addition, once)
    expect((await spec.call('Advisories/CreateAdvisoryEvent', addition, once)).body).toEqual(event.body)
    expect(itemsOf(await spec.ok('Advisories/ListAdvisoryEvents', { parentId: id }, { token }), 'items')).toEqual([event.body])
    const other = { ...addition, advisoryEvent: notAffected }
    expectFailure(await spec.call('Advisories/CreateAdvisoryEvent', other, once), { code: 3, reason: 'IDEMPOTENCY_KEY_REUSED' })
  })

  // docs/spec/advisories.md#hand-made-advisories
  test('events have reviews: only advisories.approve makes one final, and a final one stays', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('review')
    const role = await spec.ok(
      'CreateRole',
      { parent: group, role: { name: freshName('author'), capabilities: ['CREATE', 'UPDATE', 'DELETE', 'LIST'].map((verb) => `CAP_ADVISORIES_${verb}`) } },
      { token },
    )
    const author = await makeMember(spec.server, group, { role: uidOf(role) })
    const made = await created({ group, token: author.token }, advisoryOf(name))
    const parentId = String(made['id'])
    const denied = await spec.call('Advisories/CreateAdvisoryEvent', { parentId, advisoryEvent: notAffected }, { token: author.token })
    expectFailure(denied, { code: 7 })
    expectFailure(
      await spec.call('Advisories/Create', { parentId: group, advisory: advisoryOf(`${name}-2`, { events: [notAffected] }) }, { token: author.token }),
      {
        code: 7,
      },
    )
    const event = await spec.ok('Advisories/CreateAdvisoryEvent', { parentId, advisoryEvent: { ...notAffected, status: 'PENDING' } }, { token: author.token })
    expect(await listed(token, { artifactNames: [name], latestEventType: 'EVENT_TYPE_FILTER_FALSE_POSITIVE_DETERMINATION' })).toEqual([])
    const { id = '', falsePositiveDetermination = {} } = event
    const change = { id, falsePositiveDetermination, reviewer: 'me' }
    expectFailure(await spec.call('Advisories/UpdateAdvisoryEvent', { ...change, status: 'APPROVED' }, { token: author.token }), { code: 7 })
    const final = await spec.ok('Advisories/UpdateAdvisoryEvent', { ...change, status: 'APPROVED' }, { token })
    expect(final).toMatchObject({ id, timestamp: event['timestamp'], status: 'APPROVED', reviewer: 'me', author: event['author'] })
    expect(await listed(token, { artifactNames: [name], latestEventType: 'EVENT_TYPE_FILTER_FALSE_POSITIVE_DETERMINATION' })).toEqual([`X-${name}`])
    expectFailure(await spec.call('Advisories/UpdateAdvisoryEvent', change, { token }), {
      code: 9,
      reason: 'REVIEW_FINAL',
      message: expect.anything() as never,
    })
    // What was reviewed cannot become about something else.
    expectFailure(await spec.call('Advisories/Update', { id: parentId, artifactName: 'openssl' }, { token: author.token }), { code: 7 })
    expectFailure(await spec.call('Advisories/Delete', { id: parentId }, { token: author.token }), { code: 7 })
    const other = await created({ group, token: author.token }, advisoryOf(`${name}-3`))
    await spec.ok('Advisories/Delete', { id: String(other['id']) }, { token: author.token })
    await spec.ok('Advisories/Delete', { id: parentId }, { token })
  })

  // docs/spec/advisories.md#hand-made-advisories
  test('advisories are bounded: events, texts, and their number in an organisation', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const call = (advisory: JsonObject) => spec.call('Advisories/Create', { parentId: group, advisory }, { token })
    expectFailure(await call({ artifactName: 'a' }), { code: 3, fields: ['advisory_id'] })
    expectFailure(await call({ advisoryId: 'X' }), { code: 3, fields: ['artifact_name'] })
    expectFailure(await call(advisoryOf('a', { aliases: Array.from({ length: 101 }, () => 'b') })), { code: 3, fields: ['aliases'] })
    expectFailure(await call(advisoryOf('a', { events: [{ status: 'PENDING' }] })), { code: 3, fields: [/^events\[0\]\.type$/] })
    expectFailure(await call(advisoryOf('a', { events: [{ fixed: { note: 'n'.repeat(4097) } }] })), { code: 3, fields: [/^events\[0\]\.fixed\.note$/] })
    expectFailure(await call(advisoryOf('a\nb')), { code: 3, fields: ['artifact_name', /^aliases\[0\]$/, 'advisory_id'] })
    await spec.ok('SetGroupLimits', { uid: group, resourceLimits: { advisories: 1 } }, { token: await spec.server.operatorToken() })
    await created({ group, token }, advisoryOf('a'))
    expectFailure(await call(advisoryOf('b')), { code: 8, reason: 'QUOTA_EXCEEDED' })
  })

  // docs/spec/advisories.md#hand-made-advisories
  test('a deleted group takes its advisories with it', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('team')
    const team = uidOf(await spec.ok('CreateGroup', { parent: group, group: { name } }, { token }))
    const made = await created({ group: team, token }, advisoryOf(name))
    expect(await listed(token, { artifactNames: [name] })).toEqual([`X-${name}`])
    await spec.ok('DeleteGroup', { uid: team }, { token })
    expect(await listed(token, { artifactNames: [name] })).toEqual([])
    expectFailure(await spec.call('GetAdvisory', { uid: String(made['id']) }, { token }), { code: 5 })
  })

  // docs/spec/advisories.md#advisory-documents
  test('documents have the approved events of hand-made advisories', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const name = freshName('document')
    await created({ group, token }, advisoryOf(name, { events: [notAffected] }))
    const { documents } = await spec.ok('ListDocuments', { id: name }, { token })
    expect(documents).toMatchObject([{ id: name, advisories: [{ id: `X-${name}`, events: [{ falsePositiveDetermination: { note: 'not called' } }] }] }])
    expect(itemsOf(await spec.ok('ListDocuments', { id: name }), 'documents')).toEqual([])
  })
})
