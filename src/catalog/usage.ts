import { fromBinary } from '@bufbuild/protobuf'
import { rootOf, trustedUid } from '../base/uid.ts'
import { IdempotencyRecordSchema } from '../gen/taproot/store/v1/envelope_pb.ts'
import { outboxPrefix } from '../engine/log/outbox-keys.ts'
import { noUse, usagePrefix, type CountedUse } from '../engine/quota/counted-use.ts'
import { historyPrefix } from '../registry/index.ts'
import { idempotencyKey } from '../engine/idempotency.ts'
import { entriesOf } from '../store/pages.ts'
import type { Entry, Store, Write } from '../store/store.ts'
import { expireBatch } from '../engine/jobs/batch.ts'
import { bytesOf, rootOfEvent } from '../engine/jobs/outbox.ts'

/** What is counted: where it lies, whose an entry is, and what it adds. */
const sources: readonly { readonly prefix: string; readonly rootOf: (entry: Entry) => string; readonly add: (use: CountedUse, entry: Entry) => CountedUse }[] =
  [
    {
      prefix: outboxPrefix,
      rootOf: rootOfEvent,
      add: (use, entry) => ({ ...use, events: use.events + 1, eventBytes: use.eventBytes + bytesOf(entry) }),
    },
    {
      prefix: historyPrefix,
      rootOf: ({ key }) => key.slice(historyPrefix.length).split('/', 1)[0] ?? '',
      add: (use) => ({ ...use, tagMoves: use.tagMoves + 1 }),
    },
    {
      prefix: idempotencyKey(''),
      // It belongs to the organisation in which the call made something.
      rootOf: ({ value }) => rootOf(trustedUid(fromBinary(IdempotencyRecordSchema, value).uid.split(',', 1)[0] ?? '')),
      add: (use) => ({ ...use, idempotencyKeys: use.idempotencyKeys + 1 }),
    },
  ]

/**
 * Counts events, moves of tags and idempotency keys by organisation, and writes down what has changed. For the leader, now and then: it reads all of them. Resolves with
 * the number of organisations that have any. Rejects with StoreError, or the signal's reason.
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
