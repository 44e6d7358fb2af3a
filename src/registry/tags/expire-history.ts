import { fromBinary } from '@bufbuild/protobuf'
import { HistoryHeadSchema, HistoryRecordSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import { trustedUid } from '../../base/uid.ts'
import { recordKey } from '../../store/keys.ts'
import { entriesOf, pagesOf } from '../../store/pages.ts'
import type { Entry, Store } from '../../store/store.ts'
import { oneByOne } from '../../engine/jobs/one-by-one.ts'
import { historyHeadPrefix, historyKeysAt, historyKeysOf, historyPrefix, historyTimeMs } from './tag-history.ts'
import { expireBatch } from '../../engine/jobs/batch.ts'

/**
 * Maximum age and number of the moves of each tag to keep; unlimited if absent. The age of a move counts from the next move. What a tag
 * points to now is always kept, and so is what it pointed to at the start of that period.
 */
export interface HistoryRetention {
  readonly maxAgeMs?: number
  readonly maxMoves?: number
}

/** A tag, with the newest record of its history. */
interface Tag {
  readonly head: Entry
  readonly lastTimeMs: number
  readonly sequence: number
  readonly isDeleted: boolean
}

/** Limits for the moves of a tag: a time before which moves expire, and a maximum number. */
interface Limits {
  readonly beforeMs: number
  readonly maxMoves: number
}

function tagIn(head: Entry): Tag {
  const { lastTimeMs, sequence, digest } = fromBinary(HistoryHeadSchema, head.value)
  return { head, lastTimeMs: Number(lastTimeMs), sequence: Number(sequence), isDeleted: digest === '' }
}

/**
 * Removes expired records of one tag, oldest first: those that were replaced before the time limit, and those beyond the maximum number.
 * Resolves with the number of removed records.
 */
async function expireTag(store: Store, tag: Tag & Limits, signal: AbortSignal): Promise<number> {
  const { beforeMs, maxMoves } = tag
  const isTooMany = (entry: Entry): boolean => Number(fromBinary(HistoryRecordSchema, entry.value).sequence) <= tag.sequence - maxMoves
  let removed = 0
  let last: Entry | undefined
  for await (const page of pagesOf(store, { prefix: `${historyPrefix}${tag.head.key.slice(historyHeadPrefix.length)}/`, limit: expireBatch }, signal)) {
    const gone: Entry[] = []
    for (const entry of page) {
      if (last !== undefined) {
        if (historyTimeMs(entry.key) > beforeMs && !isTooMany(last)) break
        gone.push(last)
      }
      last = entry
    }
    if (gone.length > 0) await store.transact({ guards: [], writes: gone.flatMap(historyKeysOf).map((key) => ({ kind: 'delete', key })) }, signal)
    removed += gone.length
    if (last !== page.at(-1)) break
  }
  return removed + (await trimEnd(store, tag, signal))
}

/** Removes the history of a tag that was deleted before the time limit, by itself or with its repo. Only the newest record stays. */
async function trimEnd(store: Store, tag: Tag & Limits, signal: AbortSignal): Promise<number> {
  if (tag.lastTimeMs >= tag.beforeMs) return 0
  const { key, revision } = tag.head
  const name = key.slice(historyHeadPrefix.length)
  const [repo = '', tagName = ''] = name.split(':')
  if (!tag.isDeleted && (await store.get(recordKey('Repo', trustedUid(repo)), signal)) !== undefined) return 0
  const gone = [key, ...historyKeysAt({ repo, name: tagName }, tag.lastTimeMs)]
  const { committed } = await store.transact(
    { guards: [{ kind: 'unchanged', key, revision }], writes: gone.map((each) => ({ kind: 'delete', key: each })) },
    signal,
  )
  return committed ? 1 : 0
}

/**
 * Removes moves of tags that are too old or too many, oldest first. Resolves with the number of removed records. Rejects with StoreError
 * or the signal's reason.
 */
export async function expireTagHistory(store: Store, retention: HistoryRetention & { nowMs: number }, signal: AbortSignal): Promise<number> {
  const { maxAgeMs, maxMoves, nowMs } = retention
  if (maxAgeMs === undefined && maxMoves === undefined) return 0
  const limits: Limits = { beforeMs: maxAgeMs === undefined ? -Infinity : nowMs - maxAgeMs, maxMoves: maxMoves ?? Infinity }
  let removed = 0
  const expireOne = async (head: Entry): Promise<void> => void (removed += await expireTag(store, { ...tagIn(head), ...limits }, signal))
  await oneByOne(entriesOf(store, { prefix: historyHeadPrefix }, signal), expireOne, { signal })
  return removed
}
