import { randomInt } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { decodeJwt } from 'jose'
import { expect, onTestFinished, test } from 'vitest'
import { localIssuer, sign, testKey } from '../../auth/parts.ts'
import { answer, sinkAuthority, startSink, type Sink } from '../../events/sink.ts'
import { campaignLength, timeoutUnlessSoaking } from '../../soak/factor.ts'
import { shareEtcd } from '../../support/parts/etcd.ts'
import { ok } from '../../support/test-server.ts'
import { makeApiHomes, startApi } from './harness/api-home.ts'
import { makeDevHome, readToken, startDev } from './harness/dev-home.ts'
import { freshDirectory, type TaprootProcess } from './harness/taproot-process.ts'
import type { ApiClient } from '../../support/api-clients.ts'

const kills = campaignLength({ short: 3, full: 50 })
/** Longest time of deliveries before a kill, in milliseconds. */
const deliveringMs = 300
const groupsPerRound = 10
/** A limit against hangs only: on a busy machine, each of the kills takes half a minute. */
const timeout = timeoutUnlessSoaking(3_600_000)
/** Maximum time in milliseconds until another process takes over the leadership. */
const takeOverMs = 15_000

async function eventSettings(): Promise<Record<string, string>> {
  const caFile = join(await freshDirectory(), 'sinks.pem')
  await writeFile(caFile, sinkAuthority.certificate)
  return { TAPROOT_EVENTS_NETWORKS: '["127.0.0.0/8","::1"]', TAPROOT_EVENTS_CA_FILE: caFile, TAPROOT_RATE_LIMIT_ENABLED: 'false' }
}

/** Starts a sink that refuses one request in five, and is slow now and then. */
async function unreliableSink(): Promise<Sink> {
  const sink = await startSink((received, response) => {
    const reply = (): void => answer(randomInt(5) === 0 ? 503 : 200)(received, response)
    if (randomInt(10) === 0) setTimeout(reply, 50)
    else reply()
  })
  onTestFinished(() => sink.close())
  return sink
}

/** Returns the subjects of the events that the sink received: it accepted them or may yet do so. */
function seenBy(sink: Sink): Set<string> {
  return new Set(sink.received.map(({ headers }) => String(headers['ce-subject'])))
}

interface Target {
  readonly client: ApiClient
  readonly token: string
  readonly parent: string
}

async function makeGroups({ client, token, parent }: Target, made: string[], name: string): Promise<void> {
  for (let number = 0; number < groupsPerRound; number += 1) {
    const reply = await client.call('CreateGroup', { parent, group: { name: `${name}-${number}` } }, { token })
    // A change without an answer may have happened. Only acknowledged changes must arrive.
    if (reply.code === 0) made.push(String(reply.body['uid']))
  }
}

async function subscribe({ client, token, parent }: Target, sink: Sink): Promise<void> {
  const subscription = { sink: sink.url, types: ['dev.taproot.api.iam.group.'] }
  ok(await client.call('CreateSubscription', { parent, subscription }, { token }))
}

/** Waits until the event of every acknowledged group arrived; refused ones are sent again. */
async function allArrive(sink: Sink, made: readonly string[]): Promise<void> {
  sink.respond(answer(200))
  const deadline = performance.now() + 60_000
  for (;;) {
    const seen = seenBy(sink)
    const missing = made.filter((uid) => !seen.has(uid))
    if (missing.length === 0) return
    if (performance.now() > deadline) expect(missing).toEqual([])
    await delay(20)
  }
}

test(`taproot dev: killed ${kills} times while it delivers, every event of an acknowledged change arrives`, { timeout }, async () => {
  const [home, sink, made] = [await makeDevHome(await eventSettings()), await unreliableSink(), [] as string[]]
  for (let round = 0; round <= kills; round += 1) {
    const running = await startDev(home)
    const token = await readToken(home)
    const target = { client: home.rest, token, parent: (decodeJwt(token).sub ?? '').split('/')[0] ?? '' }
    if (round === 0) await subscribe(target, sink)
    await makeGroups(target, made, `round-${round}`)
    if (round === kills) {
      await allArrive(sink, made)
      await running.end('SIGTERM')
      return
    }
    await delay(randomInt(deliveringMs))
    await running.end('SIGKILL')
  }
})

test(
  `taproot api on etcd: the leader is killed ${kills} times; the other process takes the deliveries over within ${takeOverMs / 1000} s, and no event is lost`,
  { timeout },
  async () => {
    const etcd = await shareEtcd()
    const key = await testKey()
    const { issuer } = await localIssuer([key])
    const env = {
      ...(await eventSettings()),
      TAPROOT_ISSUERS: JSON.stringify([{ issuer, allowPrivate: true }]),
      TAPROOT_BOOTSTRAP_OPERATORS: JSON.stringify([{ issuer, subject: 'admin' }]),
      TAPROOT_LOG_LEVEL: 'error',
    }
    const { homes, baseUrl } = await makeApiHomes(2, { etcd, env })
    const processes = await Promise.all(homes.map(startApi))
    const [first] = homes
    if (first === undefined) throw new Error('two homes')
    const nowSeconds = Math.floor(Date.now() / 1000)
    const external = await sign(key, { iss: issuer, sub: 'admin', aud: baseUrl, iat: nowSeconds, exp: nowSeconds + 3600 })
    const token = String(ok(await first.rest.call('SecurityTokenService/Exchange', {}, { token: external }))['token'])
    const parent = String(ok(await first.rest.call('CreateGroup', { group: { name: 'root' } }, { token }))['uid'])
    const [sink, made] = [await unreliableSink(), [] as string[]]
    await subscribe({ client: first.rest, token, parent }, sink)
    for (let round = 0; round < kills; round += 1) {
      const dying = await leaderOf(homes, processes)
      const living = homes[1 - dying]
      if (living === undefined) throw new Error('two homes')
      await makeGroups({ client: living.rest, token, parent }, made, `before-${round}`)
      await delay(randomInt(deliveringMs))
      await processes[dying]?.end('SIGKILL')
      const killedAt = performance.now()
      const received = sink.received.length
      await makeGroups({ client: living.rest, token, parent }, made, `after-${round}`)
      await sink.until((all) => all.length > received)
      expect(performance.now() - killedAt).toBeLessThan(takeOverMs)
      const home = homes[dying]
      if (home !== undefined) processes[dying] = await startApi(home)
    }
    await allArrive(sink, made)
  },
)

/** Returns the index of the leading process. */
async function leaderOf(homes: readonly { readonly opsPort: number }[], processes: readonly (TaprootProcess | undefined)[]): Promise<number> {
  for (;;) {
    for (const [index, { opsPort }] of homes.entries()) {
      if (processes[index] === undefined) continue
      const metrics = await (await fetch(`http://127.0.0.1:${opsPort}/metrics`)).text()
      if (/^taproot_leader 1$/m.test(metrics)) return index
    }
    await delay(20)
  }
}
