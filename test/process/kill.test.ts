import { randomBytes, randomInt } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { decodeJwt } from 'jose'
import { expect, onTestFinished, test } from 'vitest'
import { localIssuer, sign, testKey } from '../authn/parts.ts'
import { restDoor, type Door } from '../harness/doors.ts'
import { ok } from '../harness/test-server.ts'
import { startEtcd } from '../parts/etcd.ts'
import { freePorts } from '../parts/free-port.ts'
import { differences, Writer, type WriterTarget } from './acknowledged.ts'
import { makeDevHome, readToken, startDev, type DevHome } from './dev-home.ts'
import { freshDirectory, isReady, startProcess, type TaprootProcess } from './taproot-process.ts'

/** Issue: "kill -9 of `npm start` 20 times during writes loses nothing that was acknowledged". */
const kills = 20
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
  return { door: home.rest, token, owner, group: owner.split('/')[0] ?? '' }
}

test('taproot dev: killed 20 times while it writes, and while it starts, it has all that was acknowledged', { timeout: 240_000 }, async () => {
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
    await until(() => totalOf(writers) > before)
    await delay(randomInt(writingMs))
    await running.end('SIGKILL')
    // Each ends with the write that got no answer.
    await Promise.all(writing)
  }
  expect(totalOf(writers)).toBeGreaterThan(10 * kills)
})

async function killWhileStarting(home: DevHome): Promise<void> {
  const starting = startProcess({ args: ['dev'], env: home.env, cwd: home.cwd })
  await delay(randomInt(800))
  await starting.end('SIGKILL')
}

interface Replica {
  readonly door: Door
  readonly start: () => Promise<TaprootProcess>
}

/** Two processes of role `api` on one store, and a token that both accept, of an operator who signed in with a token of an issuer outside. */
async function startPair(): Promise<{ replicas: readonly [Replica, Replica]; processes: [TaprootProcess, TaprootProcess]; token: string }> {
  const etcd = await startEtcd()
  onTestFinished(() => etcd.stop())
  const key = await testKey()
  const { issuer } = await localIssuer([key])
  const cwd = await freshDirectory()
  await writeFile(join(cwd, 'key'), randomBytes(32))
  const ports = await freePorts(6)
  const baseUrl = `http://localhost:${ports[0]}`
  const replicaOf = (index: number): Replica => {
    const [apiPort = 0, opsPort = 0, registryPort = 0] = ports.slice(3 * index)
    const env = {
      TAPROOT_BASE_URL: baseUrl,
      TAPROOT_DATA_DIR: join(cwd, String(index)),
      TAPROOT_LISTEN: '127.0.0.1',
      TAPROOT_API_PORT: String(apiPort),
      TAPROOT_OPS_PORT: String(opsPort),
      TAPROOT_REGISTRY_PORT: String(registryPort),
      TAPROOT_REGISTRY_HOST: 'registry.example',
      TAPROOT_STORE_KIND: 'etcd',
      TAPROOT_STORE_ETCD_ENDPOINTS: etcd.endpoints.join(','),
      TAPROOT_ENCRYPTION_KEY_FILE: join(cwd, 'key'),
      TAPROOT_ISSUERS: JSON.stringify([{ issuer, allowPrivate: true }]),
      TAPROOT_BOOTSTRAP_OPERATORS: JSON.stringify([{ issuer, subject: 'admin' }]),
      TAPROOT_RATE_LIMIT_ENABLED: 'false',
      TAPROOT_LOG_LEVEL: 'error',
    }
    const start = async (): Promise<TaprootProcess> => {
      const started = startProcess({ args: ['api'], env, cwd })
      await started.until(() => isReady(opsPort))
      return started
    }
    return { door: restDoor(`http://127.0.0.1:${apiPort}`), start }
  }
  const replicas = [replicaOf(0), replicaOf(1)] as const
  const processes: [TaprootProcess, TaprootProcess] = await Promise.all([replicas[0].start(), replicas[1].start()])
  const nowSeconds = Math.floor(Date.now() / 1000)
  const external = await sign(key, { iss: issuer, sub: 'admin', aud: baseUrl, iat: nowSeconds, exp: nowSeconds + 3600 })
  const { token } = ok(await replicas[0].door.call('SecurityTokenService/Exchange', {}, { token: external }))
  return { replicas, processes, token: String(token) }
}

test(
  'taproot api on etcd: of two processes that write, one is killed; the other goes on and has all that both acknowledged',
  { timeout: 240_000 },
  async () => {
    const { replicas, processes, token } = await startPair()
    const group = String(ok(await replicas[0].door.call('CreateGroup', { group: { name: 'shared' } }, { token }))['uid'])
    // The operator's person owns the group that they made.
    const others = [decodeJwt(token).sub ?? '']
    const targets = replicas.map(({ door }): WriterTarget => ({ door, token, group }))
    const writers = replicas.map(() => Array.from({ length: writersPerProcess }, () => new Writer()))
    for (let round = 0; round < 6; round += 1) {
      const [dies, lives] = round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const)
      const [dyingWriters = [], livingWriters = []] = [writers[dies], writers[lives]]
      const [dyingTarget, livingTarget] = [targets[dies], targets[lives]]
      if (dyingTarget === undefined || livingTarget === undefined) throw new Error('two targets')
      const enough = new AbortController()
      const start = totalOf(writers.flat())
      const cut = dyingWriters.map((writer) => writer.write(dyingTarget, enough.signal))
      const uncut = livingWriters.map((writer) => writer.write(livingTarget, enough.signal))
      await until(() => totalOf(writers.flat()) > start + 10)
      await delay(randomInt(writingMs))
      await processes[dies].end('SIGKILL')
      await Promise.all(cut)
      // Acknowledged by the one that is gone a moment ago: the other shows it now.
      const atKill = totalOf(livingWriters)
      await until(() => totalOf(livingWriters) > atKill + 5)
      enough.abort()
      await Promise.all(uncut)
      expect(await differences(livingTarget, writers.flat(), others)).toEqual([])
      processes[dies] = await replicas[dies].start()
      expect(await differences(dyingTarget, writers.flat(), others)).toEqual([])
    }
    expect(totalOf(writers.flat())).toBeGreaterThan(100)
  },
)
