import { expect, test } from 'vitest'
import type { JsonObject } from '@bufbuild/protobuf'
import { sealCursor } from '../../src/base/page-token.ts'
import { OutboxExpirer } from '../../src/engine/jobs/outbox.ts'
import { specSuite } from '../conformance/spec/spec-suite.ts'
import { freshName, makeMember, makeOrganisation, type Organisation } from '../support/test-server.ts'

const dayMs = 24 * 3_600_000
const groupEvents = 'dev.taproot.api.iam.group.'

/** A page of the feed, in the same form for REST and gRPC. */
interface Page {
  readonly events: readonly JsonObject[]
  readonly cursor: string
}

specSuite('the event feed', (spec) => {
  const pull = async (request: JsonObject, token: string): Promise<Page> => {
    if (spec.transport === 'grpc') {
      const answer = await spec.ok('PullEvents', request, { token })
      return { events: (answer['events'] ?? []) as JsonObject[], cursor: String(answer['nextCursor']) }
    }
    const query = new URLSearchParams()
    for (const [name, value] of Object.entries(request)) {
      if (name === 'uidp') query.set('uidp.descendants_of', String((value as JsonObject)['descendantsOf']))
      else for (const one of [value].flat()) query.append(name, String(one))
    }
    const port = spec.server.config.api.port
    const response = await fetch(`http://127.0.0.1:${port}/events/v2/events?${query}`, { headers: { authorization: `Bearer ${token}` } })
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toBe('application/cloudevents-batch+json; charset=utf-8')
    return { events: (await response.json()) as JsonObject[], cursor: response.headers.get('next-cursor') ?? '' }
  }
  const subjects = ({ events }: Page): unknown[] => events.map((event) => event['subject'])
  const ownerToken = ({ owner }: Organisation): Promise<string> => spec.server.tokenFor(owner)
  const newGroup = async (organisation: Organisation, parent = organisation.group): Promise<string> =>
    String((await spec.ok('CreateGroup', { parent, group: { name: freshName('group') } }, { token: await ownerToken(organisation) }))['uid'])
  const within = (group: string, more: JsonObject = {}): JsonObject => ({ uidp: { descendantsOf: group }, types: [groupEvents], ...more })

  // docs/spec/events.md#feed
  test('the event feed returns events in commit order, each once, however small the pages are', async () => {
    const organisation = await makeOrganisation(spec.server)
    const token = await ownerToken(organisation)
    const groups: string[] = []
    for (let number = 0; number < 7; number += 1) groups.push(await newGroup(organisation))
    const seen: unknown[] = []
    let cursor = ''
    for (;;) {
      const page = await pull(within(organisation.group, { pageSize: 2, cursor }), token)
      cursor = page.cursor
      if (page.events.length === 0) break
      expect(page.events.length).toBeLessThanOrEqual(2)
      seen.push(...subjects(page))
    }
    expect(seen).toEqual([organisation.group, ...groups])
  })

  // docs/spec/events.md#feed
  test('the event feed returns an event as a CloudEvent with the record as the API shows it', async () => {
    const organisation = await makeOrganisation(spec.server)
    const token = await ownerToken(organisation)
    const { cursor } = await pull(within(organisation.group), token)
    const uid = await newGroup(organisation)
    const { events } = await pull(within(organisation.group, { cursor }), token)
    const group = await spec.ok('GetGroup', { uid }, { token })
    expect(events).toHaveLength(1)
    expect(events[0]).toMatchObject({
      specversion: '1.0',
      type: `${groupEvents}created.v1`,
      source: `${spec.server.config.baseUrl}/iam/v2/groups`,
      subject: uid,
      group: uid,
      audience: 'customer',
      datacontenttype: 'application/json',
      bodytype: 'taproot.iam.v2.Group',
      actor: organisation.owner,
      data: { actor: { subject: organisation.owner }, body: { uid, name: group['name'], createTime: String(group['createTime']).replace('.000Z', 'Z') } },
    })
    expect(events[0]).not.toHaveProperty('identityprovider')
  })

  // docs/spec/events.md#feed
  test('the event feed skips past events with cursor=now, and a waiting call ends with the next event', async () => {
    const organisation = await makeOrganisation(spec.server)
    const token = await ownerToken(organisation)
    await newGroup(organisation)
    const { events, cursor } = await pull(within(organisation.group, { cursor: 'now' }), token)
    expect(events).toEqual([])
    const waiting = pull(within(organisation.group, { cursor, wait: '30s' }), token)
    const uid = await newGroup(organisation)
    expect(subjects(await waiting)).toEqual([uid])
  })

  // docs/spec/events.md#feed
  test('the event feed ends a wait without events with an empty page and a cursor to continue', async () => {
    const organisation = await makeOrganisation(spec.server)
    const token = await ownerToken(organisation)
    const { cursor } = await pull(within(organisation.group), token)
    const page = await pull(within(organisation.group, { cursor, wait: '0.050s' }), token)
    expect(page.events).toEqual([])
    const uid = await newGroup(organisation)
    expect(subjects(await pull(within(organisation.group, { cursor: page.cursor }), token))).toEqual([uid])
  })

  // docs/spec/events.md#feed
  test('the event feed shows callers the events of records that they may currently list', async () => {
    const organisation = await makeOrganisation(spec.server)
    const owner = await ownerToken(organisation)
    const team = await newGroup(organisation)
    const role = { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST'] }
    const listsGroups = String((await spec.ok('CreateRole', { parent: organisation.group, role }, { token: owner }))['uid'])
    const member = await makeMember(spec.server, organisation.group, { role: listsGroups, bindAt: team })
    const everything: JsonObject = { uidp: { descendantsOf: organisation.group } }
    await newGroup(organisation)
    const below = await newGroup(organisation, team)
    const all = await pull(everything, owner)
    expect(all.events.length).toBeGreaterThan(3)
    const page = await pull(everything, member.token)
    expect(subjects(page)).toEqual([team, below])
    const bindings = await spec.ok('ListRoleBindings', { uidp: { childrenOf: team } }, { token: owner })
    for (const { uid } of bindings['roleBindings'] as JsonObject[]) await spec.ok('DeleteRoleBinding', { uid: String(uid) }, { token: owner })
    await newGroup(organisation, team)
    expect((await pull({ ...everything, cursor: page.cursor }, member.token)).events).toEqual([])
  })

  // docs/spec/events.md#feed
  test("the event feed shows no event after the caller's right ended during a wait", async () => {
    const organisation = await makeOrganisation(spec.server)
    const owner = await ownerToken(organisation)
    const viewer = await makeMember(spec.server, organisation.group, { role: 'viewer' })
    const { cursor } = await pull(within(organisation.group), viewer.token)
    const waiting = pull(within(organisation.group, { cursor, wait: '0.500s' }), viewer.token)
    const bindings = await spec.ok('ListRoleBindings', { uidp: { childrenOf: organisation.group } }, { token: owner })
    for (const { uid, identity } of bindings['roleBindings'] as { uid: string; identity: JsonObject }[]) {
      if (identity['uid'] === viewer.uid) await spec.ok('DeleteRoleBinding', { uid }, { token: owner })
    }
    await newGroup(organisation)
    expect((await waiting).events).toEqual([])
  })

  // docs/spec/events.md#feed
  test('the event feed shows no event of another tenant, with or without a given group', async () => {
    const [organisation, other] = [await makeOrganisation(spec.server), await makeOrganisation(spec.server)]
    const uid = await newGroup(organisation)
    const token = await ownerToken(other)
    const seen = [...subjects(await pull(within(organisation.group), token)), ...subjects(await pull({ types: [groupEvents], pageSize: 500 }, token))]
    expect(seen).not.toContain(uid)
    expect(seen).toContain(other.group)
  })

  // docs/spec/events.md#feed
  test('the event feed answers a cursor older than the kept events with code 11 and the oldest usable cursor', async () => {
    const organisation = await makeOrganisation(spec.server)
    const { cursor } = await pull(within(organisation.group), await ownerToken(organisation))
    spec.clock.advance(4 * dayMs)
    const token = await ownerToken(organisation)
    const uid = await newGroup(organisation)
    const refused = await spec.call('PullEvents', within(organisation.group, { cursor }), { token })
    expect(refused.code).toBe(11)
    expect(refused.details['ErrorInfo']).toMatchObject({ reason: 'CURSOR_EXPIRED' })
    const { oldestCursor = '' } = refused.details['ErrorInfo']?.['metadata'] as Record<string, string>
    expect(subjects(await pull(within(organisation.group, { cursor: oldestCursor }), token))).toContain(uid)
  })

  // docs/spec/events.md#feed
  test('the event feed answers a cursor from after the backup that was restored with code 11 and the oldest usable cursor', async () => {
    const organisation = await makeOrganisation(spec.server)
    const uid = await newGroup(organisation)
    const { clock, eventLog, pageKeys, random } = spec.server.running.engine.services
    const { log, release } = await eventLog.acquire(AbortSignal.timeout(30_000))
    const { revision, key } = log.last
    release()
    const later = { key: [revision + 1_000_000, key, clock.now(), revision], queryHash: 'events', issuedMs: clock.now() }
    const cursor = sealCursor(later, pageKeys.current(), random)
    const token = await ownerToken(organisation)
    const oldestCursor = await oldestCursorOf(within(organisation.group, { cursor }), token)
    expect(subjects(await pull(within(organisation.group, { cursor: oldestCursor }), token))).toContain(uid)
  })

  /** Removes the events of all root groups over a size, as after a minute. */
  const expireOver = async (bytesPerRoot: number): Promise<number> => {
    const { store } = spec.server.running.engine
    return new OutboxExpirer(store, { lifeMs: 3 * dayMs, bytesPerRoot }).expireOverSize(spec.clock.now() + 120_000, AbortSignal.timeout(30_000))
  }
  const oldestCursorOf = async (request: JsonObject, token: string): Promise<string> => {
    const refused = await spec.call('PullEvents', request, { token })
    expect(refused.code).toBe(11)
    expect(refused.details['ErrorInfo']).toMatchObject({ reason: 'CURSOR_EXPIRED' })
    return String((refused.details['ErrorInfo']?.['metadata'] as JsonObject)['oldestCursor'])
  }

  // docs/spec/events.md#feed
  test('the event feed answers a cursor before removed events, of which there were too many, with code 11 and the oldest usable cursor', async () => {
    const organisation = await makeOrganisation(spec.server)
    const token = await ownerToken(organisation)
    const [start, everywhere] = [await pull(within(organisation.group, { cursor: '' }), token), await pull({ types: [groupEvents], cursor: 'now' }, token)]
    await newGroup(organisation)
    expect(await expireOver(1)).toBeGreaterThan(0)
    const kept = await newGroup(organisation)
    for (const request of [within(organisation.group, { cursor: start.cursor }), { types: [groupEvents], cursor: everywhere.cursor }]) {
      const oldestCursor = await oldestCursorOf(request, token)
      const page = await pull({ ...request, cursor: oldestCursor }, token)
      expect(subjects(page)).toEqual([kept])
      expect(subjects(await pull({ ...request, cursor: page.cursor }, token))).toEqual([])
    }
    expect(subjects(await pull(within(organisation.group), token))).toEqual([kept])
    // A process that reads the outbox later has the same state.
    spec.server.running.engine.services.eventLog.close()
    await oldestCursorOf(within(organisation.group, { cursor: start.cursor }), token)
  })

  // docs/spec/events.md#feed
  test('the event feed does not report events removed from another organisation', async () => {
    const organisation = await makeOrganisation(spec.server)
    const token = await ownerToken(organisation)
    await expireOver(1)
    const places = [within(organisation.group), { types: [groupEvents] }]
    const cursors = await Promise.all(places.map(async (place) => (await pull({ ...place, cursor: 'now' }, token)).cursor))
    const other = await makeOrganisation(spec.server)
    const uid = await newGroup(organisation)
    const events = await pull(within(organisation.group), token)
    await newGroup(other)
    await expireOver(Buffer.byteLength(JSON.stringify(events.events)))
    const strangers = within(other.group, { cursor: cursors[0] ?? '' })
    expect((await pull(strangers, token)).events).toEqual([])
    for (const [at, place] of places.entries()) expect(subjects(await pull({ ...place, cursor: cursors[at] ?? '' }, token))).toContain(uid)
  })
})
