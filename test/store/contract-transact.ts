import { expect, test } from 'vitest'
import { storeRevision, type Guard } from '../../src/store/store.ts'
import { maxTransactionBytes, maxTransactionOperations } from '../../src/store/transaction-limits.ts'
import { commit, committed, failureOf, put, remove, soon, text, type StoreUnderTest } from './store-harness.ts'

/** Guards, and their results if only `r/there` and `r/full/x` exist. `stale` is an earlier revision of `r/there`. */
const guardRows: readonly { title: string; guard: Guard | 'current' | 'stale'; holds: boolean }[] = [
  { title: 'unchanged holds at the revision that was read', guard: 'current', holds: true },
  { title: 'unchanged fails after a change', guard: 'stale', holds: false },
  { title: 'unchanged fails on an absent key', guard: { kind: 'unchanged', key: 'r/missing', revision: storeRevision(1) }, holds: false },
  { title: 'absent holds on an absent key', guard: { kind: 'absent', key: 'r/missing' }, holds: true },
  { title: 'absent fails on a present key', guard: { kind: 'absent', key: 'r/there' }, holds: false },
  { title: 'absent fails on an empty value', guard: { kind: 'absent', key: 'r/full/x' }, holds: false },
  { title: 'absent holds on a prefix of a present key', guard: { kind: 'absent', key: 'r/full/' }, holds: true },
  { title: 'exists holds on a present key', guard: { kind: 'exists', key: 'r/there' }, holds: true },
  { title: 'exists fails on an absent key', guard: { kind: 'exists', key: 'r/missing' }, holds: false },
  { title: 'empty holds on a prefix without keys', guard: { kind: 'empty', prefix: 'r/void/' }, holds: true },
  { title: 'empty fails on a prefix with a key', guard: { kind: 'empty', prefix: 'r/full/' }, holds: false },
  { title: 'empty ignores a sibling prefix', guard: { kind: 'empty', prefix: 'r/ful/' }, holds: true },
]

/** Prefixes with a revision since which they must be unchanged. `first` is that of the first version of `r/there` and of `r/full/x`. */
const quietRows: readonly { title: string; prefix: string; since: 'first' | 'second'; holds: boolean }[] = [
  { title: 'quiet holds on a prefix without later writes', prefix: 'r/full/', since: 'first', holds: true },
  { title: 'quiet fails on a prefix with a later version', prefix: 'r/the', since: 'first', holds: false },
  { title: 'quiet holds at the revision of the last version', prefix: 'r/the', since: 'second', holds: true },
  { title: 'quiet holds on a prefix without keys', prefix: 'r/void/', since: 'first', holds: true },
  { title: 'quiet ignores a sibling prefix', prefix: 'r/ther/', since: 'first', holds: true },
]

/** transact: guards, atomicity, races and limits. */
export function transactContract(subject: () => StoreUnderTest): void {
  test.each(guardRows)('$title', async ({ guard, holds }) => {
    const { store } = subject()
    const stale = await commit(store, put('r/there', '1'), put('r/full/x'))
    const current = await commit(store, put('r/there', '2'))
    const tested: Guard = typeof guard === 'object' ? guard : { kind: 'unchanged', key: 'r/there', revision: guard === 'current' ? current : stale }
    const outcome = await store.transact({ guards: [tested], writes: [put('r/result', 'written')] }, soon())
    expect(outcome.committed).toBe(holds)
    expect(text((await store.get('r/result', soon()))?.value)).toBe(holds ? 'written' : undefined)
  })

  test.each(quietRows)('$title', async ({ prefix, since, holds }) => {
    const { store } = subject()
    const first = await commit(store, put('r/there', '1'), put('r/full/x'))
    const second = await commit(store, put('r/there', '2'))
    const guard: Guard = { kind: 'quiet', prefix, revision: since === 'first' ? first : second }
    const outcome = await store.transact({ guards: [guard], writes: [put('r/result', 'written')] }, soon())
    expect(outcome.committed).toBe(holds)
  })

  test('quiet detects a new key', async () => {
    const { store } = subject()
    const first = await commit(store, put('r/full/x'))
    await commit(store, put('r/full/y'))
    const outcome = await store.transact({ guards: [{ kind: 'quiet', prefix: 'r/full/', revision: first }], writes: [put('r/result')] }, soon())
    expect(outcome.committed).toBe(false)
  })

  test('all guards must hold, and a conflict writes nothing', async () => {
    const { store } = subject()
    const revision = await commit(store, put('r/a', '1'), put('r/b', '1'))
    const guards: Guard[] = [
      { kind: 'unchanged', key: 'r/a', revision },
      { kind: 'empty', prefix: 'r/a/' },
      { kind: 'exists', key: 'r/b' },
      { kind: 'absent', key: 'r/c' },
    ]
    const writes = [put('r/a', '2'), remove('r/b'), put('r/c', '2')]
    const conflict = await store.transact({ guards: [...guards, { kind: 'absent', key: 'r/b' }], writes }, soon())
    expect(conflict).toEqual({ committed: false })
    expect(await store.get('r/a', soon())).toMatchObject({ revision })
    expect(await store.get('r/b', soon())).toMatchObject({ revision })
    const second = committed(await store.transact({ guards, writes }, soon()))
    expect(second).toBeGreaterThan(revision)
    expect(await store.get('r/a', soon())).toMatchObject({ revision: second })
    expect(await store.get('r/b', soon())).toBeUndefined()
    expect(await store.get('r/c', soon())).toMatchObject({ revision: second })
  })

  test('of many transactions that guard one revision exactly one succeeds', async () => {
    const { store, peer } = subject()
    const revision = await commit(store, put('r/contended', 'start'))
    const other = peer()
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        (index % 2 === 0 ? store : other).transact(
          { guards: [{ kind: 'unchanged', key: 'r/contended', revision }], writes: [put('r/contended', `${index}`), put(`r/won/${index}`)] },
          soon(),
        ),
      ),
    )
    const winners = outcomes.flatMap((outcome, index) => (outcome.committed ? [index] : []))
    expect(winners).toHaveLength(1)
    expect(text((await store.get('r/contended', soon()))?.value)).toBe(`${winners[0]}`)
    expect((await store.range({ prefix: 'r/won/', limit: 10 }, soon())).entries.map((entry) => entry.key)).toEqual([`r/won/${winners[0]}`])
  })

  test('creating a child and removing its empty parent never both succeed', async () => {
    const { store, peer } = subject()
    const other = peer()
    for (let round = 0; round < 10; round++) {
      const parent = `r/race/${round}`
      await commit(store, put(parent))
      const [made, removed] = await Promise.all([
        store.transact({ guards: [{ kind: 'exists', key: parent }], writes: [put(`${parent}/child`)] }, soon()),
        other.transact(
          {
            guards: [
              { kind: 'exists', key: parent },
              { kind: 'empty', prefix: `${parent}/` },
            ],
            writes: [remove(parent)],
          },
          soon(),
        ),
      ])
      expect([made.committed, removed.committed].filter(Boolean)).toHaveLength(1)
    }
  })

  test('of many concurrent transactions only the one with a failing guard conflicts', async () => {
    const { store } = subject()
    await commit(store, put('r/taken'))
    const crowd = Array.from({ length: 60 }, (_, at) => (at === 30 ? 'r/taken' : `r/crowd/${at}`))
    const outcomes = await Promise.all(crowd.map((key) => store.transact({ guards: [{ kind: 'absent', key }], writes: [put(key, 'mine')] }, soon())))
    expect(outcomes.flatMap((outcome, at) => (outcome.committed ? [] : [crowd[at]]))).toEqual(['r/taken'])
    const held = await Promise.all(crowd.map(async (key) => text((await store.get(key, soon()))?.value)))
    expect(held.filter((value) => value === 'mine')).toHaveLength(59)
  })

  test('concurrent read-modify-write changes lose nothing', async () => {
    const { store } = subject()
    const accounts = ['r/a', 'r/b', 'r/c', 'r/d']
    for (const key of accounts) await commit(store, put(key, '100'))
    let commits = 0
    const move = async (from: string, to: string): Promise<void> => {
      for (;;) {
        const [source, target] = await Promise.all([store.get(from, soon()), store.get(to, soon())])
        if (source === undefined || target === undefined) throw new Error('an account is gone')
        const guards = [source, target].map(({ key, revision }): Guard => ({ kind: 'unchanged', key, revision }))
        const writes = [put(from, String(Number(text(source.value)) - 1)), put(to, String(Number(text(target.value)) + 1)), put(`r/moved/${commits++}`)]
        if ((await store.transact({ guards, writes }, soon())).committed) return
      }
    }
    const workers = Array.from({ length: 12 }, async (_, worker) => {
      for (let step = 0; step < 4; step++) await move(accounts[(worker + step) % 4] ?? '', accounts[(worker + step + 1 + (worker % 3)) % 4] ?? '')
    })
    await Promise.all(workers)
    const held = await Promise.all(accounts.map(async (key) => Number(text((await store.get(key, soon()))?.value))))
    expect(held.reduce((sum, amount) => sum + amount, 0)).toBe(400)
    expect((await store.range({ prefix: 'r/moved/', limit: 1000 }, soon())).entries).toHaveLength(48)
  })

  test('every commit has a greater revision than the one before', async () => {
    const { store } = subject()
    const revisions: number[] = []
    for (let round = 0; round < 5; round++) revisions.push(await commit(store, put('r/a', `${round}`), put('x/log', `${round}`)))
    expect(revisions).toEqual([...new Set(revisions)].sort((a, b) => a - b))
  })

  test('a transaction without writes only tests its guards', async () => {
    const { store } = subject()
    await commit(store, put('r/a'))
    expect((await store.transact({ guards: [{ kind: 'exists', key: 'r/a' }], writes: [] }, soon())).committed).toBe(true)
    expect((await store.transact({ guards: [{ kind: 'absent', key: 'r/a' }], writes: [] }, soon())).committed).toBe(false)
  })

  test('removing a missing key commits and changes nothing', async () => {
    const { store } = subject()
    const outcome = await store.transact({ guards: [], writes: [remove('r/missing'), put('r/a')] }, soon())
    expect(await store.get('r/a', soon())).toMatchObject({ revision: committed(outcome) })
  })

  test('a key written twice, or an empty key, throws', async () => {
    const { store } = subject()
    await expect(commit(store, put('r/a', '1'), put('r/a', '2'))).rejects.toBeInstanceOf(TypeError)
    await expect(commit(store, put('r/a', '1'), remove('r/a'))).rejects.toBeInstanceOf(TypeError)
    await expect(commit(store, put('', '1'))).rejects.toBeInstanceOf(TypeError)
    expect(await store.get('r/a', soon())).toBeUndefined()
  })

  test.each([0, 1, 600 * 1024])('a value of %i bytes is stored unchanged', async (size) => {
    const { store } = subject()
    const value = Uint8Array.from({ length: size }, (_, index) => index % 251)
    await commit(store, put('r/value', value))
    const kept = await store.get('r/value', soon())
    expect(Buffer.from(value).equals(kept?.value ?? Buffer.from('absent'))).toBe(true)
  })

  test('a transaction at the limits commits', async () => {
    const { store } = subject()
    const keys = Array.from({ length: maxTransactionOperations }, (_, index) => `r/limit/${String(index).padStart(3, '0')}`)
    const guards = keys.map((key): Guard => ({ kind: 'absent', key }))
    const room = maxTransactionBytes - 2 * keys.join('').length
    const first = Math.floor(room / 2)
    const writes = keys.map((key, index) => put(key, new Uint8Array(index === 0 ? first : index === 1 ? room - first : 0)))
    committed(await store.transact({ guards, writes }, soon()))
    expect((await store.range({ prefix: 'r/limit/', limit: 1000 }, soon())).entries).toHaveLength(maxTransactionOperations)
  })

  test('a transaction over a limit fails with too_large and writes nothing', async () => {
    const { store } = subject()
    const many = Array.from({ length: maxTransactionOperations + 1 }, (_, index) => `r/many/${index}`)
    expect(await failureOf(commit(store, ...many.map((key) => put(key))))).toBe('too_large')
    const guards = many.map((key): Guard => ({ kind: 'absent', key }))
    expect(await failureOf(store.transact({ guards, writes: [put('r/many/one')] }, soon()))).toBe('too_large')
    expect(await failureOf(commit(store, put('r/many/large', new Uint8Array(maxTransactionBytes))))).toBe('too_large')
    expect((await store.range({ prefix: 'r/many/', limit: 1 }, soon())).entries).toEqual([])
  })

  test('an aborted signal rejects with its reason', async () => {
    const reason = new Error('not needed any more')
    await expect(subject().store.transact({ guards: [], writes: [put('r/a')] }, AbortSignal.abort(reason))).rejects.toBe(reason)
    expect(await subject().store.get('r/a', soon())).toBeUndefined()
  })
}
