import type { Store } from '../../src/store/store.ts'

/** Entries of segments of the audit trail: a server writes one now and then, whatever a test does. */
const segments = { prefix: 'x/audit/', limit: 1_000 }

/** Returns a number that grows with each commit but those of the audit trail. An equal one later means that nothing else was written in between. */
export async function changesIn(store: Store): Promise<number> {
  const { entries, revision } = await store.range(segments, AbortSignal.timeout(60_000))
  return revision - entries.length
}
