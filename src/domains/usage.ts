import { fromBinary } from '@bufbuild/protobuf'
import { rootOf, trustedUid } from '../base/uid.ts'
import { IdempotencyRecordSchema } from '../gen/taproot/store/v1/envelope_pb.ts'
import { outboxPrefix } from '../engine/log/outbox-keys.ts'
import { noUse, usagePrefix, type CountedUse } from '../engine/quota/counted-use.ts'
import { failedPrefix } from '../events/index.ts'
import { historyPrefix } from '../registry/index.ts'
import { idempotencyKey } from '../engine/idempotency.ts'
import { entriesOf } from '../store/pages.ts'
import type { Entry, Store, Write } from '../store/store.ts'
import { expireBatch } from '../engine/jobs/batch.ts'
import { bytesOf, rootOfEvent } from '../engine/jobs/outbox.ts'

/** The entries to count: their key prefix, the uid of the organisation to which an entry belongs, and what it adds to the usage. */
const sources: readonly { readonly prefix: string; readonly rootOf: (entry: Entry) => string; readonly add: (use: CountedUse, entry: Entry) => CountedUse }[] =
  [
    {
      prefix: outboxPrefix,
      rootOf: rootOfEvent,
      add: (use, entry) => ({ ...use, events: use.events + 1, eventBytes: use.eventBytes + bytesOf(entry) }),
    },
    {
      prefix: failedPrefix,
      rootOf: ({ key }) => key.slice(failedPrefix.length).split('/', 1)[0] ?? '',
      add: (use, entry) => ({ ...use, deadLetterBytes: use.deadLetterBytes + bytesOf(entry) }),
    },
    {
      prefix: historyPrefix,
      rootOf: ({ key }) => key.slice(historyPrefix.length).split('/', 1)[0] ?? '',
      add: (use) => ({ ...use, tagMoves: use.tagMoves + 1 }),
    },
    {
      prefix: idempotencyKey(''),
      // The key belongs to the organisation in which the call created records.
      rootOf: ({ value }) => rootOf(trustedUid(fromBinary(IdempotencyRecordSchema, value).uid.split(',', 1)[0] ?? '')),
      add: (use) => ({ ...use, idempotencyKeys: use.idempotencyKeys + 1 }),
    },
  ]

/**
 * Counts the events, failed deliveries, tag moves and idempotency keys of each organisation, and stores the counts that have changed. The leader calls it from time to time; it
 * reads all of these entries. Resolves to the number of organisations that have any. Rejects with StoreError, or the signal's reason.
 */
export async function countUse(store: Store, signal: AbortSignal): Promise<number> {
  const uses = new Map<string, CountedUse>()
  for (const { prefix, rootOf: owner, add } of sources) {
    for await (const entry of entriesOf(store, { prefix }, signal)) {
      const root = owner(entry)
      if (root !== '') uses.set(root, add(uses.get(root) ?? noUse, entry))
    }
  }
  const values = new Map([...uses].map(([root, use]) => [`${usagePrefix}${root}`, Buffer.from(JSON.stringify(use))]))
  const writes: Write[] = []
  for await (const { key, value } of entriesOf(store, { prefix: usagePrefix }, signal)) {
    const now = values.get(key)
    if (now === undefined) writes.push({ kind: 'delete', key })
    else if (now.equals(value)) values.delete(key)
  }
  for (const [key, value] of values) writes.push({ kind: 'put', key, value })
  for (let at = 0; at < writes.length; at += expireBatch) await store.transact({ guards: [], writes: writes.slice(at, at + expireBatch) }, signal)
  return uses.size
}
