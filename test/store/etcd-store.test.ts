import { Etcd3 } from 'etcd3'
import { afterAll, beforeAll, onTestFinished } from 'vitest'
import { createEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import type { Store } from '../../src/store/store.ts'
import { shareEtcd, type EtcdSpace } from '../support/parts/etcd.ts'
import { describeWithPart } from '../support/parts/require-part.ts'
import { storeContract } from './contract.ts'
import { silentLog, soon, type StoreUnderTest } from './store-harness.ts'

describeWithPart('etcd', 'the etcd store', () => {
  let etcd: EtcdSpace
  let admin: Etcd3

  beforeAll(async () => {
    etcd = await shareEtcd()
    admin = new Etcd3({ hosts: [...etcd.endpoints] })
  })

  afterAll(() => admin.close())

  storeContract('etcd', async (): Promise<StoreUnderTest> => {
    const { endpoints, prefix } = await shareEtcd()
    const open = (): Store => {
      const store = createEtcdStore({ endpoints, prefix: `${prefix}/`, log: silentLog })
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
