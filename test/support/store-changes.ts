import { entriesOf } from '../../src/store/pages.ts'
import type { Revision, Store } from '../../src/store/store.ts'

/** What leaders write now and then, whatever a test does: audit, progress of deliveries, usage, states of feeds, contents and vulnerability counts. */
const background = [
  'x/audit/',
  'x/events/progress/',
  'x/events/failed/',
  'x/events/cut/',
  'x/usage/',
  'x/content/',
  'x/manifests/',
  'meta/contents',
  'x/feeds/',
  'x/unread/',
  'x/reread/',
  'meta/scanners/',
  'x/unscanned/',
  'x/rescan/',
  'x/scanned/',
  'x/vulnerability-counts/',
]

/** Resolves with the revision of the last commit. */
export async function revisionOf(store: Store): Promise<Revision> {
  const { revision } = await store.range({ prefix: 'meta/format', limit: 1 }, AbortSignal.timeout(60_000))
  return revision
}

/** Resolves with the keys that something else than background work wrote after `revision`. It does not see deletes; a mutation that deletes also writes an event. */
export async function keysWrittenSince(store: Store, revision: Revision): Promise<readonly string[]> {
  if ((await revisionOf(store)) === revision) return []
  const keys: string[] = []
  for await (const entry of entriesOf(store, { prefix: '' }, AbortSignal.timeout(60_000))) {
    if (entry.revision > revision) keys.push(entry.key)
  }
  return keys.filter((key) => !background.some((prefix) => key.startsWith(prefix)))
}
