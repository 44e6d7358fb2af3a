import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type { Log } from '../../base/log.ts'
import { backoffMs, type Backoff } from '../../base/timing.ts'
import { StoreError } from '../store.ts'
import type { EtcdConnection } from './etcd-connection.ts'
import type { EtcdEncoding } from './etcd-encoding.ts'
import { Lease } from './etcd-lease.ts'
import type { EtcdCompare, Operation, TransactionResponse } from './etcd-messages.ts'

/** Sorts before the keys of the port and the head key, so no range and no watch includes it. */
const writerPrefix = '!fence/'
/** Pauses between deletions of a key that etcd did not acknowledge. */
const backoff: Backoff = { firstMs: 100, maxMs: 5_000 }
/** Time for which the key of a vanished process stays in etcd. */
const ttlSeconds = 60

/** A writer key with its only revision. A transaction that compares it can commit only while the key exists. */
export interface Writer {
  readonly key: Buffer
  readonly revision: number
}

/** The dependencies of a writer key. */
export interface WriterKeyOptions {
  readonly connection: EtcdConnection
  readonly encoding: EtcdEncoding
  readonly log: Log
}

/** For a key that several callers wait for: it must not end with one of them. */
const never = new AbortController().signal

/**
 * The one current key of this process, which each of its transactions compares. Deleting the key fences off every transaction sent before. One that etcd still
 * holds then fails its comparison, whenever it arrives (docs/adr/0023-writer-key.md). The next transaction creates a key with another name. The key has a
 * lease, so etcd deletes it when the process is gone.
 */
export class WriterKey {
  readonly #options: WriterKeyOptions
  #lease: Lease | undefined
  /** Undefined while no key exists: before the first transaction, and after a fence. */
  #writer: Writer | undefined
  /** True if a transaction that compared `#writer` got no answer. */
  #inDoubt = false
  #isSettling = false
  #making: Promise<Writer> | undefined
  #fencing: Promise<void> | undefined

  constructor(options: WriterKeyOptions) {
    this.#options = options
  }

  /** True if `current` needs no call to etcd. */
  get isReady(): boolean {
    return this.#writer !== undefined && !this.#inDoubt
  }

  /**
   * Returns the writer key that a transaction must compare now. First fences off doubtful transactions, and creates a missing key. Rejects with StoreError:
   * then nothing was sent for the transaction.
   */
  async current(): Promise<Writer> {
    if (this.#inDoubt) await this.fence()
    return this.#writer ?? (this.#making ??= this.#make().finally(() => (this.#making = undefined)))
  }

  /**
   * Reports that a transaction which compared `writer` got no answer: it may commit at any time until `fence` resolves. Deletes the key in the background,
   * repeatedly until etcd acknowledges it. So the outcome is settled even if the transaction's caller does nothing more.
   */
  doubt(writer: Writer): void {
    // Its replacement has fenced off the transaction already.
    if (writer !== this.#writer) return
    this.#inDoubt = true
    if (!this.#isSettling) void this.#settle()
  }

  /** Never rejects. Ends when no transaction is in doubt, or the connection is closed: then the lease removes the key. */
  async #settle(): Promise<void> {
    this.#isSettling = true
    const { closing } = this.#options.connection
    for (let failures = 1; this.#inDoubt && !closing.aborted; failures++) {
      const isDone = await this.fence().then(
        () => true,
        () => false,
      )
      if (!isDone) await delay(backoffMs(backoff, failures), undefined, { ref: false, signal: closing }).catch(() => undefined)
    }
    this.#isSettling = false
  }

  /**
   * Checks the answer to a failed transaction. Returns true if the writer's key existed, so another comparison failed. If false, send the transaction again
   * with the current writer.
   */
  confirms(writer: Writer, { responses }: TransactionResponse): boolean {
    const revision = Number(responses[0]?.response_range?.kvs[0]?.mod_revision ?? 0)
    if (revision === writer.revision) return true
    this.#forget(writer)
    return false
  }

  /**
   * Resolves when no doubtful transaction can commit any more: from then on a read shows whether it did. Concurrent calls share one deletion. Rejects with
   * StoreError if etcd did not acknowledge it.
   */
  async fence(): Promise<void> {
    while (this.#inDoubt && this.#writer !== undefined) {
      await (this.#fencing ??= this.#delete(this.#writer).finally(() => (this.#fencing = undefined)))
    }
  }

  /** Each attempt uses a new name: an unanswered one leaves a key that no transaction compares and that its lease removes. */
  async #make(): Promise<Writer> {
    const { connection, encoding } = this.#options
    const lease = await this.#heldLease()
    const key = encoding.key(writerPrefix + randomUUID())
    try {
      const put = { key, value: Buffer.from(lease.id), lease: lease.id }
      const { header } = await connection.call('txn', { success: [{ request_put: put }] }, { signal: never, repeatable: true })
      return (this.#writer = { key, revision: Number(header.revision) })
    } catch (error) {
      // A lease that etcd does not know would make all later attempts fail too.
      if (!(error instanceof StoreError && error.kind === 'exhausted')) void lease.revoke()
      throw error
    }
  }

  async #heldLease(): Promise<Lease> {
    const { connection, log } = this.#options
    if (this.#lease === undefined || this.#lease.ended.aborted) this.#lease = await Lease.grant({ connection, log, ttlSeconds }, never)
    return this.#lease
  }

  /** Deletes the key. No other key ever has this name, so the deletion may be sent several times. */
  async #delete(writer: Writer): Promise<void> {
    await this.#options.connection.call('txn', { success: [{ request_delete_range: { key: writer.key } }] }, { signal: never, repeatable: true })
    this.#forget(writer)
  }

  #forget(writer: Writer): void {
    if (writer !== this.#writer) return
    this.#writer = undefined
    this.#inDoubt = false
  }
}

/** Returns the comparison with the writer, and the read that shows why a transaction failed. */
export function comparing({ key, revision }: Writer): { compare: EtcdCompare[]; failure: Operation[] } {
  return {
    compare: [{ key, target: 'mod', result: 'equal', mod_revision: revision }],
    failure: [{ request_range: { key, keys_only: true } }],
  }
}
