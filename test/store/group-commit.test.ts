import { expect, test, vi } from 'vitest'
import { GroupCommit, type Sending } from '../../src/store/etcd/group-commit.ts'
import { StoreError, storeRevision, type Committed, type Conflict, type Guard, type Transaction } from '../../src/store/store.ts'
import { maxTransactionOperations } from '../../src/store/transaction-limits.ts'
import { slowness } from '../budgets.ts'

const signal = new AbortController().signal

function put(key: string, ...guards: Guard[]): Transaction {
  return { guards, writes: [{ kind: 'put', key, value: Buffer.from(key) }] }
}

/** A store that accepts writes and answers them on command. */
function ledger(): { sent: Transaction[]; send: Sending['send']; answer: (outcome: Committed | Conflict | Error) => Promise<void> } {
  const sent: Transaction[] = []
  const open: PromiseWithResolvers<Committed | Conflict>[] = []
  return {
    sent,
    send: (transaction) => {
      const pending = Promise.withResolvers<Committed | Conflict>()
      sent.push(transaction)
      open.push(pending)
      return pending.promise
    },
    async answer(outcome) {
      const pending = open.shift()
      if (outcome instanceof Error) pending?.reject(outcome)
      else pending?.resolve(outcome)
      await new Promise((resolve) => setImmediate(resolve))
    },
  }
}

const done: Committed = { committed: true, revision: storeRevision(7) }
const keysOf = (transaction: Transaction | undefined): string[] => transaction?.writes.map(({ key }) => key) ?? []

test('a single commit waits for no other; commits that arrive during a write share the next one', async () => {
  const { sent, send, answer } = ledger()
  const commits = new GroupCommit({ send, ready: () => undefined })
  const all = ['a', 'b', 'c', 'd', 'e'].map((key) => commits.commit(put(key), signal))
  expect(sent.map(keysOf)).toEqual([['a'], ['b']])
  await answer(done)
  expect(sent.map(keysOf)).toEqual([['a'], ['b'], ['c', 'd', 'e']])
  await answer(done)
  await answer(done)
  expect(await Promise.all(all)).toEqual(Array(5).fill(done))
})

test.each<[string, Transaction, Transaction]>([
  ['writes what another writes', put('k'), put('k')],
  ['writes what another reads', put('k', { kind: 'absent', key: 'other' }), put('other')],
  ['reads what another writes', put('other'), put('k', { kind: 'exists', key: 'other' })],
  ['writes below a prefix that another requires to be empty', put('k', { kind: 'empty', prefix: 'p/' }), put('p/x')],
  ['writes below a prefix that another requires to be quiet', put('k', { kind: 'quiet', prefix: 'p/', revision: storeRevision(1) }), put('p/x')],
  ['requires a prefix to be quiet where another writes', put('p/x'), put('k', { kind: 'quiet', prefix: 'p/', revision: storeRevision(1) })],
  ['requires a prefix to be empty where another writes', put('p/x'), put('k', { kind: 'empty', prefix: 'p/' })],
])('a transaction that %s is never in one group with it', async (_, one, other) => {
  const { sent, send, answer } = ledger()
  const commits = new GroupCommit({ send, ready: () => undefined })
  const all = [put('a'), put('b'), one, other, put('z')].map((transaction) => commits.commit(transaction, signal))
  await answer(done)
  expect(sent.slice(2)).toHaveLength(1)
  expect(keysOf(sent[2])).toEqual([...keysOf(one), 'z'])
  await answer(done)
  expect(sent[3]).toEqual(other)
  await answer(done)
  await answer(done)
  await Promise.all(all)
})

test('members of a group share their reads', async () => {
  const { sent, send, answer } = ledger()
  const commits = new GroupCommit({ send, ready: () => undefined })
  const parent: Guard = { kind: 'exists', key: 'parent' }
  const all = ['a', 'b', 'c', 'd'].map((key) => commits.commit(put(key, parent), signal))
  await answer(done)
  expect(sent[2]?.guards).toEqual([parent])
  await answer(done)
  await answer(done)
  await Promise.all(all)
})

test('if a guard in a group fails, each commit gets its own answer', async () => {
  const { sent, send, answer } = ledger()
  const commits = new GroupCommit({ send, ready: () => undefined })
  const all = ['a', 'b', 'c', 'd'].map((key) => commits.commit(put(key), signal))
  await answer(done)
  await answer(done)
  await answer({ committed: false })
  expect(sent.slice(3).map(keysOf)).toEqual([['c'], ['d']])
  await answer({ committed: false })
  await answer(done)
  expect(await Promise.all(all)).toEqual([done, done, { committed: false }, done])
})

test.each(['exhausted', 'too_large'] as const)('the members of a group refused as %s are retried one by one', async (kind) => {
  const { sent, send, answer } = ledger()
  const commits = new GroupCommit({ send, ready: () => undefined })
  const all = Promise.allSettled(['a', 'b', 'c', 'd'].map((key) => commits.commit(put(key), signal)))
  await answer(done)
  await answer(done)
  await answer(new StoreError(kind, 'no'))
  expect(sent.slice(3).map(keysOf)).toEqual([['c'], ['d']])
  await answer(new StoreError(kind, 'no'))
  await answer(done)
  expect((await all).map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected', 'fulfilled'])
})

test('a failure applies to all members, and the next group is sent', async () => {
  const { sent, send, answer } = ledger()
  const commits = new GroupCommit({ send, ready: () => undefined })
  const failure = new StoreError('unavailable', 'gone')
  const all = Promise.allSettled(['a', 'b', 'c', 'd'].map((key) => commits.commit(put(key), signal)))
  await answer(done)
  await answer(done)
  const last = commits.commit(put('e'), signal)
  await answer(failure)
  const outcomes = await all
  expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected', 'rejected'])
  expect(keysOf(sent.at(-1))).toEqual(['e'])
  await answer(done)
  expect(await last).toEqual(done)
})

test('a cancelled waiting commit is not sent; the others proceed', async () => {
  const { sent, send, answer } = ledger()
  const commits = new GroupCommit({ send, ready: () => undefined })
  const gone = new AbortController()
  const first = ['a', 'b'].map((key) => commits.commit(put(key), signal))
  const leaving = expect(commits.commit(put('c'), gone.signal)).rejects.toThrow('gone')
  const staying = commits.commit(put('d'), signal)
  gone.abort(new Error('gone'))
  await leaving
  await answer(done)
  expect(keysOf(sent[2])).toEqual(['d'])
  await answer(done)
  await answer(done)
  await Promise.all([...first, staying])
})

test('a caller that leaves during its transaction gets indeterminate; one that waits for etcd gets its own error', async () => {
  const { sent, send, answer } = ledger()
  let ready = Promise.withResolvers<void>()
  const commits = new GroupCommit({ send, ready: () => ready.promise })
  const gone = new AbortController()
  const waiting = expect(commits.commit(put('a'), gone.signal)).rejects.toThrow('gone')
  gone.abort(new Error('gone'))
  await waiting
  const refused = expect(commits.commit(put('b'), signal)).rejects.toThrow('etcd is away')
  ready.reject(new Error('etcd is away'))
  await refused
  ready = Promise.withResolvers()
  ready.resolve()
  const later = new AbortController()
  const unknown = expect(commits.commit(put('c'), later.signal)).rejects.toMatchObject({ kind: 'indeterminate', cause: new Error('late') })
  await vi.waitUntil(() => sent.length > 0)
  later.abort(new Error('late'))
  await unknown
  let isOver = false
  const over = commits.abandoned().then(() => (isOver = true))
  await new Promise((resolve) => setImmediate(resolve))
  expect(isOver).toBe(false)
  await answer(done)
  await over
  expect(sent.map(keysOf)).toEqual([['c']])
})

test('cancelling one commit costs the same in a long queue as in a short one', async () => {
  const { send, answer } = ledger()
  const commits = new GroupCommit({ send, ready: () => undefined })
  const first = ['a', 'b'].map((key) => commits.commit(put(key), signal))
  const leaving = Array.from({ length: 30_000 }, (_, at) => {
    const gone = new AbortController()
    return { gone, commit: commits.commit(put(`r/Tag/${one}/${at}`), gone.signal).catch(() => undefined) }
  })
  const cpu = process.cpuUsage()
  for (const { gone } of leaving.toReversed()) gone.abort(new Error('gone'))
  const { user, system } = process.cpuUsage(cpu)
  // On the reference machine. A linear search takes about 10 s there.
  expect((user + system) / 1e6).toBeLessThan(1.25 * slowness())
  await Promise.all(leaving.map(({ commit }) => commit))
  await answer(done)
  await answer(done)
  await Promise.all(first)
})

test('a group is no larger than the maximum transaction', async () => {
  const { sent, send, answer } = ledger()
  const commits = new GroupCommit({ send, ready: () => undefined })
  const all = Array.from({ length: maxTransactionOperations + 10 }, (_, at) => commits.commit(put(`k${at}`), signal))
  await answer(done)
  expect(sent[2]?.writes).toHaveLength(maxTransactionOperations)
  for (let left = 0; left < 4; left++) await answer(done)
  expect(await Promise.all(all)).toHaveLength(maxTransactionOperations + 10)
})

const [one, two, three] = ['a', 'b', 'c'].map((digit) => digit.repeat(40)) as [string, string, string]

test('queues of organisations take turns: thousands of commits of one organisation do not delay another', async () => {
  const { sent, send, answer } = ledger()
  const commits = new GroupCommit({ send, ready: () => undefined })
  const crowd = Array.from({ length: 3000 }, (_, at) => commits.commit(put(`r/Tag/${one}/${at}`), signal))
  await answer(done)
  const late = [
    commits.commit(put(`r/Group/${two}`), signal),
    commits.commit(put(`x/manifest/${three}/sha256:1`), signal),
    commits.commit(put('x/other'), signal),
  ]
  await answer(done)
  await answer(done)
  // The two pending groups, then the group of these writes.
  const group = keysOf(sent.find((transaction) => keysOf(transaction).includes(`r/Group/${two}`)))
  expect(sent.indexOf(sent.find((transaction) => keysOf(transaction).includes(`r/Group/${two}`)) as Transaction)).toBeLessThan(5)
  expect(group).toEqual(expect.arrayContaining([`r/Group/${two}`, `x/manifest/${three}/sha256:1`, 'x/other']))
  expect(group).toHaveLength(maxTransactionOperations)
  for (let left = 0; left < 40; left++) await answer(done)
  expect(await Promise.all([...crowd, ...late])).toHaveLength(3003)
})

test('an organisation with conflicting transactions has one in each group, and leaves the rest to others', async () => {
  const { sent, send, answer } = ledger()
  const commits = new GroupCommit({ send, ready: () => undefined })
  const contended = Array.from({ length: 6 }, () => commits.commit(put(`i/owners/${one}`), signal))
  const others = Array.from({ length: 4 }, (_, at) => commits.commit(put(`r/Tag/${two}/${at}`), signal))
  await answer(done)
  expect(keysOf(sent[2]).sort()).toEqual([`i/owners/${one}`, ...[0, 1, 2, 3].map((at) => `r/Tag/${two}/${at}`)])
  for (let left = 0; left < 8; left++) await answer(done)
  expect(await Promise.all([...contended, ...others])).toHaveLength(10)
  expect(sent.slice(3).map(keysOf)).toEqual(Array(3).fill([`i/owners/${one}`]))
})

test('a commit that did not fit is first in the next group, whatever the queue', async () => {
  const { sent, send, answer } = ledger()
  const commits = new GroupCommit({ send, ready: () => undefined })
  const large = Array.from({ length: 5 }, (_, at): Transaction => ({
    guards: [],
    writes: Array.from({ length: 100 }, (_each, index) => ({ kind: 'put', key: `r/Tag/${String(at).repeat(40)}/${index}`, value: Buffer.alloc(0) })),
  }))
  const all = large.map((transaction) => commits.commit(transaction, signal))
  for (let left = 0; left < 5; left++) await answer(done)
  expect(sent.map((transaction) => keysOf(transaction)[0]?.[6])).toEqual(['0', '1', '2', '3', '4'])
  await Promise.all(all)
})
