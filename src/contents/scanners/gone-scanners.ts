import { scanPrefixes } from '../../registry/index.ts'
import { entriesOf } from '../../store/pages.ts'
import type { Store, Write } from '../../store/store.ts'

/** Key prefix of groups whose images a scanner was asked for. Its name follows, then the group. */
export const knownScannerPrefix = 'meta/scanners/'
/** Number of keys that one transaction removes. */
const keysAtOnce = 100

/**
 * Forgets what scanners were asked for that are not configured. So one that comes back is asked for all images, also for those that were pushed meanwhile. Images
 * that it has scanned before end at once. The active worker calls it before its scans. Rejects with StoreError or the signal's reason.
 */
export async function forgetGoneScanners(store: Store, configured: ReadonlySet<string>, signal: AbortSignal): Promise<void> {
  // The notes of scanners first: a process that ends in between must not leave one without its queue.
  for (const prefix of [knownScannerPrefix, scanPrefixes.waiting, scanPrefixes.later]) {
    let gone: Write[] = []
    const remove = async (): Promise<void> => {
      if (gone.length > 0) await store.transact({ guards: [], writes: gone }, signal)
      gone = []
    }
    for await (const { key } of entriesOf(store, { prefix }, signal)) {
      const [name = ''] = key.slice(prefix.length).split('/')
      if (configured.has(name)) continue
      gone.push({ kind: 'delete', key })
      if (gone.length >= keysAtOnce) await remove()
    }
    await remove()
  }
}
