import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import type { Digest } from '../../core/digest.ts'
import { HistoryHeadSchema, HistoryRecordSchema, type HistoryHead } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { Entry, Store } from '../../store/store.ts'
import type { ChangeSet } from '../change-set.ts'

/** The newest record of each tag's history: one key per tag that ever was. */
export const historyHeadPrefix = 'x/history-head/'
/** All records of all tags' histories. */
export const historyPrefix = 'x/history/'

/** A tag by its repo and name, be it there or not. */
export interface TagName {
  readonly repo: string
  readonly name: string
}

/** The key of a tag's newest record. */
export function historyHeadKey({ repo, name }: TagName): string {
  return `${historyHeadPrefix}${repo}:${name}`
}

/** What the keys of a tag's records start with. Neither uids nor tag names have a colon. */
export function historyPrefixOf({ repo, name }: TagName): string {
  return `${historyPrefix}${repo}:${name}/`
}

/** The key of the record of one millisecond; keys sort by time. */
export function historyKey(tag: TagName, timeMs: number): string {
  return `${historyPrefixOf(tag)}${Math.max(0, timeMs).toString(16).padStart(12, '0')}`
}

/** The time of a record's key, in milliseconds since 1970. */
export function historyTimeMs(key: string): number {
  return Number.parseInt(key.slice(-12), 16)
}

/** A move of a tag. */
export interface Move {
  readonly timeMs: number
  readonly digest: Digest
}

/** The newest record of a tag's history, with the entry that guards it. */
export interface Head {
  readonly entry: Entry | undefined
  readonly head: HistoryHead | undefined
}

/** Reads the newest record of a tag's history. */
export async function readHead(store: Store, tag: TagName, signal: AbortSignal): Promise<Head> {
  const entry = await store.get(historyHeadKey(tag), signal)
  return { entry, head: entry === undefined ? undefined : fromBinary(HistoryHeadSchema, entry.value) }
}

/**
 * Adds one record to a tag's history: in the tag's own transaction, guarded so that no other comes in between. Its time is after `notBeforeMs` and after that of
 * the record before. Returns it.
 */
export function appendHistory(changes: ChangeSet, tag: TagName, move: { digest: Digest | ''; nowMs: number; notBeforeMs: number; after: Head }): number {
  const { entry, head } = move.after
  const timeMs = Math.max(move.nowMs, move.notBeforeMs, Number(head?.lastTimeMs ?? -1n) + 1)
  const sequence = (head?.sequence ?? 0n) + 1n
  const key = historyHeadKey(tag)
  changes.guard(entry === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: entry.revision })
  const { digest } = move
  changes.write({ kind: 'put', key, value: toBinary(HistoryHeadSchema, create(HistoryHeadSchema, { lastTimeMs: BigInt(timeMs), digest, sequence })) })
  const record = toBinary(HistoryRecordSchema, create(HistoryRecordSchema, { digest, sequence }))
  changes.write({ kind: 'put', key: historyKey(tag, timeMs), value: record })
  return timeMs
}

/** Which part of a tag's history is read. */
export interface HistoryWindow extends TagName {
  /** Included. */
  readonly startMs?: number
  /** Excluded. */
  readonly endMs?: number
  readonly limit: number
}

function moveOf(entry: Entry): Move {
  const { digest } = fromBinary(HistoryRecordSchema, entry.value)
  // Only appendHistory writes these, with a digest or nothing.
  return { timeMs: historyTimeMs(entry.key), digest: digest as Digest }
}

/**
 * Moves of a tag, oldest first, deletions left out; `more` tells whether others follow. Undefined where the tag never was. Costs what the window costs,
 * however long the history is.
 */
export async function readHistory(
  { store }: { store: Store },
  window: HistoryWindow,
  signal: AbortSignal,
): Promise<{ records: Move[]; more: boolean } | undefined> {
  const { startMs = 0, endMs, limit } = window
  const records: Move[] = []
  const before = endMs === undefined ? {} : { before: historyKey(window, Math.min(endMs, maxTimeMs)) }
  // Nothing but digits follows the prefix: what comes before a time is the last key below it.
  let after = startMs <= 0 ? undefined : historyKey(window, Math.min(startMs, maxTimeMs) - 1)
  for (;;) {
    const query = { prefix: historyPrefixOf(window), ...before, ...(after === undefined ? {} : { after }), limit: limit + 1 - records.length }
    const { entries, more } = await store.range(query, signal)
    records.push(...entries.map(moveOf).filter(({ digest }) => digest !== ''))
    after = entries.at(-1)?.key
    if (records.length > limit) return { records: records.slice(0, limit), more: true }
    if (!more || after === undefined) break
  }
  if (records.length === 0 && (await readHead(store, window, signal)).entry === undefined) return undefined
  return { records, more: false }
}

/** The last time that a key can have. */
const maxTimeMs = 16 ** 12 - 1

/** The first record in [`fromMs`, `toMs`], if any. */
async function firstIn(store: Store, tag: TagName & { fromMs: number; toMs: number }, signal: AbortSignal): Promise<Entry | undefined> {
  const { fromMs, toMs } = tag
  const prefix = historyPrefixOf(tag)
  const after = fromMs <= 0 ? {} : { after: historyKey(tag, fromMs - 1) }
  const { entries } = await store.range({ prefix, ...after, before: historyKey(tag, toMs + 1), limit: 1 }, signal)
  return entries[0]
}

/**
 * What the tag pointed to at a time: the newest record that is not later; `digest` is empty where it was deleted then, undefined where it was not there yet.
 * A search by halves: the store reads forward only.
 */
export async function historyAt(store: Store, tag: TagName & { timeMs: number }, signal: AbortSignal): Promise<Digest | '' | undefined> {
  const timeMs = Math.min(tag.timeMs, maxTimeMs - 1)
  let best = await firstIn(store, { ...tag, fromMs: 0, toMs: timeMs }, signal)
  if (best === undefined) return undefined
  for (let low = historyTimeMs(best.key) + 1, high = timeMs; low <= high;) {
    const middle = Math.floor((low + high) / 2)
    const found = await firstIn(store, { ...tag, fromMs: middle, toMs: high }, signal)
    if (found === undefined) high = middle - 1
    else {
      best = found
      low = historyTimeMs(found.key) + 1
    }
  }
  return moveOf(best).digest
}

/** True where the tag pointed to the digest at some time that its history still holds. */
export async function everPointedTo(store: Store, tag: TagName & { digest: Digest }, signal: AbortSignal): Promise<boolean> {
  for (let after: string | undefined; ;) {
    const { entries, more } = await store.range({ prefix: historyPrefixOf(tag), ...(after === undefined ? {} : { after }), limit: 1000 }, signal)
    if (entries.some((entry) => moveOf(entry).digest === tag.digest)) return true
    after = entries.at(-1)?.key
    if (!more || after === undefined) return false
  }
}
