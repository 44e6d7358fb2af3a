import { rootOfKey } from '../keys.ts'
import { StoreError, type Committed, type Conflict, type Guard, type Transaction } from '../store.ts'
import { maxTransactionBytes, maxTransactionOperations } from '../transaction-limits.ts'

/** Functions with which GroupCommit sends transactions to etcd. */
export interface Sending {
  /** Sends one transaction. `signal` ends the wait for its outcome, but the transaction may still commit. Rejects when the store is closed. */
  readonly send: (transaction: Transaction, signal: AbortSignal) => Promise<Committed | Conflict>
  /** Resolves once a transaction can be sent; undefined if one can be sent now. Rejects if etcd cannot be reached. */
  readonly ready: () => Promise<unknown> | undefined
}

/** One caller's transaction until its outcome is known. */
interface PendingTransaction {
  readonly transaction: Transaction
  /** Uid of the root in whose queue it waits. */
  readonly root: string
  readonly signal: AbortSignal
  readonly resolve: (outcome: Committed | Conflict) => void
  readonly reject: (error: unknown) => void
  /** Resolves when the outcome of the transaction's group is known. Undefined while the transaction waits in its queue. */
  run: Promise<void> | undefined
}

/** Maximum number of groups that are sent and not answered: one is sent while another one becomes durable. */
const maxRunning = 2
/** Maximum number of waiting transactions that are considered for one group. Those that do not fit are the first candidates for the next group. */
const maxLookedAt = 256

/**
 * Combines transactions of concurrent callers into one etcd transaction: one consensus round and one disk flush for all. Transactions share a group only if
 * they touch different keys, so their order does not affect the outcome. If a guard of a group fails, its members are committed one by one. A single caller
 * does not wait (docs/adr/0011). Each organisation has its own queue, and the queues take turns.
 */
export class GroupCommit {
  readonly #sending: Sending
  readonly #waiting = new FairQueue()
  /** Groups under way in which a caller has stopped waiting for its transaction. */
  readonly #abandoned = new Set<Promise<void>>()
  #running = 0

  constructor(sending: Sending) {
    this.#sending = sending
  }

  /** Commits like `Store.transact`. If the signal aborts, rejects with its reason while the transaction is in its queue, and with `indeterminate` later. */
  async commit(transaction: Transaction, signal: AbortSignal): Promise<Committed | Conflict> {
    signal.throwIfAborted()
    const { promise, resolve, reject } = Promise.withResolvers<Committed | Conflict>()
    const member: PendingTransaction = { transaction, root: rootOfTransaction(transaction), signal, resolve, reject, run: undefined }
    const leave = (): void => {
      if (member.run === undefined) {
        this.#waiting.remove(member)
        reject(signal.reason)
      } else {
        this.#abandon(member.run)
        reject(new StoreError('indeterminate', 'the caller stopped waiting before etcd answered', signal.reason))
      }
    }
    signal.addEventListener('abort', leave, { once: true })
    this.#waiting.add(member)
    this.#start()
    try {
      return await promise
    } finally {
      signal.removeEventListener('abort', leave)
    }
  }

  /** Resolves when all transactions whose callers stopped waiting before this call have an outcome. */
  async abandoned(): Promise<void> {
    await Promise.all(this.#abandoned)
  }

  #abandon(run: Promise<void>): void {
    this.#abandoned.add(run)
    void run.then(() => this.#abandoned.delete(run))
  }

  #start(): void {
    while (this.#running < maxRunning && !this.#waiting.isEmpty) {
      this.#running += 1
      const ready = this.#sending.ready()
      if (ready === undefined) this.#runNext()
      else {
        void ready.then(
          () => this.#runNext(),
          (error: unknown) => this.#refuseAll(error),
        )
      }
    }
  }

  /** Sends the next group. It is formed as late as possible, so that the abort of a caller that still waits means that nothing was sent. */
  #runNext(): void {
    const group = new Group()
    const taken = this.#waiting.take((member) => group.take(member.transaction))
    const run = this.#run(taken, group)
    for (const member of taken) member.run = run
  }

  /** Rejects all waiting transactions with `error`, because etcd cannot be reached. */
  #refuseAll(error: unknown): void {
    for (const member of this.#waiting.takeAll()) member.reject(error)
    this.#running -= 1
  }

  /** Sends a group of transactions and reports the outcomes to their callers. Never rejects. */
  async #run(members: readonly PendingTransaction[], group: Group): Promise<void> {
    const [only, ...others] = members
    try {
      if (only === undefined) return
      if (others.length === 0) {
        only.resolve(await this.#sending.send(only.transaction, only.signal))
        return
      }
      const outcome = await this.#sending.send(group.transaction, never)
      if (outcome.committed) for (const member of members) member.resolve(outcome)
      else await Promise.all(members.map((member) => this.#alone(member)))
    } catch (error) {
      // The refusal may apply to one member only: a full etcd still accepts deletions, and etcd's size limit may be smaller than a group. So send the members
      // one by one.
      if (members.length > 1 && error instanceof StoreError && (error.kind === 'exhausted' || error.kind === 'too_large')) {
        await Promise.all(members.map((member) => this.#alone(member)))
      } else for (const member of members) member.reject(error)
    } finally {
      this.#running -= 1
      this.#start()
    }
  }

  async #alone({ transaction, signal, resolve, reject }: PendingTransaction): Promise<void> {
    try {
      signal.throwIfAborted()
      resolve(await this.#sending.send(transaction, signal))
    } catch (error) {
      reject(error)
    }
  }
}

/** Waiting transactions in queues, one for each root to which they write. Transactions that write to no root share a queue. */
class FairQueue {
  /** The queues in the order of their next turn; no queue is empty. */
  readonly #queues = new Map<string, Set<PendingTransaction>>()

  get isEmpty(): boolean {
    return this.#queues.size === 0
  }

  add(member: PendingTransaction): void {
    const queue = this.#queues.get(member.root)
    if (queue === undefined) this.#queues.set(member.root, new Set([member]))
    else queue.add(member)
  }

  remove(member: PendingTransaction): void {
    const queue = this.#queues.get(member.root)
    queue?.delete(member)
    if (queue?.size === 0) this.#queues.delete(member.root)
  }

  takeAll(): PendingTransaction[] {
    const all = [...this.#queues.values()].flatMap((queue) => [...queue])
    this.#queues.clear()
    return all
  }

  /**
   * Removes and returns the waiting transactions for which `fits` returns true, one of each queue in turn. A queue of which the first transaction was taken
   * has its next turn after all others.
   */
  take(fits: (member: PendingTransaction) => boolean): PendingTransaction[] {
    const queues = this.#firstQueues()
    const taken = new Set<PendingTransaction>()
    let iterators = queues.map((queue) => queue.values())
    for (let looks = 0; iterators.length > 0 && looks < maxLookedAt;) {
      const round = iterators.slice(0, maxLookedAt - looks)
      iterators = round.filter((members) => {
        const { value: member } = members.next()
        if (member === undefined) return false
        looks += 1
        if (fits(member)) taken.add(member)
        return true
      })
    }
    for (const queue of queues) {
      const [first] = queue
      if (first === undefined || !taken.has(first)) continue
      this.#queues.delete(first.root)
      this.#queues.set(first.root, queue)
    }
    for (const member of taken) this.remove(member)
    return [...taken]
  }

  /** Returns the queues whose transactions are considered for one group. */
  #firstQueues(): Set<PendingTransaction>[] {
    const queues: Set<PendingTransaction>[] = []
    for (const queue of this.#queues.values()) {
      if (queues.length === maxLookedAt) break
      queues.push(queue)
    }
    return queues
  }
}

/** Matches a key that contains the uid of a root as a whole part, and captures that uid. */
const rootInKey = /\/([0-9a-f]{40})(?:[/:]|$)/

/** Returns the uid of the root whose data the transaction writes; empty if it writes no data of a root. */
function rootOfTransaction({ writes }: Transaction): string {
  for (const { key } of writes) {
    const root = rootOfKey(key) ?? rootInKey.exec(key)?.[1]
    if (root !== undefined) return root
  }
  return ''
}

/** The signal of work that several members share, which must not end when one caller aborts. */
const never = new AbortController().signal

/** Transactions to be sent as one etcd transaction. */
class Group {
  readonly #guards = new Map<string, Guard>()
  readonly #writes = new Map<string, Transaction['writes'][number]>()
  readonly #guardedKeys = new Set<string>()
  readonly #guardedPrefixes = new Set<string>()
  #bytes = 0

  get transaction(): Transaction {
    return { guards: [...this.#guards.values()], writes: [...this.#writes.values()] }
  }

  /** Adds a transaction. Returns false, and adds nothing, if it touches a key of another member or exceeds the limits of one etcd transaction. */
  take(transaction: Transaction): boolean {
    if (this.#writes.size > 0 && !this.#fits(transaction)) return false
    for (const guard of transaction.guards) {
      this.#guards.set(nameOf(guard), guard)
      if ('prefix' in guard) this.#guardedPrefixes.add(guard.prefix)
      else this.#guardedKeys.add(guard.key)
    }
    for (const write of transaction.writes) this.#writes.set(write.key, write)
    this.#bytes += bytesOf(transaction)
    return true
  }

  #fits(transaction: Transaction): boolean {
    const { guards, writes } = transaction
    if (this.#bytes + bytesOf(transaction) > maxTransactionBytes) return false
    if (this.#writes.size + writes.length > maxTransactionOperations || this.#guards.size + guards.length > maxTransactionOperations) return false
    return !guards.some((guard) => this.#isWritten(guard)) && !writes.some(({ key }) => this.#isTouched(key))
  }

  /** True if a member of the group writes a key that the guard checks. */
  #isWritten(guard: Guard): boolean {
    if (!('prefix' in guard)) return this.#writes.has(guard.key)
    for (const key of this.#writes.keys()) if (key.startsWith(guard.prefix)) return true
    return false
  }

  #isTouched(key: string): boolean {
    if (this.#writes.has(key) || this.#guardedKeys.has(key)) return true
    for (const prefix of this.#guardedPrefixes) if (key.startsWith(prefix)) return true
    return false
  }
}

/** Returns a text that is the same for equal guards, which members often share. */
function nameOf(guard: Guard): string {
  const name = 'prefix' in guard ? guard.prefix : guard.key
  return 'revision' in guard ? `${guard.kind} ${guard.revision} ${name}` : `${guard.kind} ${name}`
}

function bytesOf({ guards, writes }: Transaction): number {
  let bytes = 0
  for (const guard of guards) bytes += 'prefix' in guard ? guard.prefix.length : guard.key.length
  for (const write of writes) bytes += write.key.length + (write.kind === 'put' ? write.value.length : 0)
  return bytes
}
