import { Etcd3 } from 'etcd3'
import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, onTestFinished } from 'vitest'
import { createEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import type { Store } from '../../src/store/store.ts'
import { startEtcd, type EtcdCluster } from '../parts/etcd.ts'
import { describeWithPart } from '../parts/require-part.ts'
import { storeContract } from './contract.ts'
import { silentLog, soon, type StoreUnderTest } from './store-harness.ts'

describeWithPart('etcd', 'the etcd store', () => {
  let etcd: EtcdCluster
  let admin: Etcd3

  beforeAll(async () => {
    etcd = await startEtcd()
    admin = new Etcd3({ hosts: [...etcd.endpoints] })
  })

  afterAll(async () => {
    admin.close()
    await etcd.stop()
  })

  storeContract('etcd', async (): Promise<StoreUnderTest> => {
    const prefix = `/test-${randomBytes(8).toString('hex')}/`
    const open = (): Store => {
      const store = createEtcdStore({ endpoints: etcd.endpoints, prefix, log: silentLog })
      onTestFinished(() => store.close())
      return store
    }
    const store = open()
    return {
      store,
      peer: open,
      reopen: async () => {
        await store.close()
        return open()
      },
      forgetHistory: async () => {
        const { revision } = await store.range({ prefix: '', limit: 1 }, soon())
        await admin.kv.compact({ revision, physical: true })
      },
    }
  })
})
