import { expect, test } from 'vitest'
import { watchedPrefixes } from '../../src/store/keys.ts'
import { storeRevision } from '../../src/store/store.ts'
import { commit, failureOf, put, record, remove, soon, until, type StoreUnderTest } from './store-harness.ts'

/** watch and revision: each commit once, in order and complete, and the barrier for readers. */
export function watchContract(subject: () => StoreUnderTest): void {
  test('a watch delivers each later commit once, in order', async () => {
    const { store, peer } = subject()
    const other = peer()
    const start = await commit(store, put('r/a', '0'))
    const watch = record(store, ['r/'], start)
    const expected: string[] = []
    for (let round = 1; round <= 20; round++) {
      const revision = await commit(round % 2 === 0 ? store : other, put('r/a', `${round}`))
      expected.push(`r/a=${round}@${revision}`)
    }
    const last = await commit(store, remove('r/a'))
    await watch.reached(last)
    expect(watch.lines()).toEqual([...expected, `r/a@${last}`])
  })

  test('a watch from an earlier revision catches up, then continues', async () => {
    const { store } = subject()
    const start = await commit(store, put('r/a', '0'))
    const first = await commit(store, put('r/a', '1'))
    const second = await commit(store, put('r/a', '2'))
    const watch = record(store, ['r/'], start)
    await watch.reached(second)
    const third = await commit(store, put('r/a', '3'))
    await watch.reached(third)
    expect(watch.lines()).toEqual([`r/a=1@${first}`, `r/a=2@${second}`, `r/a=3@${third}`])
  })

  test('many commits before the watch arrive in order and complete', async () => {
    const { store } = subject()
    const start = await commit(store, put('r/start'))
    const revisions = await Promise.all(Array.from({ length: 1500 }, (_, index) => commit(store, put(`r/n/${index}`))))
    const watch = record(store, ['r/'], start)
    await watch.reached(storeRevision(Math.max(...revisions)))
    const seen = watch.batches.flatMap((batch) => batch.changes.map((change) => change.revision))
    expect(seen).toEqual(revisions.toSorted((a, b) => a - b))
  })

  test('a commit is never split over two batches', async () => {
    const { store } = subject()
    const start = await commit(store, put('r/start'))
    const watch = record(store, watchedPrefixes, start)
    const large = new Uint8Array(11_000)
    const keys = Array.from({ length: 120 }, (_, index) => `r/whole/${String(index).padStart(3, '0')}`)
    for (let round = 0; round < 5; round++)
      await commit(store, ...keys.map((key) => put(key, large)), put('i/index', `${round}`), put('meta/version', `${round}`))
    const last = await commit(store, put('r/end'))
    await watch.reached(last)
    const batchesOf = new Map<number, Set<number>>()
    for (const [index, batch] of watch.batches.entries()) {
      for (const change of batch.changes) batchesOf.set(change.revision, (batchesOf.get(change.revision) ?? new Set()).add(index))
    }
    expect([...batchesOf.values()].map((batches) => batches.size)).toEqual(Array.from({ length: 6 }, () => 1))
    expect(watch.batches.flatMap((batch) => batch.changes)).toHaveLength(5 * 122 + 1)
    for (const batch of watch.batches) expect(batch.revision).toBeGreaterThanOrEqual(Math.max(0, ...batch.changes.map((change) => change.revision)))
  })

  test('a watch of several prefixes delivers their commits and no others', async () => {
    const { store } = subject()
    const start = await commit(store, put('r/start'))
    const watch = record(store, ['i/', 'r/a/'], start)
    const only = await commit(store, put('x/other'), put('r/b/1'), put('r/a'), put('meta/version'))
    const both = await commit(store, put('i/name'), put('r/a/1'), put('x/log'))
    await watch.reached(both)
    expect(watch.lines().toSorted()).toEqual([`i/name=@${both}`, `r/a/1=@${both}`])
    expect(only).toBeLessThan(both)
  })

  test('two concurrent watches each deliver everything', async () => {
    const { store } = subject()
    const start = await commit(store, put('r/start'))
    const watches = [record(store, ['r/'], start), record(store, ['r/'], start)]
    const last = await commit(store, put('r/a', '1'))
    await Promise.all(watches.map((watch) => watch.reached(last)))
    for (const watch of watches) expect(watch.lines()).toEqual([`r/a=1@${last}`])
  })

  test('a watch that continues after the last batch of a broken one misses and repeats nothing', async () => {
    const { store } = subject()
    const start = await commit(store, put('r/start'))
    const stop = new AbortController()
    const before = record(store, ['r/'], start, stop.signal)
    const revisions = [await commit(store, put('r/n', '0')), await commit(store, put('r/n', '1'))]
    await until(() => before.batches.length > 0)
    stop.abort(new Error('broken'))
    await expect(before.ended).rejects.toThrow('broken')
    for (let round = 2; round < 6; round++) revisions.push(await commit(store, put('r/n', `${round}`)))
    const after = record(store, ['r/'], before.batches.at(-1)?.revision ?? start)
    await after.reached(revisions.at(-1) ?? start)
    expect([...before.lines(), ...after.lines()]).toEqual(revisions.map((revision, index) => `r/n=${index}@${revision}`))
  })

  test('a watch from a revision that is no longer kept ends with compacted', async () => {
    const { store, forgetHistory } = subject()
    const start = await commit(store, put('r/a', '1'))
    await commit(store, put('r/a', '2'))
    await commit(store, put('r/a', '3'))
    await forgetHistory()
    expect(await failureOf(record(store, ['r/'], start).ended)).toBe('compacted')
  })

  test('a watch from a revision that the store has not reached ends with replaced', async () => {
    const { store } = subject()
    const revision = await commit(store, put('r/a'))
    expect(await failureOf(record(store, ['r/'], storeRevision(revision + 1_000_000)).ended)).toBe('replaced')
  })

  test('a watch ends with its signal’s reason', async () => {
    const { store } = subject()
    const start = await commit(store, put('r/a'))
    const stop = new AbortController()
    const watch = record(store, ['r/'], start, stop.signal)
    await watch.reached(await commit(store, put('r/a')))
    const reason = new Error('enough')
    stop.abort(reason)
    await expect(watch.ended).rejects.toBe(reason)
    await expect(record(store, ['r/'], start, stop.signal).ended).rejects.toBe(reason)
  })

  test('revision is at least that of every acknowledged commit, and the watch reaches it', async () => {
    const { store, peer } = subject()
    const other = peer()
    const { revision: start } = await store.range({ prefix: 'r/', limit: 1 }, soon())
    const watch = record(store, watchedPrefixes, start)
    for (let round = 0; round < 10; round++) {
      const acknowledged = await commit(other, put(`r/n/${round}`))
      const barrier = await store.revision(soon())
      expect(barrier).toBeGreaterThanOrEqual(acknowledged)
      await watch.reached(barrier)
      expect(watch.lines()).toContain(`r/n/${round}=@${acknowledged}`)
    }
  })

  test('the watch reaches revision also after commits outside its prefixes', async () => {
    const { store } = subject()
    await commit(store, put('r/a'))
    const { revision: start } = await store.range({ prefix: 'r/', limit: 1 }, soon())
    const watch = record(store, watchedPrefixes, start)
    await commit(store, put('x/log/1'))
    await commit(store, remove('r/missing'), put('x/log/2'))
    const barrier = await store.revision(soon())
    if (barrier > start) await watch.reached(barrier)
    const last = await commit(store, put('r/b'))
    await watch.reached(last)
    expect(watch.lines()).toEqual([`r/b=@${last}`])
  })

  test('revision of an empty store is not newer than a range', async () => {
    const { store } = subject()
    const barrier = await store.revision(soon())
    expect((await store.range({ prefix: 'r/', limit: 1 }, soon())).revision).toBeGreaterThanOrEqual(barrier)
  })
}
