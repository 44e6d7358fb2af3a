import { setTimeout as delay } from 'node:timers/promises'
import type { Log } from '../../base/log.ts'
import { StoreError, type Leadership } from '../store.ts'
import type { EtcdConnection } from './etcd-connection.ts'
import { Lease } from './etcd-lease.ts'
import type { TransactionRequest } from './etcd-messages.ts'

/** Lifetime of the leader's lease in seconds. It is the maximum wait for a new leader after the old one vanished. */
const ttlSeconds = 10
/** Interval in milliseconds at which candidates check whether the leader's key is gone. */
const lookEveryMs = 1000

/** The dependencies of an election. */
export interface ElectionOptions {
  readonly connection: EtcdConnection
  /** The key of the election. The leader holds it through its lease. */
  readonly key: Buffer
  readonly log: Log
}

/**
 * Waits until no process holds the election key, and takes it under a lease. Rejects with the signal's reason, StoreError `closed`, or `unavailable` if the
 * wait failed; call again then.
 */
export async function campaign(options: ElectionOptions, signal: AbortSignal): Promise<Leadership> {
  const { connection, key, log } = options
  for (;;) {
    await untilFree(options, signal)
    const lease = await Lease.grant({ connection, log, ttlSeconds }, signal)
    let won = false
    try {
      const { succeeded } = await connection.call('txn', takeKey(key, lease.id), { signal, repeatable: false })
      won = succeeded
      if (won) return new EtcdLeadership(lease)
    } catch (error) {
      signal.throwIfAborted()
      // The lease is revoked, so an attempt that is still under way can no longer take the key.
      throw error instanceof StoreError && error.kind === 'indeterminate' ? new StoreError('unavailable', 'etcd did not answer in the election', error) : error
    } finally {
      if (!won) void lease.revoke()
    }
  }
}

function takeKey(key: Buffer, lease: string): TransactionRequest {
  return {
    compare: [{ key, target: 'create', result: 'equal', create_revision: 0 }],
    success: [{ request_put: { key, value: Buffer.from(lease), lease } }],
  }
}

/** Waits until the key does not exist. Polls instead of watching: there are few candidates, and a poll cannot stop silently. */
async function untilFree({ connection, key }: ElectionOptions, signal: AbortSignal): Promise<void> {
  const ended = AbortSignal.any([signal, connection.closing])
  for (;;) {
    const { kvs } = await connection.call('range', { key, keys_only: true }, { signal, repeatable: true })
    if (kvs.length === 0) return
    // delay() would reject with an error of its own.
    await delay(lookEveryMs, undefined, { signal: ended }).catch(() => ended.throwIfAborted())
  }
}

class EtcdLeadership implements Leadership {
  readonly lost: AbortSignal
  readonly #lease: Lease

  constructor(lease: Lease) {
    this.#lease = lease
    this.lost = lease.ended
  }

  resign(): Promise<void> {
    return this.#lease.revoke()
  }
}
