import type { Uid } from '../../base/uid.ts'
import type { Store } from '../../store/store.ts'

/** What an organisation had of what the leader counts, when it last did: entries, and bytes of events. */
export interface CountedUse {
  readonly events: number
  readonly eventBytes: number
  readonly tagMoves: number
  readonly idempotencyKeys: number
}

/** Nothing of all that. */
export const noUse: CountedUse = { events: 0, eventBytes: 0, tagMoves: 0, idempotencyKeys: 0 }

/** Where the counts of each organisation lie. */
export const usagePrefix = 'x/usage/'

/** What the leader counted last; nothing where it has not yet. Rejects with StoreError. */
export async function countedUse(store: Store, root: Uid, signal: AbortSignal): Promise<CountedUse> {
  const entry = await store.get(`${usagePrefix}${root}`, signal)
  // Only countUse writes these.
  return entry === undefined ? noUse : (JSON.parse(Buffer.from(entry.value).toString()) as CountedUse)
}
