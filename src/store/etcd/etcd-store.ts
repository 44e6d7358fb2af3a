import { setTimeout as delay } from 'node:timers/promises'
import { untilAborted } from '../../base/timing.ts'
import { watchedPrefixes } from '../keys.ts'
import {
  StoreError,
  storeRevision,
  type ChangeBatch,
  type Committed,
  type Conflict,
  type Entry,
  type Leadership,
  type RangeQuery,
  type RangeResult,
  type Revision,
  type Store,
  type StoreErrorKind,
  type Transaction,
} from '../store.ts'
import { checkRange, checkTransaction } from '../transaction-limits.ts'
import type { ClusterHead } from './cluster-identity.ts'
import { EtcdConnection, type EtcdConnectionOptions } from './etcd-connection.ts'
import { campaign } from './etcd-election.ts'
import { EtcdEncoding } from './etcd-encoding.ts'
import type { RangeResponse, TransactionRequest, TransactionResponse } from './etcd-messages.ts'
import { comparing, WriterKey, type Writer } from './etcd-writer.ts'
import { watchEvents, type WatchTarget } from './etcd-watch.ts'
import { GroupCommit } from './group-commit.ts'

/** The etcd cluster, and the prefix of Taproot's keys in it. */
export interface EtcdStoreOptions extends EtcdConnectionOptions {
  /** Prefix of every key; `/taproot/` by default. */
  readonly prefix?: string
}

/** Maximum time, in milliseconds, for which closing the store waits until etcd has ended the leases of this process. */
const resignTimeoutMs = 1_000

/** Prefix of election keys. Watches do not include it, so elections cause no watch events. */
const electionPrefix = 'x/elect/'

/**
 * Creates a store on an etcd cluster. It connects on the first call and retries for ever: calls fail with `unavailable` while no member with a leader answers.
 * Every call takes at most `requestTimeoutMs`; a transaction up to three times that if earlier ones got no answer.
 */
export function createEtcdStore(options: EtcdStoreOptions): Store {
  return new EtcdStore(options)
}

/** Error kinds after which a transaction can no longer commit. */
const settledKinds: ReadonlySet<StoreErrorKind> = new Set(['unavailable', 'exhausted', 'too_large'])

/**
 * Maximum number of attempts for a transaction that fails only because the writer key is gone. Each fence of this process and each ended lease deletes a
 * writer key.
 */
const maxSends = 8

/** The signal of work that several callers share, which must not end when one caller aborts. */
const never = new AbortController().signal

class EtcdStore implements Store {
  readonly #options: EtcdStoreOptions
  readonly #connection: EtcdConnection
  readonly #encoding: EtcdEncoding
  readonly #writer: WriterKey
  readonly #commits: GroupCommit
  readonly #leaderships = new Set<Leadership>()
  /** For each prefix, the cluster epoch that its watchers know. If the cluster is replaced while no watcher runs, the next watcher is informed once. */
  readonly #epochs = new Map<string, number>()

  constructor(options: EtcdStoreOptions) {
    this.#options = options
    this.#connection = new EtcdConnection(options)
    this.#encoding = new EtcdEncoding(options.prefix ?? '/taproot/')
    this.#writer = new WriterKey({ connection: this.#connection, encoding: this.#encoding, log: options.log })
    this.#commits = new GroupCommit({ send: (transaction, signal) => this.#sendTransaction(transaction, signal), ready: () => this.#ready() })
  }

  async get(key: string, signal: AbortSignal): Promise<Entry | undefined> {
    const { kvs } = await this.#connection.call('range', { key: this.#encoding.key(key) }, { signal, repeatable: true })
    return kvs[0] === undefined ? undefined : this.#encoding.entry(kvs[0])
  }

  async range(query: RangeQuery, signal: AbortSignal): Promise<RangeResult> {
    checkRange(query)
    try {
      const { header, kvs, more } = await this.#readRange(query, signal)
      const entries = kvs.map((kv) => this.#encoding.entry(kv))
      return { entries, more, revision: query.revision ?? storeRevision(Number(header.revision)) }
    } catch (error) {
      // etcd uses the same status for a compacted revision and for one that it has not reached yet.
      if (query.revision !== undefined && error instanceof StoreError && error.kind === 'compacted') await this.#assertReached(query.revision, signal)
      throw error
    }
  }

  async transact(transaction: Transaction, signal: AbortSignal): Promise<Committed | Conflict> {
    checkTransaction(transaction)
    // A transaction without writes can safely be executed twice.
    return transaction.writes.length === 0 ? this.#look(transaction, signal) : this.#commits.commit(transaction, signal)
  }

  async fence(signal: AbortSignal): Promise<void> {
    // Wait for doubtful transactions first: a transaction under way would be sent again if the writer key were deleted now.
    await untilAborted(
      this.#commits.abandoned().then(() => this.#writer.fence()),
      signal,
    )
  }

  async #look(transaction: Transaction, signal: AbortSignal): Promise<Committed | Conflict> {
    return outcomeOf(await this.#connection.call('txn', this.#encoding.transaction(transaction), { signal, repeatable: true }))
  }

  /** Resolves once a transaction can be sent; undefined if one can be sent now. */
  #ready(): Promise<unknown> | undefined {
    if (this.#connection.isConnected && this.#writer.isReady) return undefined
    return this.#connection.connected(never).then(() => this.#writerFor({ guards: [], writes: [] }))
  }

  async #sendTransaction(transaction: Transaction, signal: AbortSignal): Promise<Committed | Conflict> {
    for (let left = maxSends; left > 0; left--) {
      const writer = await untilAborted(this.#writerFor(transaction), signal)
      const fence = writer === undefined ? {} : comparing(writer)
      const answer = await this.#sendOnce(this.#encoding.transaction(transaction, fence), writer, signal)
      // If neither holds, the transaction failed only because the writer key was deleted: send it again.
      if (answer.succeeded || writer === undefined || this.#writer.confirms(writer, answer)) return outcomeOf(answer)
    }
    throw new StoreError('unavailable', 'the transaction was not committed: its writer key was deleted at each attempt')
  }

  /**
   * Returns the writer key for a transaction, or undefined for one that only deletes. A full etcd refuses to create a writer key but accepts deletions, which
   * free space.
   */
  async #writerFor({ writes }: Transaction): Promise<Writer | undefined> {
    try {
      return await this.#writer.current()
    } catch (error) {
      if (error instanceof StoreError && error.kind === 'exhausted' && writes.every(({ kind }) => kind === 'delete')) return undefined
      throw error
    }
  }

  async #sendOnce(request: TransactionRequest, writer: Writer | undefined, signal: AbortSignal): Promise<TransactionResponse> {
    try {
      return await this.#connection.call('txn', request, { signal, repeatable: false })
    } catch (error) {
      if (writer !== undefined && !(error instanceof StoreError && settledKinds.has(error.kind))) this.#writer.doubt(writer)
      throw error
    }
  }

  async *watch(prefixes: readonly string[], after: Revision, signal: AbortSignal): AsyncGenerator<ChangeBatch, never> {
    const name = prefixes.join(' ')
    const { identity } = this.#connection
    let at = { revision: after as number, head: undefined as ClusterHead | undefined, epoch: identity.epoch }
    try {
      at.head = await this.#headAt(after, signal)
      if (this.#connection.identity.epoch !== (this.#epochs.get(name) ?? 0)) throw new StoreError('replaced', 'the etcd cluster was replaced')
      const target = (): Promise<WatchTarget | undefined> => this.#watchTarget(prefixes, signal)
      for await (const { revision, events } of watchEvents(this.#connection, { ...this.#encoding.watchRange(prefixes), after, target }, signal)) {
        const head = this.#encoding.headIn(events)
        if (head !== undefined) identity.showHead(head)
        at = { ...at, revision, head: head ?? at.head }
        yield { revision: storeRevision(revision), changes: this.#encoding.changes(events, prefixes) }
      }
      throw new StoreError('unavailable', 'the etcd watch ended')
    } catch (error) {
      if (error instanceof StoreError && error.kind === 'replaced') this.#epochs.set(name, identity.epoch)
      throw error
    } finally {
      if (at.head !== undefined && at.epoch === identity.epoch) identity.notePosition(at.revision, at.head)
    }
  }

  async revision(signal: AbortSignal): Promise<Revision> {
    return storeRevision((await this.#readHead(signal)).due)
  }

  async elect(name: string, signal: AbortSignal): Promise<Leadership> {
    const key = this.#encoding.key(electionPrefix + name)
    const leadership = await campaign({ connection: this.#connection, key, log: this.#options.log }, signal)
    this.#leaderships.add(leadership)
    leadership.lost.addEventListener('abort', () => this.#leaderships.delete(leadership), { once: true })
    return leadership
  }

  async close(): Promise<void> {
    // Give up leaderships now, so that other processes need not wait for the leases to expire. Limited in time: an etcd that does not answer must not block the
    // exit.
    const resigned = Promise.all([...this.#leaderships].map((leadership) => leadership.resign()))
    await Promise.race([resigned, delay(resignTimeoutMs, undefined, { ref: false })])
    this.#connection.close()
  }

  /** Reads a range. For a current range on the watched prefixes, remembers the last commit: a watch may start from it. */
  async #readRange(query: RangeQuery, signal: AbortSignal): Promise<RangeResponse> {
    const request = this.#encoding.range(query)
    if (query.revision !== undefined || !isWatched(query.prefix)) return await this.#connection.call('range', request, { signal, repeatable: true })
    const success = [{ request_range: { key: this.#encoding.head } }, { request_range: request }]
    const { header, responses } = await this.#connection.call('txn', { success }, { signal, repeatable: true })
    const [head, range] = responses.map((response) => response.response_range)
    if (head === undefined || range === undefined) throw new TypeError('etcd answered with the result of another transaction')
    this.#connection.identity.notePosition(Number(header.revision), this.#encoding.headOf(head.kvs[0]))
    return { ...range, header }
  }

  /** Reads the last commit on the watched prefixes, and the current revision of the cluster. */
  async #readHead(signal: AbortSignal): Promise<WatchTarget> {
    const { identity } = this.#connection
    const before = identity.head
    const { header, kvs } = await this.#connection.call('range', { key: this.#encoding.head }, { signal, repeatable: true })
    const head = this.#encoding.headOf(kvs[0])
    identity.assertHead(head, before)
    return { due: head.revision, revision: Number(header.revision) }
  }

  /** Returns the last commit as of `revision` if it is remembered. Rejects with `replaced` if the cluster now shows a different one. */
  async #headAt(revision: Revision, signal: AbortSignal): Promise<ClusterHead | undefined> {
    const { identity } = this.#connection
    const known = identity.position(revision)
    if (known === undefined) {
      await this.#assertReached(revision, signal)
      return undefined
    }
    try {
      const { kvs } = await this.#connection.call('range', { key: this.#encoding.head, revision }, { signal, repeatable: true })
      identity.assertPosition(this.#encoding.headOf(kvs[0]), known)
      return known
    } catch (error) {
      if (error instanceof StoreError && error.kind === 'compacted') await this.#assertReached(revision, signal)
      throw error
    }
  }

  /**
   * Returns how far a watch of `prefixes` must progress. Undefined for prefixes that the head key does not cover: it only shows commits on the watched
   * prefixes.
   */
  async #watchTarget(prefixes: readonly string[], signal: AbortSignal): Promise<WatchTarget | undefined> {
    const head = await this.#readHead(signal)
    return prefixes.every(isWatched) ? head : undefined
  }

  async #assertReached(revision: Revision, signal: AbortSignal): Promise<void> {
    if ((await this.#readHead(signal)).revision < revision)
      throw new StoreError('replaced', 'the store has not reached the requested revision: it was replaced or restored')
  }
}

function outcomeOf({ succeeded, header }: TransactionResponse): Committed | Conflict {
  return succeeded ? { committed: true, revision: storeRevision(Number(header.revision)) } : { committed: false }
}

function isWatched(prefix: string): boolean {
  return watchedPrefixes.some((watched) => prefix.startsWith(watched))
}
