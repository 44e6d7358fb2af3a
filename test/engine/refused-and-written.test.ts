import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test, onTestFinished } from 'vitest'
import { digestOf } from '../../src/base/digest.ts'
import type { DomainError } from '../../src/base/errors.ts'
import { trustedUid } from '../../src/base/uid.ts'
import { contentEpoch } from '../../src/registry/records/content-epoch.ts'
import { blobPrefix, forgetBlob, heldBlob, recordBlob } from '../../src/registry/records/blobs.ts'
import { ChangeSet } from '../../src/engine/change-set.ts'
import { commit } from '../../src/engine/commit.ts'
import { fromStore } from '../../src/engine/errors.ts'
import { createEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import { StoreError } from '../../src/store/store.ts'
import { startEtcd } from '../support/parts/etcd.ts'
import { describeOnStores, describeWithPart } from '../support/parts/require-part.ts'
import { startTcpProxy } from '../support/parts/tcp-proxy.ts'
import { silentLog } from '../store/store-harness.ts'
import { group, proven, startProcess } from './quota-world.ts'
import { failNext } from '../support/fail-next.ts'
import { freshName, makeOrganisation, ok, startTestServer } from '../support/test-server.ts'

const full = new StoreError('exhausted', 'no room')

describeOnStores('a store that becomes full', (store) => {
  test('a store that writes a transaction and reports that it is full: the caller learns that the change was made', async () => {
    const server = await startTestServer({ store })
    onTestFinished(() => server.stop())
    const { group, token } = await makeOrganisation(server)
    const name = freshName('filling')
    failNext(server, async (real, call) => {
      await real.transact(...call)
      throw full
    })
    const made = ok(await server.rest.call('CreateGroup', { parent: group, group: { name } }, { token }))
    failNext(server, async (real, call) => {
      await real.transact(...call)
      // Sent again, like a member of a group.
      return real.transact(...call)
    })
    ok(await server.rest.call('DeleteGroup', { uid: String(made['uid']) }, { token }))
    const { groups } = ok(await server.rest.call('ListGroups', { name }, { token })) as { groups: JsonObject[] }
    expect(groups).toEqual([])
  })

  test('a store that is full and refuses a transaction has nothing of it', async () => {
    const server = await startTestServer({ store })
    onTestFinished(() => server.stop())
    const { group, token } = await makeOrganisation(server)
    const name = freshName('refused')
    failNext(server, () => Promise.reject(full))
    expect(await server.rest.call('CreateGroup', { parent: group, group: { name } }, { token })).toMatchObject({ code: 8 })
    const { groups } = ok(await server.rest.call('ListGroups', { name }, { token })) as { groups: JsonObject[] }
    expect(groups).toEqual([])
  })
})

describeOnStores('a store whose answer is lost', (store) => {
  test('a store whose answer is lost answers code 2, which clients do not retry, for records whose outcome can not be checked', async () => {
    const server = await startTestServer({ store })
    onTestFinished(() => server.stop())
    const { group, token } = await makeOrganisation(server)
    const repo = trustedUid(String(ok(await server.rest.call('CreateRepo', { parent: group, repo: { name: freshName('repo') } }, { token }))['uid']))
    const { services } = server.running.engine
    const signal = AbortSignal.timeout(60_000)
    const digest = digestOf(Buffer.from('content'))
    const put = { repo, digest, size: 7, upstreamDigest: digest, epoch: await contentEpoch(services, repo, signal) }
    const loseAnswer = (): void =>
      failNext(
        server,
        async (real, call) => {
          await real.transact(...call)
          throw new StoreError('indeterminate', 'no answer')
        },
        blobPrefix,
      )
    loseAnswer()
    await expect(recordBlob(services, put, signal)).rejects.toMatchObject({ code: 2, reason: 'OUTCOME_UNKNOWN' })
    expect(await heldBlob(services, put, signal)).toMatchObject({ size: 7n })
    loseAnswer()
    const failure = await forgetBlob(services, put, signal).catch(fromStore)
    expect(failure).toMatchObject({ code: 2, reason: 'OUTCOME_UNKNOWN' })
    expect(await heldBlob(services, put, signal)).toBeUndefined()
  })
})

describeWithPart('etcd', 'an etcd that can not be reached', () => {
  test('while etcd can not be reached, a create answers code 14: clients repeat it, because nothing was sent to etcd', async () => {
    const etcd = await startEtcd()
    onTestFinished(() => etcd.stop())
    const proxy = await startTcpProxy(etcd.members[0]?.port ?? 0)
    onTestFinished(() => proxy.close())
    const store = createEtcdStore({ endpoints: [`http://127.0.0.1:${proxy.port}`], log: silentLog })
    onTestFinished(() => store.close())
    const process = await startProcess(store, { share: 8, processes: 1 })
    onTestFinished(() => process.close())
    proxy.cut()
    const creates = Array.from({ length: 8 }, (_, at) =>
      commit(process.services, process.context, () => {
        const changes = new ChangeSet()
        group(changes, trustedUid(String(at).repeat(40)))
        return { changes: proven(changes), result: undefined }
      }),
    )
    const outcomes = await Promise.allSettled(creates)
    expect(outcomes.map((outcome) => (outcome.status === 'rejected' ? (outcome.reason as DomainError).code : 0))).toEqual(creates.map(() => 14))
  })
})
