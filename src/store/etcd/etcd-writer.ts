import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { CompareResult, CompareTarget } from 'etcd3'
import type { Log } from '../../base/log.ts'
import { StoreError } from '../store.ts'
import type { EtcdConnection } from './etcd-connection.ts'
import type { EtcdEncoding } from './etcd-encoding.ts'
import { Lease } from './etcd-lease.ts'
import type { EtcdCompare, Operation, TransactionResponse } from './etcd-messages.ts'

/** Sorts before the keys of the port and the head key, so that no range and no watch shows it. */
const writerPrefix = '!fence/'
/** How long the deletion of a key waits after etcd did not acknowledge it: at first, and at most, in milliseconds. */
const firstPauseMs = 100
const maxPauseMs = 5_000
/** How long the key of a process that vanished stays in etcd. */
const ttlSeconds = 60

/** A writer key at the one revision that it ever has. A transaction that compares it can commit only while the key is there. */
export interface Writer {
  readonly key: Buffer
  readonly revision: number
}

/** What a writer key needs. */
export interface WriterKeyOptions {
  readonly connection: EtcdConnection
  readonly encoding: EtcdEncoding
  readonly log: Log
}

/** A key that several callers wait for must not end with one of them. */
const never = new AbortController().signal

/**
 * One key of this process at a time, which each of its transactions compares. Deleting the key fences off every transaction that was sent before: one that etcd
 * still holds then fails its comparison, whenever it arrives (docs/adr/0023-writer-key.md). The next transaction makes a key with another name. The key has a
 * lease, so etcd deletes it when the process is gone.
 */
export class WriterKey {
  readonly #options: WriterKeyOptions
  #lease: Lease | undefined
  /** Undefined while there is no key: before the first transaction, and after a fence. */
  #writer: Writer | undefined
  /** A transaction that compared `#writer` had no answer. */
  #inDoubt = false
  #isSettling = false
  #making: Promise<Writer> | undefined
  #fencing: Promise<void> | undefined

  constructor(options: WriterKeyOptions) {
    this.#options = options
  }

  /** True where `current` has no call to make. */
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
    // A key that was replaced has fenced it off already.
    if (writer !== this.#writer) return
    this.#inDoubt = true
    if (!this.#isSettling) void this.#settle()
  }

  /** Never rejects. Ends when nothing is in doubt any more, or the connection is closed: then the lease ends the key. */
  async #settle(): Promise<void> {
    this.#isSettling = true
    const { closing } = this.#options.connection
    for (let pauseMs = firstPauseMs; this.#inDoubt && !closing.aborted; pauseMs = Math.min(2 * pauseMs, maxPauseMs)) {
      const isDone = await this.fence().then(
        () => true,
        () => false,
      )
      if (!isDone) await delay(pauseMs, undefined, { ref: false, signal: closing }).catch(() => undefined)
    }
    this.#isSettling = false
  }

  /**
   * Learns from the answer to a transaction that failed. True where the writer's key was there, so another comparison failed. False where it was not: the
   * transaction has to be sent again with the current writer.
   */
  confirms(writer: Writer, { responses }: TransactionResponse): boolean {
    const revision = Number(responses[0]?.response_range?.kvs[0]?.mod_revision ?? 0)
    if (revision === writer.revision) return true
    this.#forget(writer)
    return false
  }

  /**
   * Resolves when no transaction that is in doubt can commit any more: from then on a read shows whether it did. All who wait share one deletion. Rejects with
   * StoreError where etcd did not acknowledge it.
   */
  async fence(): Promise<void> {
    while (this.#inDoubt && this.#writer !== undefined) {
      await (this.#fencing ??= this.#delete(this.#writer).finally(() => (this.#fencing = undefined)))
    }
  }

  /** Each attempt has a name of its own: an unanswered one leaves a key that nothing compares and its lease removes. */
  async #make(): Promise<Writer> {
    const { connection, encoding } = this.#options
    const lease = await this.#heldLease()
    const key = encoding.key(writerPrefix + randomUUID())
    try {
      const put = { key, value: Buffer.from(lease.id), lease: lease.id }
      const { header } = await connection.call('txn', { success: [{ request_put: put }] }, { signal: never, repeatable: true })
      return (this.#writer = { key, revision: Number(header.revision) })
    } catch (error) {
      // A lease that etcd does not know would fail all later attempts, too.
      if (!(error instanceof StoreError && error.kind === 'exhausted')) void lease.revoke()
      throw error
    }
  }

  async #heldLease(): Promise<Lease> {
    const { connection, log } = this.#options
    if (this.#lease === undefined || this.#lease.ended.aborted) this.#lease = await Lease.grant({ connection, log, ttlSeconds }, never)
    return this.#lease
  }

  /** No other key ever has this name, so the deletion may be sent several times. */
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

/** The comparison with the writer, and the read that tells why a transaction failed. */
export function comparing({ key, revision }: Writer): { compare: EtcdCompare[]; failure: Operation[] } {
  return {
    compare: [{ key, target: CompareTarget.Mod, result: CompareResult.Equal, mod_revision: revision }],
    failure: [{ request_range: { key, keys_only: true } }],
  }
}
