import { fromBinary } from '@bufbuild/protobuf'
import { HistoryHeadSchema, HistoryRecordSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { Entry, Store } from '../../store/store.ts'
import { historyHeadPrefix, historyPrefix, historyTimeMs } from '../registry/tag-history.ts'
import { pagesOf } from './pages.ts'

/** How long and how many moves of each tag are kept; all where absent. What a tag points to now is always kept. */
export interface HistoryRetention {
  readonly maxAgeMs?: number
  readonly maxMoves?: number
}

/** One tag's history as its newest record tells it. */
interface Tag {
  readonly head: Entry
  readonly lastTimeMs: number
  readonly sequence: number
  readonly isDeleted: boolean
}

/** What goes: moves before this time, and all but so many. */
interface Limits {
  readonly beforeMs: number
  readonly maxMoves: number
}

function tagIn(head: Entry): Tag {
  const { lastTimeMs, sequence, digest } = fromBinary(HistoryHeadSchema, head.value)
  return { head, lastTimeMs: Number(lastTimeMs), sequence: Number(sequence), isDeleted: digest === '' }
}

/** Removes the oldest of one tag's records. Returns how many. */
async function trimTag(store: Store, tag: Tag & Limits, signal: AbortSignal): Promise<number> {
  const { beforeMs, maxMoves } = tag
  let removed = 0
  const isOver = (entry: Entry): boolean => {
    const timeMs = historyTimeMs(entry.key)
    if (timeMs >= tag.lastTimeMs) return false
    return timeMs < beforeMs || Number(fromBinary(HistoryRecordSchema, entry.value).sequence) <= tag.sequence - maxMoves
  }
  for await (const page of pagesOf(store, { prefix: `${historyPrefix}${tag.head.key.slice(historyHeadPrefix.length)}/` }, signal)) {
    const over = page.filter(isOver)
    if (over.length > 0) await store.transact({ guards: [], writes: over.map(({ key }) => ({ kind: 'delete', key })) }, signal)
    removed += over.length
    if (over.length < page.length) break
  }
  return removed + (await trimEnd(store, tag, signal))
}

/** A tag that was deleted too long ago is forgotten: nothing is left of it but its deletion. */
async function trimEnd(store: Store, tag: Tag & Limits, signal: AbortSignal): Promise<number> {
  if (!tag.isDeleted || tag.lastTimeMs >= tag.beforeMs) return 0
  const { key, revision } = tag.head
  const record = `${historyPrefix}${key.slice(historyHeadPrefix.length)}/${tag.lastTimeMs.toString(16).padStart(12, '0')}`
  const { committed } = await store.transact(
    {
      guards: [{ kind: 'unchanged', key, revision }],
      writes: [
        { kind: 'delete', key },
        { kind: 'delete', key: record },
      ],
    },
    signal,
  )
  return committed ? 1 : 0
}

/** Removes moves of tags that are too old or too many, oldest first. Returns how many. Rejects with StoreError, or the signal's reason. */
export async function trimTagHistory(store: Store, retention: HistoryRetention & { nowMs: number }, signal: AbortSignal): Promise<number> {
  const { maxAgeMs, maxMoves, nowMs } = retention
  if (maxAgeMs === undefined && maxMoves === undefined) return 0
  const limits: Limits = { beforeMs: maxAgeMs === undefined ? -Infinity : nowMs - maxAgeMs, maxMoves: maxMoves ?? Infinity }
  let removed = 0
  for await (const page of pagesOf(store, { prefix: historyHeadPrefix }, signal)) {
    for (const head of page) removed += await trimTag(store, { ...tagIn(head), ...limits }, signal)
  }
  return removed
}
