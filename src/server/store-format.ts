import { StoreError, type Store } from '../store/store.ts'

/**
 * The layout of keys and envelopes that this version writes. Fields and kinds may be added under the same number: older versions pass over what they don't know.
 * Anything that an older version would read wrongly needs the next one, and a version in between that reads both (docs/scaling.md, "Upgrades").
 */
const storeFormat = 1

const formatKey = 'meta/format'

/** A newer version wrote the store: waiting changes nothing. */
class StoreFormatError extends Error {
  override readonly name = 'StoreFormatError'
}

/** Notes the format in a fresh store. Rejects with StoreFormatError where the store has a newer one: to go on would damage it. */
export async function assertStoreFormat(store: Store, signal: AbortSignal): Promise<void> {
  const entry = await store.get(formatKey, signal)
  if (entry === undefined) {
    // Where another replica was first, it wrote the same or its write is seen at the next start.
    const write = { kind: 'put', key: formatKey, value: Buffer.from(String(storeFormat)) } as const
    try {
      await store.transact({ guards: [{ kind: 'absent', key: formatKey }], writes: [write] }, signal)
    } catch (error) {
      // A full store is started on, for its readers' sake; the format is noted at a later start.
      if (!(error instanceof StoreError) || error.kind !== 'exhausted') throw error
    }
    return
  }
  const found = Number(Buffer.from(entry.value).toString('utf8'))
  if (!(found <= storeFormat)) throw new StoreFormatError(`the store has format ${found}, this version supports ${storeFormat}: start a newer version`)
}
