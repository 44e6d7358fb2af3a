import { randomInt } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { decodeJwt } from 'jose'
import { expect, test } from 'vitest'
import { localIssuer, sign, testKey } from '../../auth/parts.ts'
import { ok } from '../../support/test-server.ts'
import { shareEtcd } from '../../support/parts/etcd.ts'
import { campaignLength, timeoutUnlessSoaking } from '../../soak/factor.ts'
import { differences, Writer, type WriterTarget } from './harness/acknowledged.ts'
import { makeApiHomes, startApi, type ApiHome } from './harness/api-home.ts'
import { makeDevHome, readToken, startDev, type DevHome } from './harness/dev-home.ts'
import { startProcess, type TaprootProcess } from './harness/taproot-process.ts'

/** Number of kills. */
const kills = campaignLength({ short: 5, full: 20 })
const firstStarts = campaignLength({ short: 2, full: 5 })
const pairKills = campaignLength({ short: 2, full: 6 })
const writersPerProcess = 4
/** Longest time of writing before a kill, in milliseconds. */
const writingMs = 400

async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 20_000
  while (!condition()) {
    if (performance.now() > deadline) throw new Error('waited too long')
    await delay(5)
  }
}

function totalOf(writers: readonly Writer[]): number {
  return writers.reduce((sum, writer) => sum + writer.acknowledgedWrites, 0)
}

async function demoOf(home: DevHome): Promise<WriterTarget & { owner: string }> {
  const token = await readToken(home)
  const owner = decodeJwt(token).sub ?? ''
  return { apiClient: home.rest, token, owner, group: owner.split('/')[0] ?? '' }
}

test(`taproot dev, killed ${kills} times during writes and starts, keeps every acknowledged change`, { timeout: timeoutUnlessSoaking(300_000) }, async () => {
  const home = await makeDevHome()
  const writers = Array.from({ length: writersPerProcess }, () => new Writer())
  let group: string | undefined
  for (let round = 0; round <= kills; round += 1) {
    if (round % 5 === 4) await killWhileStarting(home)
    const running = await startDev(home)
    const target = await demoOf(home)
    expect(target.group).toBe((group ??= target.group))
    expect(await differences(target, writers, [target.owner])).toEqual([])
    if (round === kills) continue
    const before = totalOf(writers)
    const writing = writers.map((writer) => writer.write(target, new AbortController().signal))
    await until(() => totalOf(writers) >= before + 10)
    await delay(randomInt(writingMs))
    await running.end('SIGKILL')
    // Each writer ends with the write that got no answer.
    await Promise.all(writing)
  }
})

test('taproot dev, killed at any moment of its first start, can start again', { timeout: timeoutUnlessSoaking(300_000) }, async () => {
  for (let round = 0; round < firstStarts; round += 1) {
    const home = await makeDevHome()
    await killWhileStarting(home)
    await killWhileStarting(home)
    const running = await startDev(home)
    const { apiClient, token } = await demoOf(home)
    expect(ok(await apiClient.call('ListGroups', {}, { token }))).toMatchObject({ groups: [{ name: 'demo' }], totalCount: '1' })
    expect(ok(await apiClient.call('ListIdentities', {}, { token }))).toMatchObject({ totalCount: '1' })
    await running.end('SIGKILL')
  }
})

async function killWhileStarting(home: DevHome): Promise<void> {
  const starting = startProcess({ args: ['dev'], env: home.env, cwd: home.cwd })
  await delay(randomInt(1_000))
  await starting.end('SIGKILL')
}

/** Starts two `api` processes on one store, and returns a token of an operator, from an external issuer, that both accept. */
async function startPair(): Promise<{ homes: readonly ApiHome[]; processes: TaprootProcess[]; token: string }> {
  const etcd = await shareEtcd()
  const key = await testKey()
  const { issuer } = await localIssuer([key])
  const env = {
    TAPROOT_ISSUERS: JSON.stringify([{ issuer, allowPrivate: true }]),
    TAPROOT_BOOTSTRAP_OPERATORS: JSON.stringify([{ issuer, subject: 'admin' }]),
    TAPROOT_LOG_LEVEL: 'error',
  }
  const { homes, baseUrl } = await makeApiHomes(2, { etcd, env })
  const processes = await Promise.all(homes.map(startApi))
  const nowSeconds = Math.floor(Date.now() / 1000)
  const external = await sign(key, { iss: issuer, sub: 'admin', aud: baseUrl, iat: nowSeconds, exp: nowSeconds + 3600 })
  const [first] = homes
  if (first === undefined) throw new Error('two homes')
  const { token } = ok(await first.rest.call('SecurityTokenService/Exchange', {}, { token: external }))
  return { homes, processes, token: String(token) }
}

test(
  'taproot api on etcd: one of two writing processes is killed; the other continues with every acknowledged change of both',
  { timeout: timeoutUnlessSoaking(300_000) },
  async () => {
    const { homes, processes, token } = await startPair()
    const [first, second] = homes
    if (first === undefined || second === undefined) throw new Error('two homes')
    const group = String(ok(await first.rest.call('CreateGroup', { group: { name: 'shared' } }, { token }))['uid'])
    // The operator's person owns the group that they created.
    const others = [decodeJwt(token).sub ?? '']
    const sides = [first, second].map((home, index) => ({
      home,
      index,
      target: { apiClient: home.rest, token, group },
      writers: Array.from({ length: writersPerProcess }, () => new Writer()),
    }))
    const all = sides.flatMap(({ writers }) => writers)
    for (let round = 0; round < pairKills; round += 1) {
      const [dying, living] = round % 2 === 0 ? sides : sides.toReversed()
      if (dying === undefined || living === undefined) throw new Error('two sides')
      const enough = new AbortController()
      const before = totalOf(all)
      const cut = dying.writers.map((writer) => writer.write(dying.target, enough.signal))
      const uncut = living.writers.map((writer) => writer.write(living.target, enough.signal))
      await until(() => totalOf(all) > before + 10)
      await delay(randomInt(writingMs))
      await processes[dying.index]?.end('SIGKILL')
      await Promise.all(cut)
      const atKill = totalOf(living.writers)
      await until(() => totalOf(living.writers) > atKill + 5)
      enough.abort()
      await Promise.all(uncut)
      // The remaining process shows the changes that the killed one acknowledged.
      expect(await differences(living.target, all, others)).toEqual([])
      processes[dying.index] = await startApi(dying.home)
      expect(await differences(dying.target, all, others)).toEqual([])
    }
  },
)
