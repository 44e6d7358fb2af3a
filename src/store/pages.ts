import type { Entry, RangeQuery, Store } from './store.ts'

/**
 * Yields the entries of a range in pages of `limit` entries. Each page continues after the last one instead of reading from the start again. That avoids keys
 * deleted since, which cost etcd time until it compacts.
 */
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

/** Number of entries per page when a whole range is read. */
const pageEntries = 1_000

/** Yields all entries of a range, one by one. */
export async function* entriesOf(store: Store, range: Omit<RangeQuery, 'limit'>, signal: AbortSignal): AsyncGenerator<Entry, void> {
  for await (const entries of pagesOf(store, { ...range, limit: pageEntries }, signal)) yield* entries
}
