import { create, toBinary, type JsonObject } from '@bufbuild/protobuf'
import { randomUUID } from 'node:crypto'
import { expect, onTestFinished, test } from 'vitest'
import { OutboxExpirer } from '../../src/engine/jobs/outbox.ts'
import { outboxKey } from '../../src/engine/log/outbox-keys.ts'
import { GroupSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { OutboxEventSchema } from '../../src/gen/taproot/store/v1/envelope_pb.ts'
import { specSuiteEverywhere } from '../conformance/spec/spec-suite.ts'
import { freshName, makeMember, makeOrganisation, startTestServer, roleUid, type Organisation } from '../support/test-server.ts'
import { openStream, type EventStream, type StreamOptions } from './event-streams.ts'

const dayMs = 24 * 3_600_000
const groupEvents = 'dev.taproot.api.iam.group.'

specSuiteEverywhere('the event stream', (spec) => {
  const ownerToken = ({ owner }: Organisation): Promise<string> => spec.server.tokenFor(owner)
  const within = (group: string, more: JsonObject = {}): JsonObject => ({ uidp: { descendantsOf: group }, types: [groupEvents], ...more })
  const newGroup = async (parent: string, token: string): Promise<string> =>
    String((await spec.ok('CreateGroup', { parent, group: { name: freshName('group') } }, { token }))['uid'])
  const open = async (request: JsonObject, token: string, more: Partial<StreamOptions> = {}): Promise<EventStream> => {
    const stream = await openStream(request, { port: spec.server.config.api.port, transport: spec.transport, token, ...more })
    onTestFinished(() => stream.close())
    return stream
  }
  const subjects = async (stream: EventStream, count: number): Promise<unknown[]> => {
    const seen: unknown[] = []
    while (seen.length < count) seen.push((await stream.next())?.event?.['subject'])
    return seen
  }
  const unbind = async (organisation: Organisation, identityUid: string, token: string): Promise<void> => {
    const bindings = await spec.ok('ListRoleBindings', { uidp: { childrenOf: organisation.group } }, { token })
    for (const { uid, identity } of bindings['roleBindings'] as { uid: string; identity: JsonObject }[]) {
      if (identity['uid'] === identityUid) await spec.ok('DeleteRoleBinding', { uid }, { token })
    }
  }

  // docs/spec/events.md#streams
  test('the event stream contains the events after its cursor and each later one, in the form of the feed', async () => {
    const organisation = await makeOrganisation(spec.server)
    const token = await ownerToken(organisation)
    const first = await newGroup(organisation.group, token)
    const stream = await open(within(organisation.group), token)
    expect(await subjects(stream, 2)).toEqual([organisation.group, first])
    const second = await newGroup(organisation.group, token)
    const streamed = await stream.next()
    expect(streamed?.event?.['subject']).toBe(second)
    const response = await fetch(
      `http://127.0.0.1:${spec.server.config.api.port}/events/v2/events?uidp.descendants_of=${organisation.group}&types=${groupEvents}`,
      { headers: { authorization: `Bearer ${token}`, accept: '*/*' } },
    )
    const pulled = (await response.json()) as JsonObject[]
    expect(streamed?.event).toMatchObject({ ...pulled.at(-1), time: expect.any(String) as unknown })
  })

  // docs/spec/events.md#streams
  test('the event stream loses and repeats no event for a reader who is disconnected repeatedly and continues with the last cursor', async () => {
    const organisation = await makeOrganisation(spec.server)
    const token = await ownerToken(organisation)
    const made: string[] = [organisation.group]
    const seen: unknown[] = []
    let cursor = ''
    for (let round = 0; round < 5; round += 1) {
      for (let number = 0; number < 3; number += 1) made.push(await newGroup(organisation.group, token))
      const stream = await open(within(organisation.group, { cursor }), token)
      // Leaves one event of each round for the next round.
      while (seen.length < made.length - 1) {
        const streamed = await stream.next()
        seen.push(streamed?.event?.['subject'])
        cursor = streamed?.cursor ?? ''
      }
      stream.close()
    }
    const stream = await open(within(organisation.group, { cursor }), token)
    seen.push(...(await subjects(stream, 1)))
    expect(seen).toEqual(made)
  })

  spec.only('rest', () => {
    // docs/spec/events.md#streams
    test('the event stream prefers Last-Event-ID to the cursor', async () => {
      const organisation = await makeOrganisation(spec.server)
      const token = await ownerToken(organisation)
      const all = await open(within(organisation.group), token)
      const lastEventId = (await all.next())?.cursor ?? ''
      const uid = await newGroup(organisation.group, token)
      const stream = await open(within(organisation.group, { cursor: 'now' }), token, { lastEventId })
      expect(await subjects(stream, 1)).toEqual([uid])
    })
  })

  spec.only('rest', () => {
    // docs/spec/events.md#streams
    test('the event stream ends at a deadline with a last record of code 4', async () => {
      const organisation = await makeOrganisation(spec.server)
      const headers = { accept: 'text/event-stream', authorization: `Bearer ${await ownerToken(organisation)}`, 'request-timeout': '1' }
      const url = `http://127.0.0.1:${spec.server.config.api.port}/events/v2/events?uidp.descendants_of=${organisation.group}&types=${groupEvents}`
      const records = (await (await fetch(url, { headers })).text()).trimEnd().split('\n\n')
      expect(records).toEqual([
        expect.stringMatching(/^:\nid: \S+$/),
        expect.stringMatching(/^id: \S+\nevent: dev\.taproot\.api\.iam\.group\.created\.v1\ndata: \{"specversion":"1\.0",.*\}$/),
        expect.stringMatching(/^event: error\ndata: \{"code":4,.*\}$/),
      ])
    })
  })

  // docs/spec/events.md#streams
  test('the event stream begins with a cursor for its start', async () => {
    const organisation = await makeOrganisation(spec.server)
    const token = await ownerToken(organisation)
    const stream = await open(within(organisation.group, { cursor: 'now' }), token)
    const cursor = await stream.nextCursor()
    stream.close()
    const uid = await newGroup(organisation.group, token)
    expect(await subjects(await open(within(organisation.group, { cursor: cursor ?? '' }), token), 1)).toEqual([uid])
  })

  // docs/spec/events.md#streams
  test('the event stream shows nothing more at once after the right is removed', async () => {
    const organisation = await makeOrganisation(spec.server)
    const token = await ownerToken(organisation)
    const viewer = await makeMember(spec.server, organisation.group, { role: 'viewer' })
    const [stream, watching] = [
      await open(within(organisation.group, { cursor: 'now' }), viewer.token),
      await open(within(organisation.group, { cursor: 'now' }), token),
    ]
    for (const one of [stream, watching]) await one.nextCursor()
    const before = await newGroup(organisation.group, token)
    expect(await subjects(stream, 1)).toEqual([before])
    await unbind(organisation, viewer.uid, token)
    const hidden = await newGroup(organisation.group, token)
    expect(await subjects(watching, 2)).toEqual([before, hidden])
    const role = { identityUid: viewer.uid, roleUid: roleUid('viewer') }
    await spec.ok('CreateRoleBinding', { parent: organisation.group, roleBinding: role }, { token })
    const after = await newGroup(organisation.group, token)
    expect(await subjects(stream, 1)).toEqual([after])
  })

  // docs/spec/events.md#streams
  test('the event stream ends with code 16 when the token expires or the identity is deleted', async () => {
    const organisation = await makeOrganisation(spec.server)
    const deleted = await makeMember(spec.server, organisation.group, { role: 'owner' })
    const [first, second] = [
      await open(within(organisation.group, { cursor: 'now' }), deleted.token),
      await open(within(organisation.group, { cursor: 'now' }), await ownerToken(organisation)),
    ]
    for (const stream of [first, second]) await stream.nextCursor()
    await spec.ok('DeleteIdentity', { uid: deleted.uid }, { token: await ownerToken(organisation) })
    await newGroup(organisation.group, await ownerToken(organisation))
    expect(await first.ended).toMatchObject({ code: 16 })
    expect(await second.next()).toBeDefined()
    spec.clock.advance(2 * 3_600_000)
    await newGroup(organisation.group, await ownerToken(organisation))
    expect(await second.ended).toMatchObject({ code: 16 })
  })

  // docs/spec/events.md#streams
  test('the event stream is refused with code 11 if the cursor is too old', async () => {
    const organisation = await makeOrganisation(spec.server)
    const stream = await open(within(organisation.group), await ownerToken(organisation))
    const cursor = (await stream.next())?.cursor ?? ''
    spec.clock.advance(4 * dayMs)
    const token = await ownerToken(organisation)
    const refused = await open(within(organisation.group, { cursor }), token)
    const { code, reason, oldestCursor = '' } = await refused.ended
    expect({ code, reason }).toEqual({ code: 11, reason: 'CURSOR_EXPIRED' })
    const uid = await newGroup(organisation.group, token)
    const again = await open(within(organisation.group, { cursor: oldestCursor }), token)
    let last: unknown
    while (last !== uid) last = (await again.next())?.event?.['subject']
  })

  /** Commits events about a group without changing it. */
  const fillOutbox = async (group: string, { events, bytes }: { events: number; bytes: number }): Promise<void> => {
    const { store } = spec.server.running.engine
    const body = toBinary(GroupSchema, create(GroupSchema, { uid: group, description: 'x'.repeat(bytes) }))
    for (let number = 0; number < events; number += 1) {
      const [id, nowMs] = [randomUUID(), spec.clock.now()]
      const event = {
        id,
        type: `${groupEvents}updated.v1`,
        source: '/iam/v2/groups',
        subject: group,
        group,
        timeMs: BigInt(nowMs),
        bodyType: GroupSchema.typeName,
        body,
      }
      const value = toBinary(OutboxEventSchema, create(OutboxEventSchema, event))
      await store.transact({ guards: [], writes: [{ kind: 'put', key: outboxKey(nowMs, id), value }] }, AbortSignal.timeout(60_000))
    }
  }

  // docs/spec/events.md#streams
  test('the event stream of a slow reader delays no other, and ends with code 11 if events expire before they are read', async () => {
    const organisation = await makeOrganisation(spec.server)
    const token = await ownerToken(organisation)
    const slow = await open(within(organisation.group, { cursor: 'now' }), token)
    await slow.nextCursor()
    slow.pause()
    await fillOutbox(organisation.group, { events: 500, bytes: 50_000 })
    const uid = await newGroup(organisation.group, token)
    const other = await open(within(organisation.group, { types: [`${groupEvents}created.`], cursor: '' }), token)
    expect(await subjects(other, 2)).toEqual([organisation.group, uid])
    const { store } = spec.server.running.engine
    await new OutboxExpirer(store, { lifeMs: 3 * dayMs, bytesPerRoot: 1 }).expireOverSize(spec.clock.now() + 120_000, AbortSignal.timeout(30_000))
    // Once a later event is here, the log knows what expired. Before that, the oldest cursor may expire at once.
    const next = await newGroup(organisation.group, token)
    expect(await subjects(other, 1)).toEqual([next])
    slow.resume()
    const { code, reason, oldestCursor = '' } = await slow.ended
    expect({ code, reason }).toEqual({ code: 11, reason: 'CURSOR_EXPIRED' })
    const again = await open(within(organisation.group, { cursor: oldestCursor }), token)
    const last = await newGroup(organisation.group, token)
    expect(await subjects(again, 2)).toEqual([next, last])
  })

  // docs/spec/events.md#streams
  test('the event stream is limited in number for an organisation, and one that ends makes room', async () => {
    const organisation = await makeOrganisation(spec.server)
    const { readers } = spec.server.running.engine.services.eventLog
    const token = await ownerToken(organisation)
    const stream = await open(within(organisation.group), token)
    await stream.next()
    const frees: (() => void)[] = []
    for (let free = readers.take([organisation.group]); free !== undefined; free = readers.take([organisation.group])) frees.push(free)
    expect(frees).toHaveLength(999)
    expect(await (await open(within(organisation.group), token)).ended).toMatchObject({ code: 8, reason: 'RATE_LIMITED' })
    stream.close()
    const again = async (): Promise<EventStream> => {
      for (;;) {
        const next = await open(within(organisation.group), token)
        if ((await next.next()) !== undefined) return next
      }
    }
    await again()
    for (const free of frees) free()
  })

  // docs/spec/events.md#streams
  test('the event stream ends with code 14 when the event log closes, and continues with its cursor', async () => {
    const organisation = await makeOrganisation(spec.server)
    const token = await ownerToken(organisation)
    const stream = await open(within(organisation.group), token)
    const cursor = (await stream.next())?.cursor ?? ''
    spec.server.running.engine.services.eventLog.close()
    expect(await stream.ended).toMatchObject({ code: 14 })
    const uid = await newGroup(organisation.group, token)
    expect(await subjects(await open(within(organisation.group, { cursor }), token), 1)).toEqual([uid])
  })

  // docs/spec/events.md#streams
  test('the event stream ends when the server begins to stop, and so do long polls', async () => {
    const server = await startTestServer({ store: spec.store, env: { TAPROOT_STOP_DRAIN_SECONDS: '1' } })
    const organisation = await makeOrganisation(server)
    const { token } = organisation
    const stream = await open(within(organisation.group), token, { port: server.config.api.port })
    await stream.next()
    const waiting = server[spec.transport === 'rest' ? 'rest' : 'grpc'].call('PullEvents', within(organisation.group, { cursor: 'now', wait: '60s' }), {
      token,
    })
    await expect.poll(() => server.running.engine.services.eventLog.readers.taken).toBe(2)
    const metrics = await (await fetch(`http://127.0.0.1:${server.config.ops.port}/metrics`)).text()
    expect(metrics.split('\n').filter((line) => line.startsWith('taproot_event_readers{'))).toEqual([
      'taproot_event_readers{kind="stream"} 1',
      'taproot_event_readers{kind="poll"} 1',
    ])
    const stopped = server.running.stop()
    expect(await stream.ended).toMatchObject({ code: 14 })
    expect((await waiting).code).toBe(0)
    await stopped
    await server.stop()
  })
})
