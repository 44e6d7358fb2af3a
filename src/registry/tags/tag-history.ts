import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import type { Digest } from '../../base/digest.ts'
import { HistoryHeadSchema, HistoryRecordSchema, type HistoryHead } from '../../gen/taproot/store/v1/registry_pb.ts'
import { entriesOf } from '../../store/pages.ts'
import type { Entry, Store, Write } from '../../store/store.ts'
import type { ChangeSet } from '../../engine/change-set.ts'

/** Key prefix of the newest record of each tag's history. Every tag that ever existed has one key. */
export const historyHeadPrefix = 'x/history-head/'
/** Key prefix of all history records of all tags. */
export const historyPrefix = 'x/history/'

/** A tag, existing or not, by its repo and name. */
export interface TagName {
  readonly repo: string
  readonly name: string
}

/** Returns the key of a tag's newest record. */
export function historyHeadKey({ repo, name }: TagName): string {
  return `${historyHeadPrefix}${repo}:${name}`
}

/** Returns the key prefix of a tag's records. Neither uids nor tag names contain a colon. */
export function historyPrefixOf({ repo, name }: TagName): string {
  return `${historyPrefix}${repo}:${name}/`
}

/** Returns the key of the record with this time, in milliseconds since 1970. Keys sort by time. */
export function historyKey(tag: TagName, timeMs: number): string {
  return `${historyPrefixOf(tag)}${Math.max(0, timeMs).toString(16).padStart(12, '0')}`
}

/** Number of records between two marks. A store may read a whole range to return its first key, so reads use ranges that end at a mark. */
const markEvery = 512n

/** Key prefix of marks. A mark is this prefix with the key of its record, and has no value. */
const historyMarkPrefix = 'x/history-mark/'

function historyMarkKey(tag: TagName, timeMs: number): string {
  return historyMarkPrefix + historyKey(tag, timeMs).slice(historyPrefix.length)
}

/** Returns the time in a record's key, in milliseconds since 1970. */
export function historyTimeMs(key: string): number {
  return Number.parseInt(key.slice(-12), 16)
}

/** One record of a tag's history: the digest that the tag pointed to from this time on. */
export interface Move {
  readonly timeMs: number
  readonly digest: Digest
}

/** The newest record of a tag's history, and the entry to guard in a transaction. */
export interface TagHead {
  readonly entry: Entry | undefined
  readonly head: HistoryHead | undefined
}

/** Returns the writes for one record, including its mark if it has one. */
export function historyWrites(tag: TagName, record: { timeMs: number; digest: Digest | ''; sequence: bigint }): Write[] {
  const { timeMs, digest, sequence } = record
  const value = toBinary(HistoryRecordSchema, create(HistoryRecordSchema, { digest, sequence }))
  const write: Write = { kind: 'put', key: historyKey(tag, timeMs), value }
  return sequence % markEvery === 0n ? [write, { kind: 'put', key: historyMarkKey(tag, timeMs), value: new Uint8Array() }] : [write]
}

/** Returns the keys that a record with this time may have: its own, and that of a mark. */
export function historyKeysAt(tag: TagName, timeMs: number): string[] {
  return [historyKey(tag, timeMs), historyMarkKey(tag, timeMs)]
}

/** Returns the keys of a stored record: its own, and that of its mark if it has one. */
export function historyKeysOf({ key, value }: Entry): string[] {
  const { sequence } = fromBinary(HistoryRecordSchema, value)
  return sequence % markEvery === 0n ? [key, historyMarkPrefix + key.slice(historyPrefix.length)] : [key]
}

/** Reads the newest record of a tag's history. */
export async function readHead(store: Store, tag: TagName, signal: AbortSignal): Promise<TagHead> {
  const entry = await store.get(historyHeadKey(tag), signal)
  return { entry, head: entry === undefined ? undefined : fromBinary(HistoryHeadSchema, entry.value) }
}

/**
 * Adds one record to a tag's history, in the transaction that changes the tag. A guard makes the transaction fail if another record is
 * added first. The record's time is after `notBeforeMs` and after the time of the previous record. Returns the record.
 */
export function appendHistory(changes: ChangeSet, tag: TagName, move: { digest: Digest | ''; nowMs: number; notBeforeMs: number; after: TagHead }): number {
  const { entry, head } = move.after
  const timeMs = Math.max(move.nowMs, move.notBeforeMs, Number(head?.lastTimeMs ?? -1n) + 1)
  const sequence = (head?.sequence ?? 0n) + 1n
  const key = historyHeadKey(tag)
  changes.guard(entry === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: entry.revision })
  const { digest } = move
  changes.write({ kind: 'put', key, value: toBinary(HistoryHeadSchema, create(HistoryHeadSchema, { lastTimeMs: BigInt(timeMs), digest, sequence })) })
  for (const write of historyWrites(tag, { timeMs, digest, sequence })) changes.write(write)
  return timeMs
}

/** A part of a tag's history. */
export interface HistoryWindow extends TagName {
  /** Start, inclusive, in milliseconds since 1970. */
  readonly startMs?: number
  /** End, exclusive, in milliseconds since 1970. */
  readonly endMs?: number
  readonly limit: number
}

function moveOf(entry: Entry): Move {
  const { digest } = fromBinary(HistoryRecordSchema, entry.value)
  // Only appendHistory writes these values: a digest, or nothing for a deletion.
  return { timeMs: historyTimeMs(entry.key), digest: digest as Digest }
}

/** The latest time that a key can have, in milliseconds since 1970. */
const maxTimeMs = 16 ** 12 - 1

/** Returns the key prefix of a tag's marks. */
function markPrefixOf(tag: TagName): string {
  return historyMarkPrefix + historyPrefixOf(tag).slice(historyPrefix.length)
}

/** Returns the time of a mark that is about `limit` records or more after `fromMs`. Returns undefined if fewer records follow. */
async function markAfter(store: Store, tag: TagName & { fromMs: number; limit: number }, signal: AbortSignal): Promise<number | undefined> {
  const { fromMs, limit } = tag
  const count = Math.ceil(limit / Number(markEvery)) + 1
  const after = fromMs <= 0 ? {} : { after: historyMarkKey(tag, Math.min(fromMs, maxTimeMs) - 1) }
  const { entries } = await store.range({ prefix: markPrefixOf(tag), ...after, limit: count }, signal)
  const last = entries.at(-1)
  return entries.length < count || last === undefined ? undefined : historyTimeMs(last.key)
}

/** A period of a tag's history, in milliseconds since 1970. */
interface Span extends TagName {
  /** Start, inclusive. */
  readonly fromMs: number
  /** End, exclusive. */
  readonly endMs: number
}

/** Returns the first `limit` records of the period, including deletions, and the time to continue from if there are more. */
async function recordsIn(
  store: Store,
  span: Span & { limit: number },
  signal: AbortSignal,
): Promise<{ entries: readonly Entry[]; nextMs: number | undefined }> {
  const { fromMs, endMs, limit } = span
  // After the prefix, keys have only hex digits. So the greatest key below `fromMs` is that of the previous millisecond.
  const after = fromMs <= 0 ? {} : { after: historyKey(span, Math.min(fromMs, maxTimeMs) - 1) }
  const before = endMs > maxTimeMs ? {} : { before: historyKey(span, endMs) }
  const { entries, more } = await store.range({ prefix: historyPrefixOf(span), ...after, ...before, limit }, signal)
  const last = entries.at(-1)
  return { entries, nextMs: more && last !== undefined ? historyTimeMs(last.key) + 1 : undefined }
}

/** Returns up to `limit` records from `fromMs` on, including deletions, and the time to continue from if there may be more. */
async function recordsFrom(store: Store, window: Span & { limit: number }, signal: AbortSignal): ReturnType<typeof recordsIn> {
  const markMs = await markAfter(store, window, signal)
  const endMs = markMs === undefined ? window.endMs : Math.min(window.endMs, markMs)
  const { entries, nextMs } = await recordsIn(store, { ...window, endMs }, signal)
  return { entries, nextMs: nextMs ?? (endMs < window.endMs ? endMs : undefined) }
}

/**
 * Returns moves of a tag, oldest first, without deletions. `more` is true if others follow. Returns undefined if the tag never existed.
 * The cost depends on the size of the window, not on the length of the history.
 */
export async function readHistory(
  { store }: { store: Store },
  window: HistoryWindow,
  signal: AbortSignal,
): Promise<{ records: Move[]; more: boolean } | undefined> {
  const { startMs = 0, endMs = Infinity, limit } = window
  const records: Move[] = []
  for (let fromMs: number | undefined = startMs; fromMs !== undefined;) {
    const { entries, nextMs } = await recordsFrom(store, { ...window, fromMs, endMs, limit: limit + 1 - records.length }, signal)
    records.push(...entries.map(moveOf).filter(({ digest }) => digest !== ''))
    if (records.length > limit) return { records: records.slice(0, limit), more: true }
    fromMs = nextMs
  }
  if (records.length === 0 && (await readHead(store, window, signal)).entry === undefined) return undefined
  return { records, more: false }
}

/** Number of entries in one read, if all are wanted. */
const pageEntries = 1_000

/** Returns the times at which the parts of a tag's history begin, oldest first: the start of the history, and each mark up to `untilMs`. */
async function partsOf(store: Store, tag: TagName & { untilMs: number }, signal: AbortSignal): Promise<number[]> {
  const parts = [0]
  const before = tag.untilMs >= maxTimeMs ? {} : { before: historyMarkKey(tag, tag.untilMs + 1) }
  for await (const { key } of entriesOf(store, { prefix: markPrefixOf(tag), ...before }, signal)) parts.push(historyTimeMs(key))
  return parts
}

/** Returns all moves of a part, oldest first, including deletions. */
async function movesIn(store: Store, span: Span, signal: AbortSignal): Promise<Move[]> {
  const moves: Move[] = []
  for (let fromMs: number | undefined = span.fromMs; fromMs !== undefined;) {
    const { entries, nextMs } = await recordsIn(store, { ...span, fromMs, limit: pageEntries }, signal)
    moves.push(...entries.map(moveOf))
    fromMs = nextMs
  }
  return moves
}

/**
 * Returns the digest that the tag pointed to at a time, from the newest record that is not later. Returns an empty text if the tag was deleted then, undefined
 * if it did not exist yet.
 */
export async function historyAt(store: Store, tag: TagName & { timeMs: number }, signal: AbortSignal): Promise<Digest | '' | undefined> {
  const fromMs = (await partsOf(store, { ...tag, untilMs: tag.timeMs }, signal)).at(-1) ?? 0
  return (await movesIn(store, { ...tag, fromMs, endMs: tag.timeMs + 1 }, signal)).at(-1)?.digest
}

/** Number of parts to read in parallel. */
const partsAtOnce = 8

/**
 * Returns true if the tag pointed to the digest at some time in its retained history. Reads newest records first, since restored digests
 * are mostly recent. If the digest is missing, reads all records.
 */
export async function everPointedTo(store: Store, tag: TagName & { digest: Digest }, signal: AbortSignal): Promise<boolean> {
  const parts = await partsOf(store, { ...tag, untilMs: Infinity }, signal)
  const spans = parts.map((fromMs, index) => ({ ...tag, fromMs, endMs: parts[index + 1] ?? Infinity })).toReversed()
  for (let at = 0, atOnce = 1; at < spans.length; at += atOnce, atOnce = partsAtOnce) {
    const found = await Promise.all(spans.slice(at, at + atOnce).map((span) => movesIn(store, span, signal)))
    if (found.flat().some(({ digest }) => digest === tag.digest)) return true
  }
  return false
}
