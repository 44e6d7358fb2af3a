import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type { Log } from '../../base/log.ts'
import { backoffMs, type Backoff } from '../../base/timing.ts'
import { StoreError } from '../store.ts'
import type { EtcdConnection } from './etcd-connection.ts'
import type { EtcdEncoding } from './etcd-encoding.ts'
import { Lease } from './etcd-lease.ts'
import type { EtcdCompare, Operation, TransactionResponse } from './etcd-messages.ts'

/** Prefix of writer keys. They sort before the head key and the keys of the store port, so no range or watch includes them. */
const writerPrefix = '!fence/'
/** Waits between attempts to delete a writer key while etcd does not acknowledge it. */
const backoff: Backoff = { firstMs: 100, maxMs: 5_000 }
/** Time in seconds for which the writer key of a vanished process stays in etcd. */
const ttlSeconds = 60

/** A writer key and the revision that created it. A transaction that compares both can commit only while the key exists. */
export interface Writer {
  readonly key: Buffer
  readonly revision: number
}

/** The dependencies of a WriterKey. */
export interface WriterKeyOptions {
  readonly connection: EtcdConnection
  readonly encoding: EtcdEncoding
  readonly log: Log
}

/** The signal for creating a key that several callers wait for, which must not end when one of them aborts. */
const never = new AbortController().signal

/**
 * The key in etcd that every transaction of this process compares. Deleting it ensures that no transaction sent before can still commit: its comparison fails,
 * however late etcd executes it (docs/adr/0023-writer-key.md). The next transaction creates a key with a new name. The key has a lease, so it disappears with
 * the process.
 */
export class WriterKey {
  readonly #options: WriterKeyOptions
  #lease: Lease | undefined
  /** Undefined while no key exists: before the first transaction, and after a fence. */
  #writer: Writer | undefined
  /** True if a transaction that compared `#writer` got no answer, so that it may still commit. */
  #inDoubt = false
  #isSettling = false
  #making: Promise<Writer> | undefined
  #fencing: Promise<void> | undefined

  constructor(options: WriterKeyOptions) {
    this.#options = options
  }

  /** True if `current` can resolve without a call to etcd. */
  get isReady(): boolean {
    return this.#writer !== undefined && !this.#inDoubt
  }

  /**
   * Returns the writer key that a transaction must compare now, and creates it if it is missing. First deletes the key of transactions whose outcome is
   * unknown. If it rejects with StoreError, the caller's transaction was not sent.
   */
  async current(): Promise<Writer> {
    if (this.#inDoubt) await this.fence()
    return this.#writer ?? (this.#making ??= this.#make().finally(() => (this.#making = undefined)))
  }

  /**
   * Reports that a transaction which compared `writer` got no answer, so it may commit at any time until `fence` resolves. Deletes the key in the background,
   * and repeats that until etcd acknowledges it. So the outcome becomes final even if the caller does nothing more.
   */
  doubt(writer: Writer): void {
    // The key was already deleted and replaced, so the transaction can no longer commit.
    if (writer !== this.#writer) return
    this.#inDoubt = true
    if (!this.#isSettling) void this.#settle()
  }

  /** Deletes the key of doubtful transactions, with retries. Never rejects. Ends early if the connection is closed: then the key disappears with its lease. */
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
   * Checks the answer to a transaction that failed. Returns true if the writer key still existed, so one of the caller's comparisons failed. If it returns
   * false, send the transaction again with the current writer key.
   */
  confirms(writer: Writer, { responses }: TransactionResponse): boolean {
    const revision = Number(responses[0]?.response_range?.kvs[0]?.mod_revision ?? 0)
    if (revision === writer.revision) return true
    this.#forget(writer)
    return false
  }

  /**
   * Resolves when no transaction without an answer can commit any more. A later read then shows whether it did. Concurrent calls share one deletion. Rejects
   * with StoreError if etcd did not acknowledge the deletion.
   */
  async fence(): Promise<void> {
    while (this.#inDoubt && this.#writer !== undefined) {
      await (this.#fencing ??= this.#delete(this.#writer).finally(() => (this.#fencing = undefined)))
    }
  }

  /** Each attempt uses a new name. An attempt without an answer may leave a key that no transaction compares; its lease removes it. */
  async #make(): Promise<Writer> {
    const { connection, encoding } = this.#options
    const lease = await this.#heldLease()
    const key = encoding.key(writerPrefix + randomUUID())
    try {
      const put = { key, value: Buffer.from(lease.id), lease: lease.id }
      const { header } = await connection.call('txn', { success: [{ request_put: put }] }, { signal: never, repeatable: true })
      return (this.#writer = { key, revision: Number(header.revision) })
    } catch (error) {
      // If etcd has lost the lease, keeping it would make all later attempts fail too.
      if (!(error instanceof StoreError && error.kind === 'exhausted')) void lease.revoke()
      throw error
    }
  }

  async #heldLease(): Promise<Lease> {
    const { connection, log } = this.#options
    if (this.#lease === undefined || this.#lease.ended.aborted) this.#lease = await Lease.grant({ connection, log, ttlSeconds }, never)
    return this.#lease
  }

  /** Deletes the writer key. Names are never used again, so the deletion may be sent several times. */
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

/** Returns the comparison with the writer key, and the read of that key for the case that the transaction fails. */
export function comparing({ key, revision }: Writer): { compare: EtcdCompare[]; failure: Operation[] } {
  return {
    compare: [{ key, target: 'mod', result: 'equal', mod_revision: revision }],
    failure: [{ request_range: { key, keys_only: true } }],
  }
}
