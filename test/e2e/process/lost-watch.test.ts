import { randomBytes } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { makeOrganisation, ok, startTestServer, type TestServer } from '../../support/test-server.ts'
import { startEtcd, type EtcdCluster } from '../../support/parts/etcd.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { startTcpProxy, type TcpProxy } from '../../support/parts/tcp-proxy.ts'
import { readiness, until } from './harness/ops.ts'

/**
 * Time in which a replica notices a silent link. A watch that was quiet for 3 s asks the cluster, which has 5 s to answer. The keepalive of gRPC takes 9 s at
 * most. The rest is for a busy machine.
 */
const noticedMs = 9_000 + 4_000
/** Maximum time until it recovers after the link does. */
const healedMs = 10_000

/** Two replicas: the connection of one to etcd can fail, that of the other can not. */
interface Scene {
  readonly etcd: EtcdCluster
  readonly server: TestServer
  readonly other: TestServer
  readonly group: string
  /** Applies the same fault to the connections to all members. */
  links(fault: Exclude<keyof TcpProxy, 'port' | 'close' | 'connections'>): void
  /** The other replica changes the group. */
  change(description: string): Promise<void>
}

async function setScene({ members }: { members: number }): Promise<Scene> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-watch-'))
  onTestFinished(() => rm(directory, { recursive: true, force: true }))
  const keyFile = join(directory, 'encryption.key')
  await writeFile(keyFile, randomBytes(32).toString('hex'))
  const env = { TAPROOT_ENCRYPTION_KEY_FILE: keyFile }
  const etcd = await startEtcd({ members })
  onTestFinished(() => etcd.stop())
  const proxies = await Promise.all(etcd.members.map(({ port }) => startTcpProxy(port)))
  onTestFinished(async () => void (await Promise.all(proxies.map((proxy) => proxy.close()))))
  const endpoints = proxies.map(({ port }) => `http://127.0.0.1:${port}`).join(',')
  const server = await startTestServer({ store: 'etcd', etcd, env: { ...env, TAPROOT_STORE_ETCD_ENDPOINTS: endpoints } })
  onTestFinished(() => server.stop())
  const other = await startTestServer({ store: 'etcd', etcd, env })
  onTestFinished(() => other.stop())
  const { group } = await makeOrganisation(server)
  return {
    etcd,
    server,
    other,
    group,
    links: (fault) => proxies.forEach((proxy) => proxy[fault]()),
    async change(description) {
      const token = await other.operatorToken()
      let failure = ''
      await until(async () => {
        const { code, message } = await other.rest.call('UpdateGroup', { group: { uid: group, description } }, { token })
        failure = `${code}: ${message}`
        return code === 0
      }, 60_000).catch(() => Promise.reject(new Error(failure)))
    },
  }
}

async function isReady(server: TestServer): Promise<boolean> {
  return (await readiness(server)).status === 200
}

/** Expects that it is not ready in time, and answers no read, over either transport. */
async function expectLost({ server, group }: Scene, withinMs: number): Promise<void> {
  await until(async () => !(await isReady(server)), withinMs)
  expect(await readiness(server)).toEqual({ status: 503, text: 'not ready: snapshot\n' })
  const token = await server.operatorToken()
  for (const apiClient of [server.rest, server.grpc]) {
    const startedAt = performance.now()
    for (const read of [await apiClient.call('GetGroup', { uid: group }, { token }), await apiClient.call('ListGroups', {}, { token })]) {
      expect(read).toMatchObject({ code: 14, details: { ErrorInfo: { reason: 'UNAVAILABLE' }, RetryInfo: {} } })
    }
    // Refused at once, without waiting.
    expect(performance.now() - startedAt).toBeLessThan(3_000)
  }
}

/** Expects that it is ready in time, and that its first answer shows the last acknowledged change. */
async function expectHealed(scene: Scene, description: string, withinMs = healedMs): Promise<void> {
  const { server, group } = scene
  const token = await server.operatorToken()
  await until(() => isReady(server), withinMs)
  expect(ok(await server.rest.call('GetGroup', { uid: group }, { token }))['description']).toBe(description)
  ok(await server.grpc.call('UpdateGroup', { group: { uid: group, description: 'goes on' } }, { token }))
  await scene.change('watched again')
  expect(ok(await server.grpc.call('GetGroup', { uid: group }, { token }))['description']).toBe('watched again')
}

function loads({ logs }: TestServer): number {
  return logs.filter(({ message }) => message === 'loaded').length
}

describeWithPart('etcd', 'a replica without its watch is not ready, answers no read, and recovers by itself', () => {
  test('a replica without its watch catches up after a cut connection', async () => {
    const scene = await setScene({ members: 1 })
    scene.links('cut')
    await expectLost(scene, 2_000)
    await scene.change('while cut')
    scene.links('resume')
    await expectHealed(scene, 'while cut')
    expect(loads(scene.server)).toBe(1)
  })

  test('a replica without its watch catches up after its link stopped delivering, noticed within the time limit; reads in between are late, never stale', async () => {
    const scene = await setScene({ members: 1 })
    const { server, group } = scene
    const token = await server.operatorToken()
    scene.links('stall')
    const startedAt = performance.now()
    await scene.change('while silent')
    while (await isReady(server)) {
      expect(await server.rest.call('GetGroup', { uid: group }, { token })).toMatchObject({ code: 14 })
      expect(performance.now() - startedAt).toBeLessThan(noticedMs + 6_000)
    }
    await expectLost(scene, noticedMs)
    scene.links('resume')
    await expectHealed(scene, 'while silent')
    expect(loads(server)).toBe(1)
  })

  test('a replica without its watch catches up in time after only its own link stopped delivering, without a read', async () => {
    const scene = await setScene({ members: 1 })
    scene.links('stall')
    await until(async () => !(await isReady(scene.server)), noticedMs)
    scene.links('resume')
    await until(() => isReady(scene.server), healedMs)
  })

  test('a replica without its watch reloads after changes that it missed were compacted', async () => {
    const scene = await setScene({ members: 1 })
    scene.links('stall')
    for (const description of ['one', 'two', 'three']) await scene.change(description)
    const { header } = (await scene.etcd.members[0]?.call('maintenance/status')) as { header: { revision: string } } // a cast of etcd's answer
    await scene.etcd.members[0]?.call('kv/compaction', { revision: header.revision, physical: true })
    await expectLost(scene, noticedMs)
    scene.links('resume')
    await expectHealed(scene, 'three')
    expect(loads(scene.server)).toBe(2)
  })

  test('a replica without its watch catches up after etcd was killed and restarted', async () => {
    const scene = await setScene({ members: 1 })
    await scene.change('before')
    await scene.etcd.members[0]?.kill()
    await expectLost(scene, 2_000)
    await scene.etcd.members[0]?.restart()
    await expectHealed(scene, 'before')
    expect(loads(scene.server)).toBe(1)
  })

  test('a replica without its watch catches up after etcd ended the watch because its members lost their leader', async () => {
    const scene = await setScene({ members: 3 })
    await scene.change('before')
    const [, second, third] = scene.etcd.members
    await Promise.all([second?.kill(), third?.kill()])
    await expectLost(scene, 20_000)
    await Promise.all([second?.restart(), third?.restart()])
    await expectHealed(scene, 'before', 30_000)
    expect(loads(scene.server)).toBe(1)
  })

  test('a replica without its watch continues while every member is replaced, one after the other', async () => {
    const scene = await setScene({ members: 3 })
    for (const index of [0, 1, 2]) {
      await scene.etcd.replace(index)
      await scene.change(`without ${index}`)
      await until(() => isReady(scene.server), 30_000)
      const token = await scene.server.operatorToken()
      expect(ok(await scene.server.rest.call('GetGroup', { uid: scene.group }, { token }))['description']).toBe(`without ${index}`)
    }
    await expectHealed(scene, 'without 2')
  })
})
