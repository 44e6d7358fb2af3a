import { StoreError, type RangeQuery, type Transaction } from './store.ts'

/** Maximum number of guards, and of writes, in one transaction. It is etcd's `--max-txn-ops` of 128, less the operation that the etcd store adds. */
export const maxTransactionOperations = 127

/** Maximum total size of a transaction's keys and values in bytes. It is etcd's request limit of 1.5 MiB, less room for the encoding. */
export const maxTransactionBytes = 1_500_000

/**
 * Checks a transaction against the limits of every store. Each store calls it first in `transact`. Throws StoreError `too_large` over a limit, and TypeError
 * for programming errors: an empty key, or a key written twice.
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

/** Checks the query of a range. Each store calls it first in `range`. Throws TypeError if `limit` is not a positive integer. */
export function checkRange({ limit }: RangeQuery): void {
  if (!Number.isSafeInteger(limit) || limit < 1) throw new TypeError('a range needs a limit of at least 1')
}
