import { setTimeout as delay } from 'node:timers/promises'
import type { Log } from '../../base/log.ts'
import { StoreError } from '../store.ts'
import type { EtcdConnection } from './etcd-connection.ts'
import { etcdError } from './etcd-errors.ts'
import type { LeaseResponse } from './etcd-lease-messages.ts'

/** Safety margin in milliseconds: the holder stops relying on its lease this long before etcd may end it. */
const marginMs = 1000
const revokeTimeoutMs = 3000

/** The dependencies of a lease. */
export interface LeaseOptions {
  readonly connection: EtcdConnection
  readonly log: Log
  /** Lifetime of the lease in seconds after its holder vanished. The holder renews it four times in this time. */
  readonly ttlSeconds: number
}

/** An etcd lease. It is renewed regularly until `revoke` is called or a renewal comes too late. Then it has ended, and `ended` aborts. */
export class Lease {
  /** The lease's id in etcd. */
  readonly id: string
  readonly #options: LeaseOptions
  readonly #ended = new AbortController()
  #revoked: Promise<void> | undefined
  #expiresAt: number
  #expiry: NodeJS.Timeout | undefined

  private constructor(id: string, options: LeaseOptions, expiresAt: number) {
    this.id = id
    this.#options = options
    this.#expiresAt = expiresAt
    this.#extend(expiresAt)
    options.connection.closing.addEventListener('abort', this.#onClosing, { once: true })
    void this.#renew()
  }

  /**
   * Requests a lease from etcd. The lifetime counts from before the request, so the lease ends here before it ends in etcd. Rejects with StoreError or the
   * signal's reason.
   */
  static async grant(options: LeaseOptions, signal: AbortSignal): Promise<Lease> {
    const start = performance.now()
    const { ID, TTL } = await options.connection.call('leaseGrant', { TTL: options.ttlSeconds }, { signal, repeatable: true })
    return new Lease(ID, options, start + Number(TTL) * 1000)
  }

  get #renewEveryMs(): number {
    return (this.#options.ttlSeconds * 1000) / 4
  }

  /** A signal that aborts when the holder can no longer rely on the lease. */
  get ended(): AbortSignal {
    return this.#ended.signal
  }

  /** Ends the lease. Resolves when etcd has removed it, or when it must have expired. */
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
      log.warn('the etcd lease could not be revoked and ends when it expires', { error })
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
    this.#expiry = setTimeout(
      () => this.#end(new StoreError('unavailable', 'the etcd lease expired before it was renewed')),
      expiresAt - marginMs - performance.now(),
    )
  }

  async #renew(): Promise<void> {
    while (!this.#ended.signal.aborted) {
      try {
        await delay(this.#renewEveryMs, undefined, { signal: this.#ended.signal, ref: false })
        const start = performance.now()
        const { TTL } = await this.#keepAlive()
        if (Number(TTL) <= 0) return this.#end(new StoreError('unavailable', 'etcd no longer has the lease'))
        if (!this.#ended.signal.aborted) this.#extend(start + Number(TTL) * 1000)
      } catch (error) {
        if (!this.#ended.signal.aborted) this.#options.log.warn('the etcd lease could not be renewed; trying again', { error: etcdError(error) })
      }
    }
  }

  /** Renews the lease once. Each renewal opens a new stream, so that it goes to a member that answers. */
  async #keepAlive(): Promise<LeaseResponse> {
    const { connection } = this.#options
    const signal = AbortSignal.any([this.#ended.signal, AbortSignal.timeout(this.#renewEveryMs)])
    const stream = await connection.open('leaseKeepAlive', signal)
    const cancel = (): void => stream.cancel()
    signal.addEventListener('abort', cancel, { once: true })
    try {
      const answer = new Promise<LeaseResponse>((resolve, reject) => {
        stream
          .on('error', reject)
          .once('data', resolve)
          .once('end', () => reject(new StoreError('unavailable', 'etcd ended the stream')))
        // Write within the promise, so that a stream that is already broken rejects it.
        stream.write({ ID: this.id })
      })
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
