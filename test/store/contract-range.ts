import { expect, test } from 'vitest'
import type { RangeQuery, Store } from '../../src/store/store.ts'
import { bytes, commit, failureOf, put, remove, soon, text, type StoreUnderTest } from './store-harness.ts'

async function keysOf(store: Store, query: RangeQuery): Promise<string[]> {
  return (await store.range(query, soon())).entries.map((entry) => entry.key)
}

/** get and range: content, order, pages, and revisions. */
export function rangeContract(subject: () => StoreUnderTest): void {
  test('a key that was never written is absent', async () => {
    expect(await subject().store.get('r/none', soon())).toBeUndefined()
  })

  test('a key is read with its value and the revision of its last commit', async () => {
    const { store } = subject()
    await commit(store, put('r/a', 'one'))
    const value = Uint8Array.from({ length: 256 }, (_, index) => index)
    const revision = await commit(store, put('r/a', value))
    await commit(store, put('r/b', 'other'))
    expect(await store.get('r/a', soon())).toMatchObject({ key: 'r/a', revision })
    expect(Uint8Array.from((await store.get('r/a', soon()))?.value ?? [])).toEqual(value)
  })

  test('a range is in byte order, whatever the keys contain', async () => {
    const { store } = subject()
    const keys = ['r/%2F', 'r/-', 'r/0', 'r/0/1', 'r/00', 'r/:', 'r/A', 'r/a', 'r/a b', 'r/a/', 'r/a/b', 'r/a:b', 'r/~', `r/z${'z'.repeat(3000)}`].sort()
    await commit(store, ...keys.toReversed().map((key) => put(key)))
    expect(await keysOf(store, { prefix: 'r/', limit: 100 })).toEqual(keys)
  })

  test('a prefix matches keys that start with it, and no others', async () => {
    const { store } = subject()
    await commit(store, ...['r/a', 'r/a/', 'r/a/x', 'r/a/~', 'r/a0', 'r/a.', 'r/b/x', 's/a/x', 'q/a/x'].map((key) => put(key)))
    expect(await keysOf(store, { prefix: 'r/a/', limit: 100 })).toEqual(['r/a/', 'r/a/x', 'r/a/~'])
    expect(await keysOf(store, { prefix: 'r/a', limit: 100 })).toEqual(['r/a', 'r/a.', 'r/a/', 'r/a/x', 'r/a/~', 'r/a0'])
    expect(await keysOf(store, { prefix: '', limit: 100 })).toHaveLength(9)
    expect(await keysOf(store, { prefix: 'none/', limit: 100 })).toEqual([])
  })

  test('pages follow one another without gap or repetition, and the last one says that it is the last', async () => {
    const { store } = subject()
    const keys = Array.from({ length: 25 }, (_, index) => `r/p/${String(index).padStart(2, '0')}`)
    await commit(store, ...keys.map((key) => put(key, key)))
    const seen: string[] = []
    const more: boolean[] = []
    for (let after = ''; ;) {
      const page = await store.range({ prefix: 'r/p/', after, limit: 10 }, soon())
      seen.push(...page.entries.map((entry) => text(entry.value) ?? ''))
      more.push(page.more)
      after = page.entries.at(-1)?.key ?? ''
      if (!page.more) break
    }
    expect(seen).toEqual(keys)
    expect(more).toEqual([true, true, false])
    expect((await store.range({ prefix: 'r/p/', limit: 25 }, soon())).more).toBe(false)
    expect(await keysOf(store, { prefix: 'r/p/', after: 'r/p/~', limit: 5 })).toEqual([])
    expect(await keysOf(store, { prefix: 'r/p/', after: 'a', limit: 1 })).toEqual(['r/p/00'])
  })

  test('a range ends before a given key, at the current and at an earlier revision', async () => {
    const { store } = subject()
    await commit(store, ...['r/a', 'r/b', 'r/b/', 'r/c', 'r/d', 's/a'].map((key) => put(key)))
    const { revision } = await store.range({ prefix: 'r/', limit: 1 }, soon())
    await commit(store, remove('r/b'), put('r/bb'), remove('r/d'))
    expect(await keysOf(store, { prefix: 'r/', before: 'r/c', limit: 100 })).toEqual(['r/a', 'r/b/', 'r/bb'])
    expect(await keysOf(store, { prefix: 'r/', after: 'r/a', before: 'r/c', limit: 1 })).toEqual(['r/b/'])
    expect(await keysOf(store, { prefix: 'r/', before: 'r/c', limit: 100, revision })).toEqual(['r/a', 'r/b', 'r/b/'])
    expect(await keysOf(store, { prefix: 'r/', before: 't', limit: 100 })).toEqual(['r/a', 'r/b/', 'r/bb', 'r/c'])
    expect(await keysOf(store, { prefix: '', before: 'z', limit: 100 })).toHaveLength(5)
    expect(await keysOf(store, { prefix: 'r/', before: 'a', limit: 100 })).toEqual([])
    expect(await keysOf(store, { prefix: 'r/', after: 'r/c', before: 'r/b', limit: 100 })).toEqual([])
    expect((await store.range({ prefix: 'r/', before: 'r/c', limit: 3 }, soon())).more).toBe(false)
    expect((await store.range({ prefix: 'r/', before: 'r/c', limit: 2 }, soon())).more).toBe(true)
  })

  test('a limit below one throws', async () => {
    await expect(subject().store.range({ prefix: 'r/', limit: 0 }, soon())).rejects.toBeInstanceOf(TypeError)
  })

  test('a range returns its revision', async () => {
    const { store } = subject()
    const revision = await commit(store, put('r/a'))
    expect((await store.range({ prefix: 'r/', limit: 1 }, soon())).revision).toBeGreaterThanOrEqual(revision)
  })

  test('a range at an earlier revision returns the data of that time, page by page', async () => {
    const { store } = subject()
    await commit(store, put('r/a', '1'), put('r/b', '1'), put('r/c', '1'))
    const { revision } = await store.range({ prefix: 'r/', limit: 1 }, soon())
    await commit(store, put('r/a', '2'), remove('r/b'), put('r/bb', '2'), put('x/other', '2'))
    await commit(store, put('r/a', '3'), put('r/b', '3'))
    const then = await store.range({ prefix: 'r/', limit: 10, revision }, soon())
    expect(then.entries.map((entry) => `${entry.key}=${text(entry.value)}`)).toEqual(['r/a=1', 'r/b=1', 'r/c=1'])
    expect(await keysOf(store, { prefix: 'r/', after: 'r/a', limit: 1, revision })).toEqual(['r/b'])
    expect(await keysOf(store, { prefix: 'r/', after: 'r/b', limit: 1, revision })).toEqual(['r/c'])
    expect(await keysOf(store, { prefix: 'r/', limit: 10 })).toEqual(['r/a', 'r/b', 'r/bb', 'r/c'])
  })

  test('a range at a revision that is no longer kept fails with compacted', async () => {
    const { store, forgetHistory } = subject()
    const revision = await commit(store, put('r/a', '1'))
    await commit(store, put('r/a', '2'))
    await forgetHistory()
    expect(await failureOf(store.range({ prefix: 'r/', limit: 1, revision }, soon()))).toBe('compacted')
  })

  test('a range of many large values is complete', async () => {
    const { store } = subject()
    const value = new Uint8Array(600 * 1024).fill(7)
    for (const name of ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j']) await commit(store, put(`r/large/${name}`, value))
    const { entries } = await store.range({ prefix: 'r/large/', limit: 10 }, soon())
    expect(entries.map((entry) => entry.value.length)).toEqual(Array.from({ length: 10 }, () => value.length))
  })

  test('an aborted signal rejects every read with its reason', async () => {
    const { store } = subject()
    const reason = new Error('not needed any more')
    const signal = AbortSignal.abort(reason)
    await expect(store.get('r/a', signal)).rejects.toBe(reason)
    await expect(store.range({ prefix: 'r/', limit: 1 }, signal)).rejects.toBe(reason)
    await expect(store.revision(signal)).rejects.toBe(reason)
  })

  test('a returned value belongs to the caller, who may change it', async () => {
    const { store } = subject()
    const value = bytes('kept')
    await commit(store, put('r/a', value))
    value.fill(0)
    ;(await store.get('r/a', soon()))?.value.fill(0)
    expect(text((await store.get('r/a', soon()))?.value)).toBe('kept')
  })
}
