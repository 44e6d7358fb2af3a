import type { Store } from '../../store/store.ts'
import { accessRequestPrefix, accessWindowMs } from '../iam/access-requests.ts'
import { pagesOf } from './pages.ts'

/** Forgets requests for access that no longer stand in the way of another. Returns how many. Rejects with StoreError, or the signal's reason. */
export async function trimAccessRequests(store: Store, nowMs: number, signal: AbortSignal): Promise<number> {
  let removed = 0
  for await (const page of pagesOf(store, { prefix: accessRequestPrefix }, signal)) {
    const old = page.filter(({ value }) => Number(Buffer.from(value).toString()) + accessWindowMs <= nowMs)
    if (old.length === 0) continue
    // Guarded: the same caller may be asking again at this moment. Those are left for the next time.
    const guards = old.map(({ key, revision }) => ({ kind: 'unchanged', key, revision }) as const)
    const outcome = await store.transact({ guards, writes: old.map(({ key }) => ({ kind: 'delete', key })) }, signal)
    if (outcome.committed) removed += old.length
  }
  return removed
}
