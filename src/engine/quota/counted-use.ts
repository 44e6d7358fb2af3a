import type { Uid } from '../../base/uid.ts'
import type { Store } from '../../store/store.ts'

/** An organisation's usage at the leader's last count: numbers of entries, and bytes of events and of failed deliveries. */
export interface CountedUse {
  readonly events: number
  readonly eventBytes: number
  readonly deadLetterBytes: number
  readonly tagMoves: number
  readonly idempotencyKeys: number
}

/** The usage of an organisation that uses nothing. */
export const noUse: CountedUse = { events: 0, eventBytes: 0, deadLetterBytes: 0, tagMoves: 0, idempotencyKeys: 0 }

/** Prefix of the entries with the usage of each organisation. */
export const usagePrefix = 'x/usage/'

/** Returns the organisation's usage at the leader's last count; `noUse` before the first count. Rejects with StoreError. */
export async function countedUse(store: Store, root: Uid, signal: AbortSignal): Promise<CountedUse> {
  const entry = await store.get(`${usagePrefix}${root}`, signal)
  // Only countUse writes these entries. Earlier versions wrote fewer numbers.
  return entry === undefined ? noUse : { ...noUse, ...(JSON.parse(Buffer.from(entry.value).toString()) as Partial<CountedUse>) }
}
