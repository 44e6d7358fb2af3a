import { CompareResult, CompareTarget, type ILeaseKeepAliveResponse } from 'etcd3'
import { setTimeout as delay } from 'node:timers/promises'
import type { Log } from '../../core/log.ts'
import { StoreError, type Leadership } from '../store.ts'
import type { EtcdConnection } from './etcd-connection.ts'
import { etcdError } from './etcd-errors.ts'
import type { TransactionRequest } from './etcd-messages.ts'

/** How long a leader that vanished keeps the others waiting. */
const ttlSeconds = 10
/** The leader stops counting on its lease so long before etcd may end it. */
const marginMs = 1000
const renewEveryMs = 2500
const revokeTimeoutMs = 3000
/** How often those who wait look whether the key is free. */
const lookEveryMs = 1000

/** What an election needs. */
export interface ElectionOptions {
  readonly connection: EtcdConnection
  /** Held, by its lease, by whoever leads. */
  readonly key: Buffer
  readonly log: Log
}

/**
 * Waits until `key` is free and takes it under a lease. Rejects with the signal's reason, `closed`, or `unavailable` where the wait broke
 * (call again).
 */
export async function campaign(options: ElectionOptions, signal: AbortSignal): Promise<Leadership> {
  const { connection, key } = options
  for (;;) {
    await untilFree(options, signal)
    const lease = await Lease.grant(options, signal)
    let won = false
    try {
      const { succeeded } = await connection.call('txn', takeKey(key, lease.id), { signal, repeatable: false })
      won = succeeded
      if (won) return new EtcdLeadership(lease)
    } finally {
      // Also where the answer got lost: the key may be ours.
      if (!won) void lease.revoke()
    }
  }
}

function takeKey(key: Buffer, lease: string): TransactionRequest {
  return {
    compare: [{ key, target: CompareTarget.Create, result: CompareResult.Equal, create_revision: 0 }],
    success: [{ request_put: { key, value: Buffer.from(lease), lease } }],
  }
}

/** Looks rather than watches: candidates are few, and a look can't go silent. */
async function untilFree({ connection, key }: ElectionOptions, signal: AbortSignal): Promise<void> {
  const ended = AbortSignal.any([signal, connection.closing])
  for (;;) {
    const { kvs } = await connection.call('range', { key, keys_only: true }, { signal, repeatable: true })
    if (kvs.length === 0) return
    // The wait would reject with an error of its own.
    await delay(lookEveryMs, undefined, { signal: ended }).catch(() => ended.throwIfAborted())
  }
}

/** States: held (renewed every few seconds) -> ended, by `end`, or when it could not be renewed in time; `ended` then aborts. */
class Lease {
  readonly id: string
  readonly #options: ElectionOptions
  readonly #ended = new AbortController()
  #revoked: Promise<void> | undefined
  #expiresAt: number
  #expiry: NodeJS.Timeout | undefined

  private constructor(id: string, options: ElectionOptions, expiresAt: number) {
    this.id = id
    this.#options = options
    this.#expiresAt = expiresAt
    this.#extend(expiresAt)
    options.connection.closing.addEventListener('abort', this.#onClosing, { once: true })
    void this.#renew()
  }

  /** The lease's time counts from before it was asked for, so that it ends here before it ends in etcd. */
  static async grant(options: ElectionOptions, signal: AbortSignal): Promise<Lease> {
    const start = performance.now()
    const { ID, TTL } = await options.connection.call('leaseGrant', { TTL: ttlSeconds }, { signal, repeatable: true })
    return new Lease(ID, options, start + Number(TTL) * 1000)
  }

  get ended(): AbortSignal {
    return this.#ended.signal
  }

  /** Ends the lease; resolves when etcd has let go of it, at the latest when its time has run out. */
  revoke(): Promise<void> {
    return (this.#revoked ??= this.#revoke())
  }

  async #revoke(): Promise<void> {
    this.#end('resigned')
    const { connection, log } = this.#options
    try {
      await connection.call('leaseRevoke', { ID: this.id }, { signal: AbortSignal.timeout(revokeTimeoutMs), repeatable: true })
    } catch (error) {
      if (connection.closing.aborted) return
      log.warn('a lease could not be revoked and has to run out', { error })
      await delay(Math.max(0, this.#expiresAt - performance.now()), undefined, { ref: false })
    }
  }

  #onClosing = (): void => this.#end(this.#options.connection.closing.reason)

  #end(reason: unknown): void {
    clearTimeout(this.#expiry)
    this.#options.connection.closing.removeEventListener('abort', this.#onClosing)
    this.#ended.abort(reason)
  }

  #extend(expiresAt: number): void {
    this.#expiresAt = expiresAt
    clearTimeout(this.#expiry)
    this.#expiry = setTimeout(() => this.#end(new StoreError('unavailable', 'the lease ran out')), expiresAt - marginMs - performance.now())
  }

  async #renew(): Promise<void> {
    while (!this.#ended.signal.aborted) {
      try {
        await delay(renewEveryMs, undefined, { signal: this.#ended.signal, ref: false })
        const start = performance.now()
        const { TTL } = await this.#keepAlive()
        if (Number(TTL) <= 0) return this.#end(new StoreError('unavailable', 'the lease is gone'))
        if (!this.#ended.signal.aborted) this.#extend(start + Number(TTL) * 1000)
      } catch (error) {
        if (!this.#ended.signal.aborted) this.#options.log.warn('a lease could not be renewed yet', { error: etcdError(error) })
      }
    }
  }

  /** One stream per renewal, so that each goes to a member that answers. */
  async #keepAlive(): Promise<ILeaseKeepAliveResponse> {
    const { connection } = this.#options
    const signal = AbortSignal.any([this.#ended.signal, AbortSignal.timeout(renewEveryMs)])
    const stream = await connection.open('leaseKeepAlive', signal)
    const cancel = (): void => stream.cancel()
    signal.addEventListener('abort', cancel, { once: true })
    try {
      const answer = new Promise<ILeaseKeepAliveResponse>((resolve, reject) => {
        stream
          .on('error', reject)
          .once('data', resolve)
          .once('end', () => reject(new StoreError('unavailable', 'etcd ended the stream')))
      })
      stream.write({ ID: this.id })
      return await answer
    } catch (error) {
      connection.streamFailed()
      throw error
    } finally {
      signal.removeEventListener('abort', cancel)
      stream.cancel()
    }
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
