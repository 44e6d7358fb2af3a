import type { JsonObject } from '@bufbuild/protobuf'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { createSafeFetch } from '../../src/auth/safe-fetch.ts'
import { createNetworks } from '../../src/base/client-address.ts'
import { sendEvent } from '../../src/events/index.ts'
import { TestClock } from '../conformance/spec/test-clock.ts'
import { campaignLength, timeoutUnlessSoaking } from '../soak/factor.ts'
import { describeOnChosenStore } from '../support/parts/require-part.ts'
import { freshName, makeOrganisation, ok, startTestServer } from '../support/test-server.ts'
import { badSinks, startCountingSink, startNameServer, type BadSink, type CountingSink } from './bad-sinks.ts'
import { EventGround } from './event-ground.ts'
import { sinkAuthority } from './sink.ts'

const subscriptions = 20
const events = campaignLength({ short: 120, full: 10_000 })
/** Number of concurrent changes. */
const writers = 8
const groupEvents = 'dev.taproot.api.iam.group.'
const hourMs = 3_600_000
/** The clock advances faster than time, because attempts have growing intervals. */
const clockStep = { everyMs: 50, ms: 1_000 }
/** Maximum bytes read of an answer: the client reads little of it, plus the buffers of a connection. */
const bytesOfAnAnswer = 16 * 2 ** 20

test('a sink that does not answer in time is a failed attempt', async () => {
  const names = new Map<string, string>()
  const nameServer = await startNameServer(names)
  const sink = await startCountingSink(
    names,
    badSinks.find(({ what }) => what === 'never answers'),
  )
  const networks = createNetworks(['127.0.0.0/8'])
  const fetch = createSafeFetch({ timeoutMs: 2_000, lookup: nameServer.lookup, networks, extraCa: () => sinkAuthority.certificate })
  onTestFinished(async () => {
    nameServer.close()
    await Promise.all([sink.close(), fetch.close()])
  })
  const request = { headers: { 'content-type': 'application/json' }, body: Buffer.from('{}') }
  const outcome = await sendEvent(fetch, sink.url, { request, signal: new AbortController().signal })
  expect(outcome).toMatchObject({ kind: 'failed', status: 0, error: 'the sink did not answer in time' })
})

describeOnChosenStore('delivery to sinks that fail', (store) => {
  /** Starts a server whose sinks have their own names, and whose clock runs fast. */
  async function startGround() {
    const names = new Map<string, string>()
    const nameServer = await startNameServer(names)
    const folder = await mkdtemp(join(tmpdir(), 'taproot-test-'))
    const caFile = join(folder, 'sinks.pem')
    await writeFile(caFile, sinkAuthority.certificate)
    const clock = new TestClock()
    const env = { TAPROOT_EVENTS_NETWORKS: '["127.0.0.0/8"]', TAPROOT_EVENTS_CA_FILE: caFile, TAPROOT_RATE_LIMIT_ENABLED: 'false' }
    // A busy machine may receive an answer late. The event would be delivered again, as after every answer that is lost.
    const sinks = { lookup: nameServer.lookup, timeoutMs: 600_000 }
    const server = await startTestServer({ store, clock, env, sinks })
    const timer = setInterval(() => clock.advance(clockStep.ms), clockStep.everyMs)
    onTestFinished(async () => {
      clearInterval(timer)
      await server.stop()
      nameServer.close()
      await rm(folder, { recursive: true, force: true })
    })
    const organisation = await makeOrganisation(server)
    const call = async (rpc: string, request: JsonObject): Promise<JsonObject> =>
      ok(await server.rest.call(rpc, request, { token: await server.tokenFor(organisation.owner) }))
    return { server, clock, names, group: organisation.group, call }
  }
  type Ground = Awaited<ReturnType<typeof startGround>>

  async function subscribe({ names, group, call }: Ground, more: JsonObject = {}, bad?: BadSink) {
    const sink = await startCountingSink(names, bad)
    onTestFinished(() => sink.close())
    const uid = String((await call('CreateSubscription', { parent: group, subscription: { sink: sink.url, types: [groupEvents], ...more } }))['uid'])
    return { sink, uid, bad }
  }

  /** Changes groups until there are `count` more events. */
  async function makeEvents({ call, group }: Ground, count: number): Promise<void> {
    let left = count
    const write = async (): Promise<void> => {
      const uid = String((await call('CreateGroup', { parent: group, group: { name: freshName('team') } }))['uid'])
      for (left -= 1; left > 0; left -= 1) await call('UpdateGroup', { group: { uid, description: `change ${left}` } })
    }
    await Promise.all(Array.from({ length: writers }, write))
  }

  /** The ids of the stored events that the subscriptions want. */
  async function wanted({ server, group }: Ground): Promise<Set<string>> {
    const all = await new EventGround(server).all()
    return new Set(all.filter((event) => event.type.startsWith(groupEvents) && event.group.startsWith(`${group}/`)).map(({ id }) => id))
  }

  async function untilAccepted(sinks: readonly CountingSink[], ids: ReadonlySet<string>): Promise<void> {
    while (!sinks.every(({ accepted }) => accepted.size >= ids.size)) await delay(20)
    for (const { accepted } of sinks) expect(new Set(accepted.keys())).toEqual(ids)
  }

  test(
    `${events} events and ${subscriptions} subscriptions: each event arrives once, at failing sinks after they recover`,
    { timeout: timeoutUnlessSoaking(3_600_000) },
    async () => {
      const ground = await startGround()
      const failing = await Promise.all(badSinks.map((bad) => subscribe(ground, {}, bad)))
      const other = [{ ordered: true }, { signing: 'STANDARD_WEBHOOKS' }]
      const good = await Promise.all(Array.from({ length: subscriptions - badSinks.length }, (_, at) => subscribe(ground, other[at])))
      for (const { sink } of failing) sink.elsewhere = good[0]?.sink.url ?? ''

      await makeEvents(ground, events / 2)
      // While the others fail.
      await untilAccepted(
        good.map(({ sink }) => sink),
        await wanted(ground),
      )
      for (const { bad, uid, sink } of failing) {
        if (bad?.lastError !== undefined) await expect.poll(async () => (await ground.call('GetSubscription', { uid }))['lastError'] ?? '').toBe(bad.lastError)
        expect(sink.sentBytes).toBeLessThanOrEqual(sink.requests * bytesOfAnAnswer)
      }

      for (const { sink } of failing) sink.recover()
      for (const { bad, uid } of failing) if (bad?.what === 'answers 410') await ground.call('ResumeSubscription', { uid })
      ground.clock.advance(2 * hourMs)
      await makeEvents(ground, events / 2)
      const all = [...failing, ...good]
      await untilAccepted(
        all.map(({ sink }) => sink),
        await wanted(ground),
      )
      for (const { sink, bad } of all) {
        const repeated = [...sink.accepted].filter(([, times]) => times > 1)
        expect(repeated, bad?.what).toEqual([])
      }
    },
  )
})
