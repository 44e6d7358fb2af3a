import type { Entry, RangeQuery, Store } from './store.ts'

/** The entries of a range, `limit` at a time. Each page begins after the last: deleted keys cost etcd time until it compacts, so no page looks at them again. */
export async function* pagesOf(store: Store, range: RangeQuery, signal: AbortSignal): AsyncGenerator<readonly Entry[], void> {
  let { after } = range
  for (;;) {
    const { entries, more } = await store.range({ ...range, ...(after === undefined ? {} : { after }) }, signal)
    after = entries.at(-1)?.key
    if (after === undefined) return
    yield entries
    if (!more) return
  }
}

/** How many entries are read at a time where all are wanted. */
const pageEntries = 1_000

/** All entries of a range, one after another. */
export async function* entriesOf(store: Store, range: Omit<RangeQuery, 'limit'>, signal: AbortSignal): AsyncGenerator<Entry, void> {
  for await (const entries of pagesOf(store, { ...range, limit: pageEntries }, signal)) yield* entries
}
