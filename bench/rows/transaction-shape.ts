import { Etcd3, type IKeyValue } from 'etcd3'
import { createEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import type { Log } from '../../src/base/log.ts'
import { recordKey } from '../../src/store/keys.ts'
import { trustedUid } from '../../src/base/uid.ts'
import type { TransactionShape } from '../load/load.ts'

const quiet: Log = { debug() {}, info() {}, warn: console.warn, error: console.error }
const prefix = '/taproot/'
/** Key prefix as long as the product's own, so that bare transactions have the same size. */
const barePrefix = '/baretx_/'

/** Returns the keys and sizes that the commit of a record's creation wrote, as found in etcd. `parent` is the uid that its guards check. */
export async function shapeOfCreation(endpoint: string, made: { kind: string; uid: string; parent: string }): Promise<TransactionShape> {
  const signal = AbortSignal.timeout(30_000)
  const store = createEtcdStore({ endpoints: [endpoint], log: quiet })
  const etcd = new Etcd3({ hosts: endpoint })
  try {
    const entry = await store.get(recordKey(made.kind, trustedUid(made.uid)), signal)
    if (entry === undefined) throw new Error(`${made.uid} is not in the store`)
    const range = { key: Buffer.from(prefix), range_end: Buffer.from('/taproot0'), min_mod_revision: entry.revision, max_mod_revision: entry.revision }
    const { kvs } = await etcd.kv.range(range)
    return { puts: kvs.map(putOf), existing: bareKey(recordKey('Group', trustedUid(made.parent))) }
  } finally {
    etcd.close()
    await store.close()
  }
}

function bareKey(name: string): string {
  return barePrefix + name
}

function putOf({ key, value, version }: IKeyValue): TransactionShape['puts'][number] {
  const name = key.toString('latin1').slice(prefix.length)
  const fresh = String(version) === '1'
  return { key: bareKey(name), valueBytes: value.length, fresh, guarded: fresh && (name.startsWith('r/') || name.startsWith('i/name/')) }
}
