import { expect, test } from 'vitest'
import { failureOf, timeoutMs, soon, until, type StoreUnderTest } from './store-harness.ts'

/** Resolves when `signal` has aborted; fails after a while. */
async function aborted(signal: AbortSignal): Promise<void> {
  await until(() => signal.aborted)
}

/** elect: one leader at a time, and the end of leadership. */
export function electionContract(subject: () => StoreUnderTest): void {
  test('one candidate leads at a time; when it resigns the next does', async () => {
    const { store, peer } = subject()
    const other = peer()
    let leaders = 0
    let most = 0
    const terms = [store, other, store, other].map(async (candidate) => {
      const leadership = await candidate.elect('sweeper', AbortSignal.timeout(2 * timeoutMs))
      leaders++
      most = Math.max(most, leaders)
      await candidate.get('r/none', soon())
      expect(leadership.lost.aborted).toBe(false)
      leaders--
      await leadership.resign()
      expect(leadership.lost.aborted).toBe(true)
    })
    await Promise.all(terms)
    expect(most).toBe(1)
  })

  test('elections with different names are independent', async () => {
    const { store } = subject()
    const first = await store.elect('sweeper', soon())
    const second = await store.elect('sweeper/other', soon())
    expect([first.lost.aborted, second.lost.aborted]).toEqual([false, false])
    await Promise.all([first.resign(), second.resign()])
  })

  test('a candidate that gives up is skipped', async () => {
    const { store, peer } = subject()
    const first = await store.elect('sweeper', soon())
    const stop = new AbortController()
    const reason = new Error('enough')
    const waiting = peer().elect('sweeper', stop.signal)
    const third = store.elect('sweeper', soon())
    stop.abort(reason)
    await expect(waiting).rejects.toBe(reason)
    await first.resign()
    const leadership = await third
    expect(leadership.lost.aborted).toBe(false)
    await leadership.resign()
  })

  test('resigning twice has no further effect', async () => {
    const { store } = subject()
    const first = await store.elect('sweeper', soon())
    await first.resign()
    const second = await store.elect('sweeper', soon())
    await first.resign()
    expect(second.lost.aborted).toBe(false)
    await second.resign()
  })

  test('closing the store ends leadership and waits', async () => {
    const { store, peer } = subject()
    const other = peer()
    const leadership = await store.elect('sweeper', soon())
    const waiting = failureOf(store.elect('sweeper', soon()))
    await store.close()
    await aborted(leadership.lost)
    expect(await waiting).toBe('closed')
    if (other === store) return
    const next = await other.elect('sweeper', soon())
    await next.resign()
  })
}
