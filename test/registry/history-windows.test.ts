import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { create, toBinary } from '@bufbuild/protobuf'
import { expect, onTestFinished, test } from 'vitest'
import type { Digest } from '../../src/base/digest.ts'
import { HistoryHeadSchema } from '../../src/gen/taproot/store/v1/registry_pb.ts'
import { everPointedTo, historyAt, historyHeadKey, historyWrites, readHistory } from '../../src/registry/tags/tag-history.ts'
import { Expirer } from '../../src/domains/expire.ts'
import { createSqliteStore } from '../../src/store/sqlite/sqlite-store.ts'
import type { RangeQuery, Store } from '../../src/store/store.ts'

const tag = { repo: `${'a'.repeat(40)}/${'1'.repeat(16)}`, name: 'latest' }
const { signal } = new AbortController()
const count = 3_000
const startMs = Date.UTC(2026, 0, 1)

/** Moves at uneven times; each seventh is a deletion, and 1,100 consecutive ones are. */
const moves = Array.from({ length: count }, (_, at) => ({
  timeMs: startMs + at * 1_000 + (at % 3) * 300 + (at > 2_000 ? 90 * 86_400_000 : 0),
  digest: (at % 7 === 3 || (at >= 600 && at < 1_700) ? '' : `sha256:${at.toString(16).padStart(64, '0')}`) as Digest | '', // a cast: as long as a real one
}))

async function storeWithMoves(): Promise<Store> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-history-'))
  const store = createSqliteStore({ path: join(directory, 'store.db'), log: { debug() {}, info() {}, warn() {}, error() {} } })
  onTestFinished(async () => {
    await store.close()
    await rm(directory, { recursive: true, force: true })
  })
  const writes = moves.flatMap((move, at) => historyWrites(tag, { ...move, sequence: BigInt(at + 1) }))
  for (let at = 0; at < writes.length; at += 100) await store.transact({ guards: [], writes: writes.slice(at, at + 100) }, signal)
  const head = create(HistoryHeadSchema, { lastTimeMs: BigInt(moves.at(-1)?.timeMs ?? 0), digest: moves.at(-1)?.digest ?? '', sequence: BigInt(count) })
  await store.transact({ guards: [], writes: [{ kind: 'put', key: historyHeadKey(tag), value: toBinary(HistoryHeadSchema, head) }] }, signal)
  return store
}

test('every window of a long history contains exactly its records, whatever the page size', async () => {
  const store = await storeWithMoves()
  const at = (index: number): number => moves[index]?.timeMs ?? Infinity
  for (const limit of [1, 10, 511, 1_000, 5_000]) {
    for (const from of [undefined, 0, 1, 510, 511, 512, 599, 600, 1_023, 1_699, 2_001, 2_999]) {
      for (const to of [undefined, 1, 512, 700, 1_701, 2_999]) {
        if (to !== undefined && to <= (from ?? 0)) continue
        const window = { ...(from === undefined ? {} : { startMs: at(from) }), ...(to === undefined ? {} : { endMs: at(to) }) }
        const expected = moves.slice(from ?? 0, to).filter(({ digest }) => digest !== '')
        const found = await readHistory({ store }, { ...tag, ...window, limit }, signal)
        expect(found, `${from} to ${to}, ${limit} at most`).toEqual({ records: expected.slice(0, limit), more: expected.length > limit })
      }
    }
  }
})

test('a digest is found anywhere in a long history, and other digests are not', async () => {
  const store = await storeWithMoves()
  for (const index of [0, 512, 1_705, 2_999]) expect(await everPointedTo(store, { ...tag, digest: moves[index]?.digest as Digest }, signal)).toBe(true) // a cast: none of these is a deletion
  expect(await everPointedTo(store, { ...tag, digest: `sha256:${'f'.repeat(64)}` as Digest }, signal)).toBe(false)
})

test('a look-up of a time, or of a recent digest, reads few records of a long history', async () => {
  const store = await storeWithMoves()
  const asked: RangeQuery[] = []
  const range: Store['range'] = (query, among) => {
    asked.push(query)
    return store.range(query, among)
  }
  const watched = new Proxy(store, { get: (target, property) => (property === 'range' ? range : Reflect.get(target, property)) })
  for (const index of [0, 1, 511, 512, 1_023, 1_500, 2_000, 2_001, 2_999]) {
    const { timeMs, digest } = moves[index] ?? { timeMs: 0, digest: '' }
    expect(await historyAt(watched, { ...tag, timeMs }, signal)).toBe(digest)
    expect(await historyAt(watched, { ...tag, timeMs: timeMs + 1 }, signal)).toBe(digest)
  }
  expect(await historyAt(watched, { ...tag, timeMs: startMs - 1 }, signal)).toBeUndefined()
  expect(await historyAt(watched, { ...tag, timeMs: Number.MAX_SAFE_INTEGER }, signal)).toBe(moves.at(-1)?.digest)
  expect(await everPointedTo(watched, { ...tag, digest: moves[2_990]?.digest as Digest }, signal)).toBe(true) // a cast: no deletion
  // A store may scan a whole range for its first key.
  const spans = await Promise.all(
    asked.map(async ({ prefix, after, before }) => {
      const bounds = { ...(after === undefined ? {} : { after }), ...(before === undefined ? {} : { before }) }
      return (await store.range({ prefix, ...bounds, limit: 10_000 }, signal)).entries.length
    }),
  )
  expect(Math.max(...spans)).toBeLessThanOrEqual(512)
})

test('expired history is removed completely', async () => {
  const store = await storeWithMoves()
  await new Expirer(store, { history: { maxMoves: 10 } }).expire(startMs, signal)
  const { entries } = await store.range({ prefix: 'x/history', limit: 1_000 }, signal)
  expect(entries.length).toBe(11)
  const found = await readHistory({ store }, { ...tag, limit: 1_000 }, signal)
  expect(found?.records).toEqual(moves.slice(-10).filter(({ digest }) => digest !== ''))
})

test('the history of a tag deleted long ago is removed completely, with its index entries', async () => {
  const store = await storeWithMoves()
  const timeMs = (moves.at(-1)?.timeMs ?? 0) + 1_000
  const sequence = 3_072n
  const head = create(HistoryHeadSchema, { lastTimeMs: BigInt(timeMs), digest: '', sequence })
  const writes = historyWrites(tag, { timeMs, digest: '', sequence })
  expect(writes).toHaveLength(2)
  await store.transact({ guards: [], writes: [...writes, { kind: 'put', key: historyHeadKey(tag), value: toBinary(HistoryHeadSchema, head) }] }, signal)
  const dayMs = 86_400_000
  await new Expirer(store, { history: { maxAgeMs: dayMs } }).expire(timeMs + 2 * dayMs, signal)
  expect((await store.range({ prefix: 'x/history', limit: 10 }, signal)).entries).toEqual([])
})
