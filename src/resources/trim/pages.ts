import type { Entry, RangeQuery, Store } from '../../store/store.ts'

/** How many entries are read, and removed in one transaction, at a time. */
const trimBatch = 100

/** The entries of a range in pages, each of which begins after the last: deleted keys cost etcd time until it compacts, so no page looks at them again. */
export async function* pagesOf(store: Store, range: Omit<RangeQuery, 'limit' | 'revision'>, signal: AbortSignal): AsyncGenerator<readonly Entry[], void> {
  let { after } = range
  for (;;) {
    const { entries, more } = await store.range({ ...range, ...(after === undefined ? {} : { after }), limit: trimBatch }, signal)
    after = entries.at(-1)?.key
    if (after === undefined) return
    yield entries
    if (!more) return
  }
}
