import type { JsonObject } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { trustedUid } from '../../src/base/uid.ts'
import { RecentDeliveries } from '../../src/engine/log/recent-deliveries.ts'
import { describeOnStores } from '../support/parts/require-part.ts'
import { makeOrganisation, ok, startTestServer, type Organisation } from '../support/test-server.ts'
import { DeliveryGround, groupEvents, newSink } from '../events/delivery-ground.ts'
import { answer } from '../events/sink.ts'

const range = (length: number): number[] => Array.from({ length }, (_, at) => at)

describeOnStores('the last deliveries', (store) => {
  const ground = new DeliveryGround(store)
  const { call, clock, subscribe, newGroup } = ground

  /** Lists until there are so many. */
  async function listed(request: JsonObject, organisation: Organisation, count: number): Promise<JsonObject> {
    for (;;) {
      const page = await call('ListDeliveries', request, organisation)
      if ((page['deliveries'] as JsonObject[]).length >= count) return page
      clock.advance(1_000)
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }

  // docs/spec/events.md#delivery
  test('the last successes are listed, newest first, page by page, and counted', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    const groups: string[] = []
    for (const at of range(5)) {
      groups.push(await newGroup(organisation, organisation.group))
      await sink.until((received) => received.length > at)
    }
    await listed({ uid, state: 'DELIVERED' }, organisation, 5)
    const first = await call('ListDeliveries', { uid, state: 'DELIVERED', pageSize: 3 }, organisation)
    const second = await call('ListDeliveries', { uid, state: 'DELIVERED', pageSize: 3, pageToken: String(first['nextPageToken']) }, organisation)
    const all = [...(first['deliveries'] as JsonObject[]), ...(second['deliveries'] as JsonObject[])]
    expect(all.map(({ subject }) => subject)).toEqual(groups.toReversed())
    expect(all[0]).toMatchObject({ state: 'DELIVERED', attempts: 1, lastStatus: 200, lastError: '', eventType: `${groupEvents}created.v1` })
    expect(all[0]?.['lastLatency']).toMatch(/^0\.\d{3}s$/)
    expect(all[0]).not.toHaveProperty('nextAttemptTime')
    expect(second['nextPageToken'] ?? '').toBe('')
    expect(all.map(({ eventId }) => eventId)).toEqual(sink.received.map(({ headers }) => headers['ce-id']).toReversed())
    for (let count: unknown; count !== '5'; clock.advance(1_000)) ({ deliveredCount: count } = await call('ListDeliveries', { uid }, organisation))
    expect((await call('ListDeliveries', { uid }, organisation))['deliveries']).toEqual([])
  })

  // docs/spec/events.md#delivery
  test('a failed delivery shows how long its last attempt took, and a later success all its attempts', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    sink.respond(answer(500))
    await newGroup(organisation, organisation.group)
    const [failed] = (await listed({ uid, state: 'FAILED' }, organisation, 1))['deliveries'] as JsonObject[]
    expect(failed).toMatchObject({ state: 'FAILED', lastStatus: 500, lastLatency: expect.stringMatching(/^\d+\.\d{3}s$/) as unknown })
    sink.respond(answer(200))
    const [success] = (await listed({ uid, state: 'DELIVERED' }, organisation, 1))['deliveries'] as JsonObject[]
    expect(success).toMatchObject({ eventId: failed?.['eventId'], attempts: sink.received.length })
  })

  test('a deleted subscription leaves nothing in memory', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = trustedUid(await subscribe(organisation, sink))
    await newGroup(organisation, organisation.group)
    await listed({ uid, state: 'DELIVERED' }, organisation, 1)
    await call('DeleteSubscription', { uid }, organisation)
    await expect.poll(() => ground.server.running.engine.services.recentDeliveries.of(uid)).toEqual([])
  })
})

// docs/spec/events.md#delivery
test('a process that does not deliver says that it does not know the last successes', async () => {
  const server = await startTestServer({ keepsContent: false, env: { TAPROOT_EVENTS_DELIVER: 'false' } })
  try {
    const { group, token } = await makeOrganisation(server)
    const subscription = { sink: 'https://hooks.example.com/', types: [groupEvents] }
    const { uid } = ok(await server.rest.call('CreateSubscription', { parent: group, subscription }, { token }))
    const page = ok(await server.rest.call('ListDeliveries', { uid: String(uid), state: 'DELIVERED' }, { token }))
    expect(page).toMatchObject({ deliveries: [], deliveredElsewhere: true, deliveredCount: '0' })
  } finally {
    await server.stop()
  }
})

describe('memory of deliveries', () => {
  const [one, other] = ['1', '2'].map((digit) => trustedUid(`${'a'.repeat(40)}/${digit.repeat(16)}`)) as [
    ReturnType<typeof trustedUid>,
    ReturnType<typeof trustedUid>,
  ] // a cast: two are mapped
  const delivery = (revision: number) => ({
    entry: { revision, key: String(revision), type: '', group: '', subject: '' },
    attempts: 1,
    status: 200,
    timeMs: 0,
    latencyMs: 1,
  })

  test('keeps the last 100 of each subscription while this process delivers', () => {
    const recent = new RecentDeliveries()
    recent.note(one, delivery(1))
    expect(recent.of(one)).toBeUndefined()
    const end = recent.begin()
    for (const at of range(250)) recent.note(one, delivery(at))
    recent.note(other, delivery(7))
    expect(recent.of(one)?.map(({ entry }) => entry.revision)).toEqual(range(100).map((at) => 249 - at))
    expect(recent.of(other)).toHaveLength(1)
    recent.forget(one)
    expect(recent.of(one)).toEqual([])
    end()
    expect(recent.of(other)).toBeUndefined()
  })

  test('keeps 100,000 in all: those of subscriptions with newer deliveries', () => {
    const recent = new RecentDeliveries()
    recent.begin()
    const uidOf = (at: number) => trustedUid(`${'a'.repeat(40)}/${String(at).padStart(16, '0')}`)
    for (const at of range(1_001)) for (const number of range(100)) recent.note(uidOf(at), delivery(number))
    expect(recent.of(uidOf(0))).toEqual([])
    expect(recent.of(uidOf(1))).toHaveLength(100)
    expect(recent.of(uidOf(1_000))).toHaveLength(100)
  })
})
