import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { randomBytes } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { signingKeySchedule } from '../../../src/auth/keys/signing-keys.ts'
import { outboxKey, outboxPrefix } from '../../../src/engine/log/outbox-keys.ts'
import { StoreError } from '../../../src/store/store.ts'
import { makeOrganisation, ok, startTestServer, type TestServer } from '../../support/test-server.ts'
import { startEtcd, type EtcdCluster } from '../../support/parts/etcd.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { put, soon } from '../../store/store-harness.ts'
import { metricOf, readiness, until } from './harness/ops.ts'

const quotaBytes = 16 * 1024 * 1024
const day = 24 * 3_600_000

/** Fills etcd with old events until it raises its alarm. The events are removed as soon as a leader can. */
async function fillWithOldEvents({ running }: TestServer, nowMs: number): Promise<void> {
  for (let count = 0; ; count += 1) {
    try {
      const write = put(outboxKey(nowMs - 80 * 3_600_000 + count, randomBytes(16).toString('hex')), new Uint8Array(400_000))
      await running.engine.store.transact({ guards: [], writes: [write] }, soon())
    } catch (error) {
      if (error instanceof StoreError && error.kind === 'exhausted') return
      throw error
    }
  }
}

async function oldEvents({ running }: TestServer, nowMs: number): Promise<number> {
  const { entries } = await running.engine.store.range({ prefix: outboxPrefix, before: outboxKey(nowMs - 73 * 3_600_000, ''), limit: 1 }, soon())
  return entries.length
}

/** Makes room as docs/operations.md describes. */
async function makeRoom(etcd: EtcdCluster): Promise<void> {
  for (const member of etcd.members) {
    const { header } = (await member.call('maintenance/status')) as { header: { revision: string } } // a cast of etcd's answer
    if (member === etcd.members[0]) await member.call('kv/compaction', { revision: header.revision, physical: true })
    await member.call('maintenance/defragment')
  }
  const { alarms = [] } = (await etcd.members[0]?.call('maintenance/alarm', { action: 'GET' })) as { alarms?: { memberID: string }[] } // a cast of etcd's answer
  for (const { memberID } of alarms) await etcd.members[0]?.call('maintenance/alarm', { action: 'DEACTIVATE', alarm: 'NOSPACE', memberID })
}

async function sharedKey(): Promise<Record<string, string>> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-quota-'))
  onTestFinished(() => rm(directory, { recursive: true }))
  const keyFile = join(directory, 'encryption.key')
  await writeFile(keyFile, randomBytes(32).toString('hex'))
  return { TAPROOT_ENCRYPTION_KEY_FILE: keyFile }
}

async function started(options: Parameters<typeof startTestServer>[0]): Promise<TestServer> {
  const server = await startTestServer(options)
  let stopped = false
  const stop = server.stop.bind(server)
  server.stop = async () => {
    if (!stopped) await stop()
    stopped = true
  }
  onTestFinished(() => server.stop())
  return server
}

const full = { code: 8, details: { ErrorInfo: { reason: 'STORE_FULL' }, RetryInfo: { retryDelay: expect.stringMatching(/^[1-9]/) as unknown } } }

describeWithPart('etcd', 'an etcd with a used-up quota', () => {
  test('an etcd with a used-up quota refuses writes with STORE_FULL over both transports, serves reads, and recovers by itself', async () => {
    const etcd = await startEtcd({ flags: [`--quota-backend-bytes=${quotaBytes}`] })
    onTestFinished(() => etcd.stop())
    const clock = new TestClock()
    const server = await started({ store: 'etcd', etcd, clock })
    const { group, token } = await makeOrganisation(server)
    const child = String(ok(await server.rest.call('CreateGroup', { parent: group, group: { name: 'child' } }, { token }))['uid'])
    await until(async () => (await metricOf(server, 'taproot_leader')) === 1)
    await fillWithOldEvents(server, clock.now())

    for (const apiClient of [server.rest, server.grpc]) {
      const writes = [
        await apiClient.call('CreateGroup', { parent: group, group: { name: 'more' } }, { token, idempotencyKey: `key-${apiClient.name}` }),
        await apiClient.call('UpdateGroup', { group: { uid: child, description: 'changed' } }, { token }),
        await apiClient.call('DeleteGroup', { uid: child }, { token }),
        await apiClient.call(
          'CreateIdentity',
          { parent: group, identity: { name: 'n', claimMatch: { issuer: 'https://i.example', subject: 's' } } },
          { token },
        ),
      ]
      for (const write of writes) expect(write).toMatchObject(full)
      expect(ok(await apiClient.call('ListGroups', { uidp: { descendantsOf: group } }, { token }))).toMatchObject({
        totalCount: '1',
        groups: [{ uid: child }],
      })
      expect(ok(await apiClient.call('GetGroup', { uid: child }, { token }))).toMatchObject({ uid: child, description: '' })
      expect(ok(await apiClient.call('UpdateGroup', { group: { uid: child, description: 'changed' } }, { token, validateOnly: true }))).toMatchObject({
        uid: child,
      })
    }
    expect(await metricOf(server, 'taproot_store_duration_seconds_count\\{operation="transact",outcome="exhausted"\\}')).toBeGreaterThan(0)
    const refused = await server.rest.call('DeleteGroup', { uid: child }, { token })
    expect([refused.httpStatus, Number(refused.header('retry-after'))]).toEqual([429, 30])
    expect(await readiness(server)).toEqual({ status: 200, text: 'ok\n' })

    // Deletes of unwatched keys are allowed. The leader's expiry gives compaction something to free.
    clock.advance(11 * 60_000)
    await until(async () => (await oldEvents(server, clock.now())) === 0)
    await makeRoom(etcd)
    ok(await server.rest.call('UpdateGroup', { group: { uid: child, description: 'changed' } }, { token }))
    ok(await server.grpc.call('DeleteGroup', { uid: child }, { token }))
    expect(server.running.engine.cache.state.kind).toBe('live')
  })

  test('a full etcd lets a server start and read without a leader and with overdue keys, without busy loops, and old entries are removed', async () => {
    const etcd = await startEtcd({ flags: [`--quota-backend-bytes=${quotaBytes}`] })
    onTestFinished(() => etcd.stop())
    const env = await sharedKey()
    const clock = new TestClock()
    const first = await started({ store: 'etcd', etcd, env, clock })
    const { group, owner } = await makeOrganisation(first)
    await fillWithOldEvents(first, clock.now())
    await first.stop()

    // A new signing key is due, and can't be written.
    clock.advance(signingKeySchedule.rotateEveryMs + day)
    const server = await started({ store: 'etcd', etcd, env, clock })
    const token = await server.tokenFor(owner)
    expect(ok(await server.rest.call('GetGroup', { uid: group }, { token }))).toMatchObject({ uid: group })
    expect(await readiness(server)).toEqual({ status: 200, text: 'ok\n' })
    expect(await server.rest.call('CreateGroup', { parent: group, group: { name: 'more' } }, { token })).toMatchObject(full)
    const { signingKeys } = server.running.engine
    await until(async () => (await oldEvents(server, clock.now())) === 0)
    await delay(8_000)
    const failures = server.logs.filter(({ message }) => message === 'background work failed and is tried again')
    const byWork = Map.groupBy(failures, ({ fields }) => fields['work'])
    expect([...byWork.keys()].sort()).toEqual(['keys', 'leader', 'worker'])
    // 1, 2, 4, 8 s: few in any time.
    for (const lines of byWork.values()) expect(lines.length).toBeLessThanOrEqual(6)
    expect(signingKeys.all()).toHaveLength(1)

    await makeRoom(etcd)
    ok(await server.rest.call('CreateGroup', { parent: group, group: { name: 'more' } }, { token }))
    await until(async () => (await metricOf(server, 'taproot_leader')) === 1, 45_000)
    await until(() => signingKeys.all().length === 2, 45_000)
  })
})
