import { setTimeout as delay } from 'node:timers/promises'
import type { Log } from '../../base/log.ts'
import { StoreError, type Leadership } from '../store.ts'
import type { EtcdConnection } from './etcd-connection.ts'
import { Lease } from './etcd-lease.ts'
import type { TransactionRequest } from './etcd-messages.ts'

/** Maximum wait for a new leader after the old one vanished. */
const ttlSeconds = 10
/** Interval at which candidates check whether the key is free. */
const lookEveryMs = 1000

/** The dependencies of an election. */
export interface ElectionOptions {
  readonly connection: EtcdConnection
  /** The key that the leader holds through its lease. */
  readonly key: Buffer
  readonly log: Log
}

/** Waits until `key` is free and takes it under a lease. Rejects with the signal's reason, `closed`, or `unavailable` if the wait broke (call again). */
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
      // A revoked lease cannot take the key, so an attempt that may still be under way has no effect.
      throw error instanceof StoreError && error.kind === 'indeterminate' ? new StoreError('unavailable', 'the election was not answered', error) : error
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

/** Polls instead of watching: candidates are few, and a poll cannot go silent. */
async function untilFree({ connection, key }: ElectionOptions, signal: AbortSignal): Promise<void> {
  const ended = AbortSignal.any([signal, connection.closing])
  for (;;) {
    const { kvs } = await connection.call('range', { key, keys_only: true }, { signal, repeatable: true })
    if (kvs.length === 0) return
    // The delay would reject with its own error.
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
