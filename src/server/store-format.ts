import { StoreError, type Store } from '../store/store.ts'

/**
 * Version number of the layout of keys and envelopes in the store. Fields and kinds may be added without a new number, since older
 * versions ignore what they do not know. A change that an older version would misread needs the next number, and an intermediate version
 * that reads both layouts (docs/scaling.md, "Upgrades").
 */
export const storeFormat = 1

const formatKey = 'meta/format'

/** A newer version has written the store. Retrying does not help. */
class StoreFormatError extends Error {
  override readonly name = 'StoreFormatError'
}

/** Writes the format into a new store. Rejects with StoreFormatError if the store has a newer format, since continuing would damage it. */
export async function assertStoreFormat(store: Store, signal: AbortSignal): Promise<void> {
  const entry = await store.get(formatKey, signal)
  if (entry === undefined) {
    // If another replica writes first, it writes the same number, or its number is checked at the next start.
    const write = { kind: 'put', key: formatKey, value: Buffer.from(String(storeFormat)) } as const
    try {
      await store.transact({ guards: [{ kind: 'absent', key: formatKey }], writes: [write] }, signal)
    } catch (error) {
      // A full store can still serve reads, so the start continues. The format is written at a later start.
      if (!(error instanceof StoreError) || error.kind !== 'exhausted') throw error
    }
    return
  }
  const found = Number(Buffer.from(entry.value).toString('utf8'))
  if (!(found <= storeFormat)) throw new StoreFormatError(`the store has format ${found}, this version supports ${storeFormat}: start a newer version`)
}
