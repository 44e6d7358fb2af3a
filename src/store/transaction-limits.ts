import { StoreError, type RangeQuery, type Transaction } from './store.ts'

/** The most guards, and the most writes, that one transaction may have: etcd's `--max-txn-ops` of 128, less the one that its adapter adds. */
export const maxTransactionOperations = 127

/** The most bytes that a transaction's keys and values may have together: etcd's 1.5 MiB request, less room for its framing. */
export const maxTransactionBytes = 1_500_000

/**
 * Every adapter's first step of `transact`, so that all have the same limits and no store has to be asked for them. Throws StoreError
 * `too_large` over a limit, and TypeError on what only a mistake in the program can send: an empty key, a key written twice.
 */
export function checkTransaction({ guards, writes }: Transaction): void {
  if (Math.max(guards.length, writes.length) > maxTransactionOperations) {
    throw new StoreError('too_large', `a transaction has at most ${maxTransactionOperations} guards and as many writes`)
  }
  let bytes = 0
  for (const guard of guards) bytes += 'prefix' in guard ? guard.prefix.length : guard.key.length
  const seen = new Set<string>()
  for (const write of writes) {
    if (write.key === '' || seen.has(write.key)) throw new TypeError(`a key must not be empty or written twice: ${JSON.stringify(write.key)}`)
    seen.add(write.key)
    bytes += write.key.length + (write.kind === 'put' ? write.value.length : 0)
  }
  if (bytes > maxTransactionBytes) throw new StoreError('too_large', `a transaction has at most ${maxTransactionBytes} bytes of keys and values`)
}

/** Every adapter's first step of `range`. Throws TypeError where `limit` is not a positive integer. */
export function checkRange({ limit }: RangeQuery): void {
  if (!Number.isSafeInteger(limit) || limit < 1) throw new TypeError('a range needs a limit of at least 1')
}
