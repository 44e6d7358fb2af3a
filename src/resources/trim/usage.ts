import { fromBinary } from '@bufbuild/protobuf'
import { rootOf, trustedUid, type Uid } from '../../core/uid.ts'
import { IdempotencyRecordSchema } from '../../gen/taproot/store/v1/envelope_pb.ts'
import { outboxPrefix } from '../outbox.ts'
import { historyPrefix } from '../registry/tag-history.ts'
import { idempotencyKey } from '../idempotency.ts'
import { entriesOf } from '../../store/pages.ts'
import type { Entry, Store, Write } from '../../store/store.ts'
import { trimBatch } from './batch.ts'
import { bytesOf, rootOfEvent } from './outbox.ts'

/** What an organisation had of what the leader counts, when it last did: entries, and bytes of events. */
export interface CountedUse {
  readonly events: number
  readonly eventBytes: number
  readonly tagMoves: number
  readonly idempotencyKeys: number
}

const nothing: CountedUse = { events: 0, eventBytes: 0, tagMoves: 0, idempotencyKeys: 0 }

const usagePrefix = 'x/usage/'

/** What the leader counted last; nothing where it has not yet. Rejects with StoreError. */
export async function countedUse(store: Store, root: Uid, signal: AbortSignal): Promise<CountedUse> {
  const entry = await store.get(`${usagePrefix}${root}`, signal)
  // Only countUse writes these.
  return entry === undefined ? nothing : (JSON.parse(Buffer.from(entry.value).toString()) as CountedUse)
}

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
      if (root !== '') uses.set(root, add(uses.get(root) ?? nothing, entry))
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
  for (let at = 0; at < writes.length; at += trimBatch) await store.transact({ guards: [], writes: writes.slice(at, at + trimBatch) }, signal)
  return uses.size
}
