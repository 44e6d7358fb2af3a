import type { Store } from '../../store/store.ts'
import { recordKey } from '../../store/keys.ts'
import { pagesOf } from '../../store/pages.ts'
import { firstSignInPrefix, providerOfFirstSignIn } from '../records/people.ts'
import { expireBatch } from '../../engine/jobs/batch.ts'

async function forget(store: Store, prefix: string, signal: AbortSignal): Promise<number> {
  let removed = 0
  for await (const page of pagesOf(store, { prefix, limit: expireBatch }, signal)) {
    const outcome = await store.transact({ guards: [], writes: page.map(({ key }) => ({ kind: 'delete', key })) }, signal)
    if (outcome.committed) removed += page.length
  }
  return removed
}

/**
 * Deletes the records of first sign-ins by deleted providers, whose uids are never used again. Costs two reads per provider. Resolves with
 * the number of deleted entries. Rejects with StoreError, or the signal's reason.
 */
export async function expireFirstSignIns(store: Store, signal: AbortSignal): Promise<number> {
  let removed = 0
  let after: string | undefined
  for (;;) {
    const { entries } = await store.range({ prefix: firstSignInPrefix, limit: 1, ...(after === undefined ? {} : { after }) }, signal)
    const [first] = entries
    if (first === undefined) return removed
    const provider = providerOfFirstSignIn(first.key)
    const own = `${firstSignInPrefix}${provider}/`
    if ((await store.get(recordKey('IdentityProvider', provider), signal)) === undefined) removed += await forget(store, own, signal)
    // Continues after all entries of this provider: "0" sorts after "/".
    after = `${own.slice(0, -1)}0`
  }
}
