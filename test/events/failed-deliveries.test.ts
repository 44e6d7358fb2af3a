import { randomUUID } from 'node:crypto'
import { create, toBinary, type JsonObject } from '@bufbuild/protobuf'
import { expect, onTestFinished, test } from 'vitest'
import { outboxRetention } from '../../src/domains/expire.ts'
import { countUse } from '../../src/domains/usage.ts'
import { OutboxExpirer } from '../../src/engine/jobs/outbox.ts'
import { outboxKey } from '../../src/engine/log/outbox-keys.ts'
import { GroupSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { OutboxEventSchema } from '../../src/gen/taproot/store/v1/envelope_pb.ts'
import { FailedDeliverySchema } from '../../src/gen/taproot/store/v1/events_pb.ts'
import { StoreError, type Transaction, type Write } from '../../src/store/store.ts'
import { describeOnStores } from '../support/parts/require-part.ts'
import { makeOrganisation, ok, type Organisation } from '../support/test-server.ts'
import { DeliveryGround, hourMs, newSink } from './delivery-ground.ts'
import { EventGround } from './event-ground.ts'
import { answer } from './sink.ts'

describeOnStores('failed deliveries', (store) => {
  const ground = new DeliveryGround(store)
  const { call, clock, newGroup, subscribe, untilShown } = ground
  const listed = async (uid: string, organisation: Organisation): Promise<unknown> => (await call('ListDeliveries', { uid }, organisation))['deliveries']
  const unavailable = (): Promise<never> => Promise.reject(new StoreError('unavailable', 'the store is away for a moment'))

  /** Returns how long a delivery waits for its next attempt, in milliseconds. */
  const waitOf = ({ lastAttemptTime, nextAttemptTime }: JsonObject): number => Date.parse(String(nextAttemptTime)) - Date.parse(String(lastAttemptTime))

  // The first test, because the metrics count all subscriptions of the server.
  test('dead letters, failing sinks and the oldest event that waits are in the metrics of the leader', async () => {
    const metric = async (name: string): Promise<number> => {
      const text = await (await fetch(`http://127.0.0.1:${ground.server.config.ops.port}/metrics`)).text()
      return Number(
        text
          .split('\n')
          .find((line) => line.startsWith(`${name} `))
          ?.slice(name.length),
      )
    }
    const failedCount = 'taproot_event_deliveries_total{outcome="failed"}'
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink, { ordered: true })
    sink.respond(answer(500))
    await newGroup(organisation, organisation.group)
    const failed = (await metric(failedCount)) || 0
    await untilShown(uid, organisation, ({ state }) => {
      clock.advance(20_000)
      return state === 'FAILING'
    })
    expect(await metric(failedCount)).toBeGreaterThan(failed)
    await expect.poll(() => metric('taproot_subscriptions_failing')).toBe(1)
    clock.advance(60_000)
    await expect.poll(() => metric('taproot_event_oldest_waiting_seconds')).toBeGreaterThan(60)
    await call('DeleteSubscription', { uid }, organisation)
    await expect.poll(() => metric('taproot_subscriptions_failing')).toBe(0)
    expect(await metric('taproot_event_oldest_waiting_seconds')).toBe(0)
  })

  test.each([
    ['of a 429 is obeyed, up to an hour', 429, 'Fri, 31 Dec 9999 23:59:59 GMT', hourMs],
    ['of a 503 is obeyed, up to an hour, however many digits it has', 503, '9'.repeat(40), hourMs],
    ['of a 503 is ignored if it is negative', 503, '-3600', undefined],
    ['of another status is ignored', 500, '3600', undefined],
    ['of a redirect is ignored', 307, '3600', undefined],
  ])('failed deliveries: Retry-After %s', async (_, status, retryAfter, waitMs) => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    sink.respond(answer(status, { 'retry-after': retryAfter }))
    await newGroup(organisation, organisation.group)
    await expect.poll(() => listed(uid, organisation)).toMatchObject([{ state: 'FAILED' }])
    const [delivery = {}] = (await listed(uid, organisation)) as JsonObject[]
    if (waitMs === undefined) expect(waitOf(delivery)).toBeLessThan(60_000)
    else expect(waitOf(delivery)).toBe(waitMs)
  })

  test('failed deliveries are listed once, also while an earlier event holds back the cursor', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    sink.respond((received, response) => void (received === sink.received[0] || answer(500)(received, response)))
    const groups: string[] = []
    for (let number = 0; number < 3; number += 1) groups.push(await newGroup(organisation, organisation.group))
    await expect.poll(() => call('ListDeliveries', { uid, state: 'FAILED' }, organisation)).toMatchObject({ deliveries: [{}, {}] })
    const states = ((await listed(uid, organisation)) as JsonObject[]).map(({ subject, state }) => [subject, state])
    expect(states).toEqual([
      [groups[1], 'FAILED'],
      [groups[2], 'FAILED'],
      [groups[0], 'PENDING'],
    ])
    expect(await call('ListDeliveries', { uid, state: 'PENDING' }, organisation)).toMatchObject({ deliveries: [{ subject: groups[0] }] })
  })

  test('failed deliveries: a replay forgets no success that was counted before', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink, { ordered: true })
    const count = async (): Promise<unknown> => (await call('ListDeliveries', { uid, state: 'DELIVERED' }, organisation))['deliveredCount']
    await newGroup(organisation, organisation.group)
    await sink.until((received) => received.length === 1)
    for (let number = 0; number < 3; number += 1) {
      const before = sink.received.length
      await call('ReplayEvents', { uid, fromEventId: String(sink.received[0]?.headers['ce-id']) }, organisation)
      await sink.until((received) => received.length > before)
    }
    await expect
      .poll(() => {
        clock.advance(1_000)
        return count()
      })
      .toBe(String(sink.received.length))
  })

  test('failed deliveries: calls of :redeliver at the same time deliver an event once', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    const { store: used } = ground.server.running.engine
    const transact = used.transact.bind(used)
    onTestFinished(() => void (used.transact = transact))
    sink.respond(answer(503, { 'retry-after': '3000' }))
    const group = await newGroup(organisation, organisation.group)
    await expect.poll(() => listed(uid, organisation)).toMatchObject([{ state: 'FAILED' }])
    const [delivery = {}] = (await listed(uid, organisation)) as JsonObject[]
    sink.respond(answer(200))
    const isUpdate = ({ writes }: Transaction): boolean => writes.some(({ key }) => key.startsWith(`x/events/failed/${uid}:`) || key.startsWith('x/outbox/'))
    const held = Promise.withResolvers<void>()
    let calls = 0
    // The second call has read the event when the leader delivers it for the first one.
    used.transact = async (transaction, signal) => {
      if (isUpdate(transaction) && transaction.writes.length > 1 && ++calls === 2) await held.promise
      return transact(transaction, signal)
    }
    const both = [1, 2].map(() => ground.call('RedeliverEvents', { uid, eventId: String(delivery['eventId']) }, organisation))
    await expect.poll(() => listed(uid, organisation)).toEqual([])
    held.resolve()
    await Promise.allSettled(both)
    clock.advance(hourMs)
    await newGroup(organisation, organisation.group)
    await sink.until((received) => received.length >= 3)
    await expect.poll(() => listed(uid, organisation)).toEqual([])
    expect(sink.about(group)).toHaveLength(2)
  })

  test('dead letters contain an event that failed for three days, which :redeliver delivers although the event has expired', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    sink.respond((received, response) => answer(sink.about(first).includes(received) ? 500 : 200)(received, response))
    let first = ''
    first = await newGroup(organisation, organisation.group)
    await sink.until((received) => received.length >= 1)
    let dead: JsonObject[] = []
    while (dead.length === 0) {
      clock.advance(2 * hourMs)
      await new Promise((resolve) => setTimeout(resolve, 20))
      dead = (await call('ListDeliveries', { uid, state: 'DEAD' }, organisation))['deliveries'] as JsonObject[]
    }
    expect(dead[0]).toMatchObject({ subject: first, state: 'DEAD', lastError: 'the sink answered 500' })
    sink.respond(answer(200))
    const tried = sink.about(first).length
    await call('RedeliverEvents', { uid }, organisation)
    await sink.until(() => sink.about(first).length > tried)
  })

  test('dead letters are kept later for an event that the store cannot read for a moment', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    sink.respond(answer(500))
    const used = await ground.server.running.engine.services.eventLog.acquire(AbortSignal.timeout(30_000))
    onTestFinished(() => used.release())
    const read = used.log.read.bind(used.log)
    let isLast = false
    let reads = 0
    // Of the last attempt, the first read is for the request, and the second for the dead letter.
    used.log.read = (entry, signal) => (isLast && ++reads === 2 ? unavailable() : read(entry, signal))
    onTestFinished(() => void (used.log.read = read))
    const first = await newGroup(organisation, organisation.group)
    await expect.poll(() => listed(uid, organisation)).toMatchObject([{ subject: first, attempts: 1 }])
    clock.advance(69 * hourMs)
    await expect.poll(() => listed(uid, organisation)).toMatchObject([{ attempts: 2 }])
    isLast = true
    clock.advance(2.6 * hourMs)
    await expect.poll(() => reads).toBe(2)
    clock.advance(2_000)
    await expect.poll(() => listed(uid, organisation)).toMatchObject([{ subject: first, state: 'DEAD' }])
  })

  test('dead letters are written later if the store is unavailable for a moment, and the event is not sent in between', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    sink.respond(answer(500))
    const used = ground.server.running.engine.services.store
    const transact = used.transact.bind(used)
    const isOfDelivery = ({ key }: Write): boolean => key.startsWith(`x/events/failed/${uid}:`)
    let isAway = false
    let refused = 0
    used.transact = (transaction, signal) => {
      if (!isAway || !transaction.writes.some(isOfDelivery)) return transact(transaction, signal)
      refused += 1
      return unavailable()
    }
    onTestFinished(() => void (used.transact = transact))
    const first = await newGroup(organisation, organisation.group)
    await expect.poll(() => listed(uid, organisation)).toMatchObject([{ subject: first, attempts: 1 }])
    clock.advance(69 * hourMs)
    await expect.poll(() => listed(uid, organisation)).toMatchObject([{ attempts: 2 }])
    isAway = true
    clock.advance(2.6 * hourMs)
    await expect.poll(() => refused).toBe(1)
    const sent = sink.received.length
    await new Promise((resolve) => setTimeout(resolve, 200))
    expect(sink.received).toHaveLength(sent)
    expect(await listed(uid, organisation)).toMatchObject([{ attempts: 2 }])
    isAway = false
    clock.advance(2_000)
    await expect.poll(() => listed(uid, organisation)).toMatchObject([{ subject: first, state: 'DEAD', attempts: 3 }])
  })

  /** Removes events of this age from the store and the log, as the leader does in time. */
  const expireEvents = async (): Promise<void> => {
    const { services, store: used } = ground.server.running.engine
    await new OutboxExpirer(used, outboxRetention).expireOld(clock.now(), AbortSignal.timeout(30_000))
    services.eventLog.close()
  }

  // docs/spec/events.md#delivery
  test.each([
    ['an event', {}],
    ['an event of an ordered subscription', { ordered: true }],
  ])('dead letters contain %s whose next attempt would come after it expires', async (_what, more) => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink, more)
    sink.respond(answer(503, { 'retry-after': '3600' }))
    const first = await newGroup(organisation, organisation.group)
    await sink.until((received) => received.length >= 1)
    await untilShown(uid, organisation, ({ lastError }) => lastError !== '')
    clock.advance(71.3 * hourMs)
    await sink.until((received) => received.length >= 2)
    clock.advance(0.3 * hourMs)
    await expect.poll(() => listed(uid, organisation)).toMatchObject([{ subject: first, state: 'DEAD' }])
    clock.advance(hourMs)
    await expireEvents()
    sink.respond(answer(200))
    const tried = sink.received.length
    await call('RedeliverEvents', { uid }, organisation)
    await sink.until(() => sink.about(first).length > tried)
  })

  // docs/spec/events.md#delivery
  test('dead letters contain an event that expires before it was tried for three days', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    await call('PauseSubscription', { uid }, organisation)
    const first = await newGroup(organisation, organisation.group)
    clock.advance(60 * hourMs)
    sink.respond(answer(500))
    await call('ResumeSubscription', { uid }, organisation)
    await expect.poll(() => listed(uid, organisation)).toMatchObject([{ subject: first, state: 'FAILED' }])
    clock.advance(11.6 * hourMs)
    await expect.poll(() => listed(uid, organisation)).toMatchObject([{ subject: first, state: 'DEAD' }])
  })

  /** Stores dead letters of about 30,000 bytes each, as of four days ago. Returns the subjects of their events. */
  const plantDead = async (uid: string, sample: string, count: number): Promise<string[]> => {
    const [stored] = await new EventGround(ground.server).stored({ type: 'api.iam.group.created.v1', subject: sample })
    if (stored === undefined) throw new Error('no event')
    const body = toBinary(GroupSchema, create(GroupSchema, { uid: sample, description: 'x'.repeat(30_000) }))
    const subjects = Array.from({ length: count }, (_, at) => `${sample}/${at.toString(16).padStart(16, '0')}`)
    for (const subject of subjects) {
      const id = randomUUID()
      const event = toBinary(OutboxEventSchema, { ...stored, id, subject, body })
      const value = toBinary(FailedDeliverySchema, create(FailedDeliverySchema, { dead: true, event, attempts: 9 }))
      const key = `x/events/failed/${uid}:${outboxKey(clock.now() - 96 * hourMs, id)}`
      await ground.server.running.engine.store.transact({ guards: [], writes: [{ kind: 'put', key, value }] }, AbortSignal.timeout(30_000))
    }
    return subjects
  }

  // docs/spec/events.md#delivery
  test('dead letters are all delivered by one :redeliver, however many and large they are', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const uid = await subscribe(organisation, sink)
    const first = await newGroup(organisation, organisation.group)
    await sink.until(() => sink.about(first).length > 0)
    const subjects = await plantDead(uid, first, 150)
    await call('RedeliverEvents', { uid }, organisation)
    await sink.until(() => subjects.every((subject) => sink.about(subject).length > 0))
    await expect.poll(() => listed(uid, organisation)).toEqual([])
  })

  // docs/spec/limits.md#organisation-limits
  test('dead letters beyond the limit of the organisation are not kept, until others are gone', async () => {
    const [organisation, sink] = [await makeOrganisation(ground.server), await newSink()]
    const token = await ground.server.operatorToken()
    ok(await ground.server.rest.call('SetGroupLimits', { uid: organisation.group, resourceLimits: { dead_letter_mib: '1' } }, { token }))
    const [full, uid] = [await subscribe(organisation, sink), await subscribe(organisation, sink)]
    const first = await newGroup(organisation, organisation.group)
    await sink.until(() => sink.about(first).length >= 2)
    await plantDead(full, first, 35)
    // The leader reads what failed after a change of the subscription.
    await call('UpdateSubscription', { subscription: { uid: full, types: ['dev.taproot.api.iam.roles.'] } }, organisation)
    const { services } = ground.server.running.engine
    await countUse(services.store, AbortSignal.timeout(30_000))
    expect((await call('GetGroupUsage', { uid: organisation.group }, organisation))['usage']).toMatchObject({ dead_letter_mib: '2' })
    const giveUp = async (): Promise<void> => {
      sink.respond(answer(500))
      const group = await newGroup(organisation, organisation.group)
      await expect.poll(() => listed(uid, organisation)).toMatchObject([{ subject: group, state: 'FAILED' }])
      clock.advance(71.6 * hourMs)
    }
    await giveUp()
    await expect.poll(() => listed(uid, organisation)).toEqual([])
    sink.respond(answer(200))
    await call('RedeliverEvents', { uid: full }, organisation)
    await expect.poll(() => listed(full, organisation)).toEqual([])
    await giveUp()
    await expect.poll(() => listed(uid, organisation)).toMatchObject([{ state: 'DEAD' }])
  })
})
