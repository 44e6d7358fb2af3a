import { createHmac } from 'node:crypto'
import type { IncomingHttpHeaders, ServerResponse } from 'node:http'
import { expect, test } from 'vitest'
import type { JsonObject } from '@bufbuild/protobuf'
import { freshName, makeOrganisation } from '../support/test-server.ts'
import { describeOnStores } from '../support/parts/require-part.ts'
import { DeliveryGround, groupEvents, hourMs, newSink } from './delivery-ground.ts'
import { EventGround } from './event-ground.ts'
import { answer, type Received, type Sink } from './sink.ts'

describeOnStores('delivery of events', (store) => {
  const ground = new DeliveryGround(store)
  const { call, clock, newGroup, shown, subscribe, untilShown } = ground
  const subjects = (sink: Sink): (string | undefined)[] => sink.received.map(({ headers }) => headers['ce-subject']?.toString())

  test('event delivery sends events of the group and of groups below it, and none of other groups and types', async () => {
    const [organisation, other, sink] = [await makeOrganisation(ground.server), await makeOrganisation(ground.server), await newSink()]
    const before = await newGroup(organisation, organisation.group)
    await subscribe(organisation, sink)
    const child = await newGroup(organisation, organisation.group)
    await newGroup(other, other.group)
    await call('CreateRole', { parent: organisation.group, role: { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST'] } }, organisation)
    const grandchild = await newGroup(organisation, child)
    await sink.until((received) => received.length >= 2)
    expect(subjects(sink)).toEqual([child, grandchild])
    expect(subjects(sink)).not.toContain(before)
    expect(sink.received[0]?.headers).toMatchObject({ 'ce-type': `${groupEvents}created.v1`, 'ce-group': child, 'content-type': 'application/json' })
  })

  test('event delivery sends a subscription to all types the event of its own creation first', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink, { types: [] })
    await sink.until((received) => received.length >= 1)
    expect(sink.received[0]?.headers).toMatchObject({ 'ce-type': 'dev.taproot.api.events.subscription.created.v1', 'ce-subject': uid })
  })

  test('event delivery shows a delivered event as the last delivery, with nothing waiting', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    await newGroup(organisation, organisation.group)
    const subscription = await untilShown(uid, organisation, (now) => now['lastDeliveryTime'] !== undefined)
    expect(subscription).toMatchObject({ state: 'ACTIVE', pendingCount: '0' })
    expect(subscription['lastError'] ?? '').toBe('')
  })

  test('event delivery repeats a refused event while later ones arrive', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    await subscribe(organisation, sink)
    let refused = 0
    sink.respond((received, response) => {
      const isFirst = sink.received[0] === received
      if (isFirst) refused += 1
      answer(isFirst ? 500 : 200)(received, response)
    })
    const [first, second] = [await newGroup(organisation, organisation.group), await newGroup(organisation, organisation.group)]
    await sink.until(() => sink.about(first).length >= 2)
    expect(refused).toBe(1)
    expect(sink.about(second)).toHaveLength(1)
    expect(sink.about(first)).toHaveLength(2)
  })

  test('event delivery reports a subscription as FAILING after repeated failures; once the sink works, all events arrive', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    sink.respond(answer(503))
    const groups: string[] = []
    for (let number = 0; number < 12; number += 1) groups.push(await newGroup(organisation, organisation.group))
    // Attempts have growing intervals, so the clock is advanced past them.
    const failing = await untilShown(uid, organisation, (now) => {
      clock.advance(10_000)
      return now['state'] === 'FAILING'
    })
    expect(failing).toMatchObject({ stateReason: 'the sink answered 503', lastError: 'the sink answered 503' })
    sink.respond(answer(200))
    // An attempt may just have failed, and its event waits from now on.
    const hasAll = (): boolean => {
      clock.advance(hourMs / 60)
      return groups.every((group) => sink.about(group).length > 0)
    }
    await expect.poll(hasAll).toBe(true)
    await untilShown(uid, organisation, (now) => {
      clock.advance(10_000)
      return now['state'] === 'ACTIVE' && now['pendingCount'] === '0'
    })
  })

  // docs/spec/events.md#delivery
  test('event delivery waits once after attempts that failed together, as when a sink starts again', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    await call('PauseSubscription', { uid }, organisation)
    const groups: string[] = []
    for (let number = 0; number < 12; number += 1) groups.push(await newGroup(organisation, organisation.group))
    const open: ServerResponse[] = []
    sink.respond((_received, response) => void open.push(response))
    await call('ResumeSubscription', { uid }, organisation)
    await sink.until(() => open.length >= 8)
    sink.respond(answer(200))
    for (const response of open) response.destroy()
    await untilShown(uid, organisation, (now) => now['state'] === 'FAILING')
    clock.advance(20_000)
    await sink.until(() => groups.every((group) => sink.about(group).length > 0))
  })

  test('event delivery sends an ordered subscription one event at a time, in commit order, also after a failure', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    await subscribe(organisation, sink, { ordered: true })
    let failures = 2
    sink.respond((received, response) => answer(failures-- > 0 ? 500 : 200)(received, response))
    const groups: string[] = []
    for (let number = 0; number < 6; number += 1) groups.push(await newGroup(organisation, organisation.group))
    while (sink.received.length < 8) {
      clock.advance(1_000)
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
    const first = groups[0] ?? ''
    expect(subjects(sink)).toEqual([first, first, ...groups])
  })

  test('event delivery pauses a subscription on status 410 with the reason; :resume delivers the waiting events', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    sink.respond(answer(410))
    const group = await newGroup(organisation, organisation.group)
    const paused = await untilShown(uid, organisation, (now) => now['state'] === 'PAUSED')
    expect(paused['stateReason']).toBe('the sink answered 410 Gone')
    sink.respond(answer(200))
    expect(await call('ResumeSubscription', { uid }, organisation)).toMatchObject({ state: 'ACTIVE' })
    await sink.until(() => sink.about(group).length >= 2)
  })

  test('event delivery sends a paused subscription nothing until it is resumed', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    expect(await call('PauseSubscription', { uid }, organisation)).toMatchObject({ state: 'PAUSED', stateReason: 'paused by :pause' })
    const group = await newGroup(organisation, organisation.group)
    const witness = await newSink()
    await subscribe(organisation, witness)
    await newGroup(organisation, organisation.group)
    await witness.until((received) => received.length >= 1)
    expect(sink.received).toEqual([])
    await call('ResumeSubscription', { uid }, organisation)
    await sink.until((received) => received.length >= 2)
    expect(sink.about(group)).toHaveLength(1)
  })

  test('event delivery sends a paused subscription no event that waited for others of the organisation', async () => {
    const [organisation, silent, sink] = [await makeOrganisation(ground.server), await newSink(), await newSink()]
    const open: ServerResponse[] = []
    silent.respond((_received, response) => void open.push(response))
    for (let number = 0; number < 8; number += 1) await subscribe(organisation, silent)
    const uid = await subscribe(organisation, sink)
    await call('PauseSubscription', { uid }, organisation)
    const groups: string[] = []
    for (let number = 0; number < 10; number += 1) groups.push(await newGroup(organisation, organisation.group))
    // As many as an organisation sends concurrently.
    await silent.until((received) => received.length >= 64)
    await call('ResumeSubscription', { uid }, organisation)
    await call('PauseSubscription', { uid }, organisation)
    silent.respond(answer(200))
    for (const response of open) response.writeHead(200).end()
    await silent.until((received) => received.length >= 80)
    expect(sink.received).toEqual([])
    await call('ResumeSubscription', { uid }, organisation)
    await sink.until(() => groups.every((group) => sink.about(group).length > 0))
  })

  test('event delivery sends the event of :test to this subscription alone, whatever its types', async () => {
    const [organisation, sink, other] = [await makeOrganisation(ground.server), await newSink(), await newSink()]
    const uid = await subscribe(organisation, sink)
    await subscribe(organisation, other)
    await call('TestSubscription', { uid }, organisation)
    await sink.until((received) => received.length >= 1)
    expect(sink.received[0]?.headers).toMatchObject({ 'ce-type': 'dev.taproot.api.events.subscription.tested.v1', 'ce-subject': uid })
    await newGroup(organisation, organisation.group)
    await other.until((received) => received.length >= 1)
    expect(other.about(uid)).toEqual([])
  })

  test('event delivery sends a deleted subscription nothing more, and nothing of it is left in the store', async () => {
    const [organisation, sink, witness] = [await makeOrganisation(ground.server), await newSink(), await newSink()]
    const uid = await subscribe(organisation, sink)
    await subscribe(organisation, witness)
    sink.respond(answer(500))
    await newGroup(organisation, organisation.group)
    await sink.until((received) => received.length >= 1)
    await call('DeleteSubscription', { uid }, organisation)
    const heard = sink.received.length
    const group = await newGroup(organisation, organisation.group)
    await witness.until(() => witness.about(group).length > 0)
    expect(sink.received.length).toBe(heard)
    for (;;) {
      const { entries } = await ground.server.running.engine.store.range({ prefix: '', limit: 100_000 }, AbortSignal.timeout(60_000))
      const left = entries.map(({ key }) => key).filter((key) => key.includes(uid))
      if (left.length === 0) break
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  })

  test('event delivery lists failed and waiting deliveries, page by page', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    sink.respond(answer(500))
    const groups: string[] = []
    for (let number = 0; number < 9; number += 1) groups.push(await newGroup(organisation, organisation.group))
    await untilShown(uid, organisation, (now) => {
      clock.advance(10_000)
      return now['state'] === 'FAILING'
    })
    const listed: JsonObject[] = []
    let pageToken = ''
    do {
      const page = await call('ListDeliveries', { uid, pageSize: 2, pageToken }, organisation)
      listed.push(...(page['deliveries'] as JsonObject[]))
      pageToken = String(page['nextPageToken'] ?? '')
    } while (pageToken !== '')
    expect(listed.map(({ subject }) => subject).toSorted()).toEqual(groups.toSorted())
    const failed = listed.filter(({ state }) => state === 'FAILED')
    expect(failed.length).toBeGreaterThan(0)
    expect(failed[0]).toMatchObject({ eventType: `${groupEvents}created.v1`, lastStatus: 500, lastError: 'the sink answered 500' })
    expect(listed.filter(({ state }) => state === 'PENDING').length).toBe(9 - failed.length)
    const stored = (await new EventGround(ground.server).all()).filter(({ subject }) => groups.includes(subject))
    expect(listed.map(({ eventId }) => eventId).toSorted()).toEqual(stored.map(({ id }) => id).toSorted())
    const { deliveries } = await call('ListDeliveries', { uid, state: 'FAILED' }, organisation)
    expect(deliveries).toEqual(failed)
  })

  test('event delivery repeats a failed event at once on :redeliver', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    sink.respond(answer(503, { 'retry-after': '3000' }))
    const group = await newGroup(organisation, organisation.group)
    await sink.until((received) => received.length >= 1)
    let deliveries: JsonObject[] = []
    while (deliveries.length === 0) deliveries = (await call('ListDeliveries', { uid, state: 'FAILED' }, organisation))['deliveries'] as JsonObject[]
    sink.respond(answer(200))
    await call('RedeliverEvents', { uid, eventId: String(deliveries[0]?.['eventId']) }, organisation)
    await sink.until(() => sink.about(group).length >= 2)
    await untilShown(uid, organisation, (now) => now['pendingCount'] === '0' && now['lastDeliveryTime'] !== undefined)
    expect((await call('ListDeliveries', { uid }, organisation))['deliveries']).toEqual([])
  })

  test('event delivery repeats events from an event or a time on with :replay, with the same ids', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink, { ordered: true })
    const groups: string[] = []
    for (let number = 0; number < 3; number += 1) groups.push(await newGroup(organisation, organisation.group))
    await sink.until((received) => received.length >= 3)
    const ids = sink.received.map(({ headers }) => headers['ce-id'])
    await call('ReplayEvents', { uid, fromEventId: String(ids[1]) }, organisation)
    await sink.until((received) => received.length >= 5)
    await call('ReplayEvents', { uid, fromTime: new Date(clock.now() - hourMs).toISOString() }, organisation)
    await sink.until(() => sink.about(groups[2] ?? '').length >= 3)
    // The time is before the organisation was made.
    const delivered = sink.received.filter(({ headers }) => headers['ce-subject'] !== organisation.group)
    expect(delivered.map(({ headers }) => headers['ce-id'])).toEqual([...ids, ids[1], ids[2], ...ids])
  })

  // docs/spec/events.md#standard-webhooks
  test('event delivery signs with a shared secret that is shown once and overlaps with its successor', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const subscription = { sink: sink.url, types: [groupEvents], signing: 'STANDARD_WEBHOOKS' }
    const created = await call('CreateSubscription', { parent: organisation.group, subscription }, organisation)
    const [uid, first] = [String(created['uid']), String(created['secret'])]
    expect(first).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/)
    expect(await shown(uid, organisation)).toMatchObject({ signing: 'STANDARD_WEBHOOKS', secret: '' })
    const signaturesOf = async (): Promise<{ headers: IncomingHttpHeaders; sent: string[]; by: (secret: string) => string }> => {
      const before = sink.received.length
      await newGroup(organisation, organisation.group)
      await sink.until((received) => received.length > before)
      const { headers, body }: Pick<Received, 'headers' | 'body'> = sink.received.at(-1) ?? { headers: {}, body: '' }
      const by = (secret: string): string => {
        const hmac = createHmac('sha256', Buffer.from(secret.slice('whsec_'.length), 'base64'))
        return `v1,${hmac.update(`${headers['webhook-id']?.toString()}.${headers['webhook-timestamp']?.toString()}.${body}`).digest('base64')}`
      }
      return { headers, sent: String(headers['webhook-signature']).split(' '), by }
    }
    const once = await signaturesOf()
    expect(once.headers).not.toHaveProperty('authorization')
    expect(once.headers['webhook-id']).toBe(once.headers['ce-id'])
    expect(once.sent).toEqual([once.by(first)])
    const second = String((await call('RotateSubscriptionSecret', { uid, overlap: '3600s' }, organisation))['secret'])
    expect(second).not.toBe(first)
    const both = await signaturesOf()
    expect(both.sent).toEqual([both.by(second), both.by(first)])
    clock.advance(2 * hourMs)
    const after = await signaturesOf()
    expect(after.sent).toEqual([after.by(second)])
    // Without its secret nothing is sent in another form; a new secret repairs that.
    const { store } = ground.server.running.engine
    await store.transact({ guards: [], writes: [{ kind: 'delete', key: `x/events/secret/${uid}` }] }, AbortSignal.timeout(60_000))
    const heard = sink.received.length
    const group = await newGroup(organisation, organisation.group)
    await untilShown(uid, organisation, (now) => String(now['lastError']).startsWith('the secret is missing'))
    expect(sink.received.length).toBe(heard)
    const third = String((await call('RotateSubscriptionSecret', { uid }, organisation))['secret'])
    clock.advance(hourMs)
    await sink.until(() => sink.about(group).length > 0)
    const mended = await signaturesOf()
    expect(mended.sent).toEqual([mended.by(third)])
    await call('UpdateSubscription', { subscription: { uid, signing: 'SIGNING_UNSPECIFIED' }, updateMask: 'signing' }, organisation)
    const token = await signaturesOf()
    expect(token.headers).toHaveProperty('authorization')
    expect(token.headers).not.toHaveProperty('webhook-signature')
    const { entries } = await ground.server.running.engine.store.range({ prefix: '', limit: 100_000 }, AbortSignal.timeout(60_000))
    const texts = entries.map(({ value }) => Buffer.from(value).toString('latin1'))
    for (const secret of [first, second, third]) expect(texts.filter((text) => text.includes(secret))).toEqual([])
    expect(JSON.stringify(ground.server.logs)).not.toContain(first)
  })

  test('event delivery keeps few connections to a sink whose answers never end', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    await subscribe(organisation, sink)
    let [open, most] = [0, 0]
    sink.respond((_received, response) => {
      most = Math.max(most, ++open)
      response.once('close', () => (open -= 1))
      response.writeHead(200).write('and so on')
    })
    for (let number = 0; number < 30; number += 1) await newGroup(organisation, organisation.group)
    await sink.until((received) => received.length >= 30)
    // As many as a subscription sends concurrently.
    expect(most).toBeLessThanOrEqual(8)
  })

  test('event delivery keeps the state of a subscription with an unreadable record, and removes that of a deleted one', async () => {
    const { store } = ground.server.running.engine
    const signal = AbortSignal.timeout(60_000)
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink, { signing: 'STANDARD_WEBHOOKS' })
    const entry = await store.get(`r/Subscription/${uid}`, signal)
    await store.transact({ guards: [], writes: [{ kind: 'put', key: `r/Subscription/${uid}`, value: Buffer.from('damaged') }] }, signal)
    const witness = await newSink()
    await subscribe(organisation, witness)
    await newGroup(organisation, organisation.group)
    await witness.until((received) => received.length >= 1)
    for (const key of [`x/events/progress/${uid}`, `x/events/secret/${uid}`]) expect(await store.get(key, signal), key).toBeDefined()
    await store.transact({ guards: [], writes: [{ kind: 'put', key: `r/Subscription/${uid}`, value: entry?.value ?? new Uint8Array() }] }, signal)
  })

  test('event delivery never connects to a sink at an address that the settings forbid', async () => {
    const organisation = await makeOrganisation(ground.server)
    const subscription = { sink: 'https://10.1.2.3/events', types: [groupEvents] }
    const refused = await ground.server.rest.call(
      'CreateSubscription',
      { parent: organisation.group, subscription },
      { token: await ground.server.tokenFor(organisation.owner) },
    )
    expect(refused).toMatchObject({ code: 3 })
  })
})
