import { expect, test } from 'vitest'
import { commit, committed, failureOf, put, record, remove, soon, text, until, type StoreUnderTest } from './store-harness.ts'

/** close and restart. */
export function lifecycleContract(subject: () => StoreUnderTest): void {
  test('a reopened store has all its data, and its revisions continue', async () => {
    const { store, reopen } = subject()
    await commit(store, put('r/a', '1'), put('r/b', '1'))
    const last = await commit(store, put('r/a', '2'), remove('r/b'))
    const again = await reopen()
    expect(await again.get('r/a', soon())).toMatchObject({ revision: last })
    expect(await again.get('r/b', soon())).toBeUndefined()
    expect(await again.revision(soon())).toBeGreaterThanOrEqual(last)
    const guarded = await again.transact({ guards: [{ kind: 'unchanged', key: 'r/a', revision: last }], writes: [put('r/a', '3')] }, soon())
    expect(committed(guarded)).toBeGreaterThan(last)
    expect(text((await again.get('r/a', soon()))?.value)).toBe('3')
  })

  test('a watch of a reopened store continues from the last revision', async () => {
    const { store, reopen } = subject()
    const last = await commit(store, put('r/a', '1'))
    const again = await reopen()
    const watch = record(again, ['r/'], last)
    const next = await commit(again, put('r/a', '2'))
    await watch.reached(next)
    expect(watch.lines()).toEqual([`r/a=2@${next}`])
  })

  test('close ends running calls with closed', async () => {
    const { store } = subject()
    const start = await commit(store, put('r/a'))
    const watch = record(store, ['r/'], start)
    const last = await commit(store, put('r/b'))
    await until(() => watch.batches.some((batch) => batch.revision >= last))
    const running = failureOf(store.get('r/a', soon()).then(() => store.range({ prefix: 'r/', limit: 1 }, soon())))
    const writing = failureOf(commit(store, put('r/c')))
    const ended = failureOf(watch.ended)
    await store.close()
    expect(await ended).toBe('closed')
    expect(await running).toBe('closed')
    // Sent transactions may commit.
    expect(['closed', 'indeterminate']).toContain(await writing)
  })

  test('every call after close fails with closed, and a second close has no effect', async () => {
    const { store } = subject()
    const start = await commit(store, put('r/a'))
    await store.close()
    await store.close()
    const calls = [
      store.get('r/a', soon()),
      store.range({ prefix: 'r/', limit: 1 }, soon()),
      commit(store, put('r/a')),
      store.revision(soon()),
      store.elect('sweeper', soon()),
      record(store, ['r/'], start).ended,
    ]
    expect(await Promise.all(calls.map(failureOf))).toEqual(calls.map(() => 'closed'))
  })
}
