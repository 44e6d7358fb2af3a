import { DomainError } from '../core/errors.ts'
import { watchedPrefixes } from '../store/keys.ts'
import { StoreError, type Guard, type Put, type Revision, type Transaction } from '../store/store.ts'
import type { ChangeSet } from './change-set.ts'
import { fromStore } from './faults.ts'
import type { Planning } from './kind.ts'
import { callerOf, type MutationContext, type Services } from './services.ts'

/** What a plan came to: the transaction, and what is answered once it committed. */
export interface Plan<T> {
  readonly changes: ChangeSet
  readonly result: T
}

/** Conflicts are planned anew this often before the caller is told to try again. */
const maxAttempts = 12
/** How long an unanswered transaction is repeated before its outcome counts as unknown, in milliseconds. */
const outcomeTimeoutMs = 10_000

/** Waits a jittered moment that grows with the attempt. */
async function backOff(services: Services, attempt: number): Promise<void> {
  const spread = (services.random.bytes(1)[0] ?? 0) / 255
  const { promise, resolve } = Promise.withResolvers<void>()
  setTimeout(resolve, Math.min(2 ** attempt, 100) * spread)
  await promise
}

/** What rules may look at, as of now. */
export function planningOf(services: Services, context: MutationContext): Planning {
  const caller = callerOf(context)
  return { services, snapshot: services.replica.snapshot, caller, reach: caller.reach(), ownership: context.ownership, nowMs: services.clock.now() }
}

/** A transaction, and what tells afterwards whether it committed. */
interface Provable extends Transaction {
  /** A key that it alone writes, or to which it alone gives `proofValue`. Undefined where nothing tells. */
  readonly proofKey: string | undefined
  readonly proofValue?: Uint8Array
}

/** The revision at which the transaction committed, or undefined where it did not. Throws code 2 where it left nothing that tells. */
async function provenRevision(services: Services, { proofKey, proofValue }: Provable, signal: AbortSignal): Promise<Revision | undefined> {
  if (proofKey === undefined) throw outcomeUnknown()
  const entry = await services.store.get(proofKey, signal)
  return entry === undefined || (proofValue !== undefined && !Buffer.from(proofValue).equals(entry.value)) ? undefined : entry.revision
}

function outcomeUnknown(cause?: unknown): DomainError {
  return new DomainError(2, 'the store did not answer: read the resource to learn whether the change was made', { reason: 'OUTCOME_UNKNOWN', cause })
}

/**
 * Commits, or finds out that a guard failed (undefined). A transaction without an answer is sent again as it is: its guards let it commit once at most, and
 * its proof tells whether the first one did. So a caller never hears UNAVAILABLE for a write that happened.
 */
async function transact(services: Services, changes: Provable): Promise<Revision | undefined> {
  const patience = new AbortController()
  const timer = setTimeout(() => patience.abort(new StoreError('unavailable', 'the store did not answer in time')), outcomeTimeoutMs)
  try {
    return await transactUntil(services, changes, patience.signal)
  } finally {
    clearTimeout(timer)
  }
}

async function transactUntil(services: Services, changes: Provable, signal: AbortSignal): Promise<Revision | undefined> {
  const transaction = { guards: changes.guards, writes: changes.writes }
  let unanswered = false
  for (let attempt = 1; ; attempt++) {
    try {
      const outcome = await services.store.transact(transaction, signal)
      if (outcome.committed) return outcome.revision
      // Also where all was answered: a transaction that fills the store is written, refused, and sent again where it was one of a group.
      return unanswered || changes.proofKey !== undefined ? await provenRevision(services, changes, signal) : undefined
    } catch (error) {
      const kind = error instanceof StoreError ? error.kind : undefined
      // A refusal for want of room says nothing of this attempt, and no refusal says anything of an earlier one that had no answer.
      const saysNothing = (kind === 'exhausted' && changes.proofKey !== undefined) || (kind !== 'unavailable' && unanswered)
      if (saysNothing) return await provenOr(services, changes, { signal, refusal: error, unanswered })
      if (kind !== 'unavailable' && !signal.aborted) throw fromStore(error)
      if (signal.aborted) throw outcomeUnknown(error)
      unanswered = true
      await backOff(services, attempt + 3)
    }
  }
}

/** The revision at which an attempt committed though the last one was refused; the refusal where none did, code 2 where nothing tells. */
async function provenOr(services: Services, changes: Provable, last: { signal: AbortSignal; refusal: unknown; unanswered: boolean }): Promise<Revision> {
  let revision: Revision | undefined
  try {
    revision = await provenRevision(services, changes, last.signal)
  } catch (error) {
    throw outcomeUnknown(error)
  }
  if (revision !== undefined) return revision
  throw last.unanswered ? outcomeUnknown(last.refusal) : fromStore(last.refusal)
}

/**
 * Commits entries that are no records, the first with a value that nobody else gives it (a secret, or something sealed): so it is known whether they were written though the
 * store's answer was lost. False where a guard failed. Throws code 2 `OUTCOME_UNKNOWN` where the store does not answer in time; code 8 and 14 where nothing was written.
 */
export async function commitEntries(services: Services, guards: readonly Guard[], puts: readonly [Put, ...Put[]]): Promise<boolean> {
  const [{ key, value }] = puts
  return (await transact(services, { guards, writes: puts, proofKey: key, proofValue: value })) !== undefined
}

/** Throws what a taken unique key means; returns where none of them is taken. */
async function assertUnclaimed(services: Services, changes: ChangeSet, signal: AbortSignal): Promise<void> {
  if (changes.isUpsert) return
  for (const { key, taken, uid } of changes.claims) {
    const entry = await services.store.get(key, signal)
    // Somebody else may have given this very record the same name meanwhile.
    if (entry !== undefined && Buffer.from(entry.value).toString() !== uid) throw taken()
  }
}

/**
 * Plans and commits a mutation. The plan is made of one commit's state and guarded against every later one; where a guard fails, what is being swept is
 * finished, the caller's rights are looked at again and all is planned anew. Resolves when this replica's snapshot holds the commit. With `validateOnly`
 * everything but the commit happens.
 */
export async function commit<T>(services: Services, context: MutationContext, plan: (planning: Planning) => Plan<T>): Promise<T> {
  return commitPrepared(services, context, { prepare: () => undefined, plan })
}

/** A mutation that looks at keys which are not in memory. */
export interface PreparedMutation<P, T> {
  /** Reads them, before each planning. What it read is to be guarded by the plan. */
  readonly prepare: (signal: AbortSignal) => Promise<P> | P
  readonly plan: (planning: Planning, prepared: P) => Plan<T>
}

/** As `commit`, with something to read before each planning. */
export async function commitPrepared<P, T>(services: Services, context: MutationContext, { prepare, plan }: PreparedMutation<P, T>): Promise<T> {
  const { replica, sweeper } = services
  for (let attempt = 1; attempt <= maxAttempts; attempt++) {
    if (attempt > 1) await replica.barrier(context.signal)
    context.signal.throwIfAborted()
    context.authorize()
    const reading = prepare(context.signal)
    const prepared = reading instanceof Promise ? await reading : reading
    if (reading instanceof Promise) context.authorize()
    const { changes, result } = plan(planningOf(services, context), prepared)
    if (context.validateOnly) {
      await assertUnclaimed(services, changes, context.signal)
      return result
    }
    const revision = await transact(services, changes)
    if (revision !== undefined) {
      await settled(services, changes, revision)
      return result
    }
    const swept = await sweeper.finish(context.signal)
    if (!swept) await assertUnclaimed(services, changes, context.signal)
    await backOff(services, attempt)
  }
  throw new DomainError(10, 'too many concurrent changes of the same resource; try again', { details: { retryAfterMs: 100 } })
}

/**
 * Waits until the snapshot holds the commit; a watch that breaks after the commit must not turn a success into an error. What the snapshot holds nothing of it is not
 * told of either.
 */
async function settled(services: Services, changes: ChangeSet, revision: Revision): Promise<void> {
  if (!changes.writes.some(({ key }) => watchedPrefixes.some((prefix) => key.startsWith(prefix)))) return
  try {
    await services.replica.reached(revision)
  } catch (error) {
    services.log.warn('committed, but the watch is late', { revision, error: String(error) })
  }
}
