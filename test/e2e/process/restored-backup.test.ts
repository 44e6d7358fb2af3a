import { randomBytes } from 'node:crypto'
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { signingKeySchedule } from '../../../src/auth/keys/signing-keys.ts'
import { createEtcdStore } from '../../../src/store/etcd/etcd-store.ts'
import type { Store } from '../../../src/store/store.ts'
import { makeMember, makeOrganisation, ok, startTestServer, type TestServer } from '../../support/test-server.ts'
import { startEtcd, type EtcdCluster, type EtcdMember } from '../../support/parts/etcd.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { startTcpProxy, type TcpProxy } from '../../support/parts/tcp-proxy.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { commit, silentLog, soon } from '../../store/store-harness.ts'
import { readiness, until } from './harness/ops.ts'

/** A replica whose connection to etcd can be cut, and another with a direct connection, started on demand. */
interface Scene {
  readonly etcd: EtcdCluster
  readonly member: EtcdMember
  readonly proxy: TcpProxy
  readonly server: TestServer
  readonly env: Readonly<Record<string, string>>
  readonly clock: TestClock
  readonly directory: string
  /** Changes the target of the proxy. */
  aim(port: number): void
}

async function setScene(): Promise<Scene> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-backup-'))
  onTestFinished(() => rm(directory, { recursive: true, force: true }))
  const keyFile = join(directory, 'encryption.key')
  await writeFile(keyFile, randomBytes(32).toString('hex'))
  const etcd = await startEtcd()
  onTestFinished(() => etcd.stop())
  const [member] = etcd.members
  if (member === undefined) throw new Error('one member')
  let target = member.port
  const proxy = await startTcpProxy(() => target)
  onTestFinished(() => proxy.close())
  const env = { TAPROOT_ENCRYPTION_KEY_FILE: keyFile }
  const clock = new TestClock()
  const server = await startTestServer({ store: 'etcd', etcd, clock, env: { ...env, TAPROOT_STORE_ETCD_ENDPOINTS: `http://127.0.0.1:${proxy.port}` } })
  onTestFinished(() => server.stop())
  return { etcd, member, proxy, server, env, clock, directory, aim: (port) => (target = port) }
}

function storeAt(endpoints: readonly string[]): Store {
  const store = createEtcdStore({ endpoints, prefix: '/taproot/', log: silentLog })
  onTestFinished(() => store.close())
  return store
}

async function revisionOf(endpoints: readonly string[]): Promise<number> {
  return (await storeAt(endpoints).range({ prefix: 'x/none', limit: 1 }, soon())).revision
}

/** Replaces the state of the store by that of the backup, while the replica can not reach it. */
type Restore = (scene: Scene, backup: string, seen: number) => Promise<void>

const putBack: Restore = async ({ member }, backup) => {
  await member.kill()
  await rm(member.dataDirectory, { recursive: true })
  await cp(backup, member.dataDirectory, { recursive: true })
  await member.restart()
}

/** Lets other replicas continue from the backup to a later revision than this replica had seen. */
async function overtake({ etcd, env, clock }: Scene, seen: number): Promise<void> {
  const other = await startTestServer({ store: 'etcd', etcd, env, clock })
  try {
    while ((await revisionOf(etcd.endpoints)) <= seen + 20) await makeOrganisation(other)
  } finally {
    await other.stop()
  }
}

/** Restores as into a new cluster: with another id. */
async function intoAnotherCluster(scene: Scene, backup: string): Promise<void> {
  await putBack(scene, backup, 0)
  const other = await startEtcd({ token: 'restored' })
  onTestFinished(() => other.stop())
  const [from, to] = [storeAt(scene.etcd.endpoints), storeAt(other.endpoints)]
  const { entries } = await from.range({ prefix: '', limit: 10_000 }, soon())
  for (const { key, value } of entries.filter(({ key }) => !key.startsWith('x/elect/'))) await commit(to, { kind: 'put', key, value })
  scene.aim(other.members[0]?.port ?? 0)
}

const restores: Readonly<Record<string, Restore>> = {
  'so that the revision went back': putBack,
  'and overtaken by others': async (scene, backup, seen) => {
    await putBack(scene, backup, seen)
    await overtake(scene, seen)
  },
  'into another cluster': intoAnotherCluster,
}

describeWithPart('etcd', 'a backup of etcd restored under a running replica', () => {
  test.each(Object.entries(restores))(
    '%s: the replica never answers from before the restore, and then serves the backup, rights and keys included',
    async (_, restore) => {
      const scene = await setScene()
      const { server, member, proxy, clock, etcd } = scene
      const { group, token } = await makeOrganisation(server)
      const make = async (name: string): Promise<string> =>
        String(ok(await server.rest.call('CreateGroup', { parent: group, group: { name } }, { token }))['uid'])
      const [kept, deletedLater] = [await make('kept'), await make('deleted later')]
      const reader = await makeMember(server, group, { role: 'viewer' })
      const { roleBindings } = ok(await server.rest.call('ListRoleBindings', { uidp: { descendantsOf: group }, identity: reader.uid }, { token }))
      const binding = (roleBindings as { uid: string }[])[0]?.uid ?? ''
      const page = ok(await server.rest.call('ListGroups', { uidp: { descendantsOf: group }, pageSize: 1 }, { token }))

      await member.kill()
      const backup = join(scene.directory, 'backup')
      await cp(member.dataDirectory, backup, { recursive: true })
      await member.restart()
      await until(async () => (await server.rest.call('GetGroup', { uid: kept }, { token })).code === 0)

      const madeLater = await make('made later')
      ok(await server.rest.call('DeleteGroup', { uid: deletedLater }, { token }))
      ok(await server.rest.call('DeleteRoleBinding', { uid: binding }, { token }))
      const newcomer = await makeMember(server, group, { role: 'viewer' })
      expect((await server.rest.call('GetGroup', { uid: kept }, { token: newcomer.token })).code).toBe(0)
      expect((await server.rest.call('GetGroup', { uid: kept }, { token: reader.token })).code).toBe(5)
      // A signing key that is not in the backup.
      const { signingKeys } = server.running.engine
      clock.advance(signingKeySchedule.rotateEveryMs - signingKeySchedule.publishAheadMs + 60_000)
      await until(() => signingKeys.all().length === 2)
      const lost = signingKeys.all().map(({ kid }) => kid)
      const tokens = { owner: await server.tokenFor((await makeOrganisation(server)).owner), operator: await server.operatorToken() }
      expect(tokens.owner).not.toBe('')

      const seen = await revisionOf(etcd.endpoints)
      proxy.cut()
      await until(() => server.running.engine.cache.state.kind === 'broken')
      expect(await readiness(server)).toEqual({ status: 503, text: 'not ready: snapshot\n' })
      await restore(scene, backup, seen)
      proxy.resume()

      // Every answer from now on is right.
      const answers = new Set<number>()
      await until(async () => {
        const { code } = await server.rest.call('GetGroup', { uid: madeLater }, { token: tokens.operator })
        answers.add(code)
        return code === 5
      })
      expect([...answers].filter((code) => code !== 5 && code !== 14)).toEqual([])
      const as = { token: tokens.operator }
      expect(ok(await server.grpc.call('GetGroup', { uid: deletedLater }, as))['name']).toBe('deleted later')
      const { groups } = ok(await server.rest.call('ListGroups', { uidp: { descendantsOf: group } }, as))
      expect((groups as { uid: string }[]).map(({ uid }) => uid).sort()).toEqual([kept, deletedLater].sort())
      const next = await server.rest.call('ListGroups', { uidp: { descendantsOf: group }, pageSize: 1, pageToken: page['nextPageToken'] ?? '' }, as)
      expect(ok(next)['groups']).toHaveLength(1)
      expect((await server.rest.call('GetGroup', { uid: kept }, { token: await server.tokenFor(reader.uid) })).code).toBe(0)
      expect((await server.rest.call('GetGroup', { uid: kept }, { token: await server.tokenFor(newcomer.uid) })).code).toBe(16)
      expect(await readiness(server)).toEqual({ status: 200, text: 'ok\n' })
      const stored = async (): Promise<string[]> => {
        const { entries } = await server.running.engine.store.range({ prefix: 'meta/signing-keys/', limit: 10 }, soon())
        return entries.map(({ key }) => key.slice('meta/signing-keys/'.length)).sort()
      }
      await until(
        async () =>
          JSON.stringify(
            signingKeys
              .all()
              .map(({ kid }) => kid)
              .sort(),
          ) === JSON.stringify(await stored()),
      )
      expect((await stored()).sort()).not.toEqual(lost.sort())
      ok(await server.rest.call('CreateGroup', { parent: group, group: { name: 'goes on' } }, as))
    },
  )
})
