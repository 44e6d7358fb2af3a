import { pagesOf } from '../../store/pages.ts'
import type { Entry, Store, Transaction, Write } from '../../store/store.ts'
import { idempotencyHour, idempotencyHourOf, idempotencyHourPrefix, idempotencyKey, idempotencyLifeMs } from '../idempotency.ts'
import { expireBatch } from './batch.ts'

/** Number of idempotency keys to remove in one transaction. Each has two store keys, and a transaction has at most 127 writes. */
const batchEntries = 50

function recordKeyOf(hourEntry: Entry): string {
  return idempotencyKey(hourEntry.key.slice(hourEntry.key.lastIndexOf('/') + 1))
}

/** Splits a batch into entries with distinct keys, and repeats. A repeat means that the same idempotency key was used again more than a day later. */
function withoutRepeats(batch: readonly Entry[]): { together: Entry[]; repeats: Entry[] } {
  const last = new Map(batch.map((entry) => [recordKeyOf(entry), entry]))
  return { together: [...last.values()], repeats: batch.filter((entry) => last.get(recordKeyOf(entry)) !== entry) }
}

/** Returns the transaction that removes entries and their records. Both were written together, so they have the same revision unless the key was used again. */
function removal(hourEntries: readonly Entry[]): Transaction {
  return {
    guards: hourEntries.map((entry) => ({ kind: 'unchanged', key: recordKeyOf(entry), revision: entry.revision })),
    writes: hourEntries.flatMap((entry): Write[] => [
      { kind: 'delete', key: entry.key },
      { kind: 'delete', key: recordKeyOf(entry) },
    ]),
  }
}

/** Removes one entry of an expired hour. If its key was used again later, the record stays until that later hour expires. */
async function forgetOne(store: Store, entry: Entry, signal: AbortSignal): Promise<void> {
  const [hour = ''] = entry.key.slice(idempotencyHourPrefix.length).split('/')
  const held = await store.get(recordKeyOf(entry), signal)
  const isLast = held !== undefined && idempotencyHourOf(held.value) === hour
  const removed = isLast ? removal([{ ...entry, revision: held.revision }]) : { guards: [], writes: [{ kind: 'delete', key: entry.key } as const] }
  await store.transact(removed, signal)
}

/** Removes the idempotency keys of expired hours. Returns their number. Rejects with StoreError or the signal's reason. */
export async function expireIdempotencyKeys(store: Store, nowMs: number, signal: AbortSignal): Promise<number> {
  const before = `${idempotencyHourPrefix}${idempotencyHour(nowMs - idempotencyLifeMs - 3_600_000)}`
  let removed = 0
  for await (const page of pagesOf(store, { prefix: idempotencyHourPrefix, before, limit: expireBatch }, signal)) {
    for (let at = 0; at < page.length; at += batchEntries) {
      const batch = page.slice(at, at + batchEntries)
      const { together, repeats } = withoutRepeats(batch)
      const outcome = await store.transact(removal(together), signal)
      for (const entry of outcome.committed ? repeats : batch) await forgetOne(store, entry, signal)
      removed += batch.length
    }
  }
  return removed
}
