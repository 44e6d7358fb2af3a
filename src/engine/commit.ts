import { errorText } from '../base/error-text.ts'
import { DomainError } from '../base/errors.ts'
import { watchedPrefixes } from '../store/keys.ts'
import { StoreError, type Guard, type Put, type Revision, type Transaction } from '../store/store.ts'
import { backOff, inAttempts } from './attempts.ts'
import type { ChangeSet } from './change-set.ts'
import { fromStore, outcomeUnknown } from './errors.ts'
import type { Planning } from './kind.ts'
import type { Admission } from './quota/quotas.ts'
import { callerOf, type MutationContext, type Services } from './services.ts'

/** What a plan came to: the transaction, and what is answered once it committed. */
export interface MutationPlan<T> {
  readonly changes: ChangeSet
  readonly result: T
}

/** How long an unanswered transaction is repeated before its outcome counts as unknown, in milliseconds. */
const outcomeTimeoutMs = 10_000

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

/**
 * The revision at which the transaction committed, or undefined where it did not and never will. `unanswered` is true where an attempt had no answer: it is
 * fenced off first, else it could still commit after the read. Throws code 2 where there is no proof, and StoreError where the store does not answer.
 */
async function provenRevision(services: Services, { proofKey, proofValue }: Provable, { unanswered, signal }: Attempts): Promise<Revision | undefined> {
  if (proofKey === undefined) throw outcomeUnknown()
  if (unanswered) await services.store.fence(signal)
  const entry = await services.store.get(proofKey, signal)
  return entry === undefined || (proofValue !== undefined && !Buffer.from(proofValue).equals(entry.value)) ? undefined : entry.revision
}

/** What is known of the attempts to commit one transaction. */
interface Attempts {
  readonly unanswered: boolean
  /** Aborts when the outcome counts as unknown. */
  readonly signal: AbortSignal
}

/**
 * Commits, or finds out that a guard failed (undefined). A transaction without an answer is sent again as it is: its guards let it commit once at most, and
 * its proof tells whether the first one did. So the answer is never UNAVAILABLE for a committed write, nor a refusal of one that commits later.
 */
async function transact(services: Services, changes: Provable): Promise<Revision | undefined> {
  const timeout = new AbortController()
  const timer = setTimeout(() => timeout.abort(new StoreError('unavailable', 'the store did not answer in time')), outcomeTimeoutMs)
  try {
    return await transactUntil(services, changes, timeout.signal)
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
      return unanswered || changes.proofKey !== undefined ? await settledRevision(services, changes, { unanswered, signal }) : undefined
    } catch (error) {
      if (error instanceof DomainError) throw error
      const kind = error instanceof StoreError ? error.kind : undefined
      unanswered ||= kind === 'indeterminate'
      if (signal.aborted) throw unanswered ? outcomeUnknown(error) : fromStore(error)
      if (kind !== 'unavailable' && kind !== 'indeterminate') return await provenOr(services, changes, { attempts: { unanswered, signal }, refusal: error })
      await backOff(services, attempt + 3)
    }
  }
}

/** As `provenRevision`, again and again while the store does not answer. Throws code 2 where it does not answer in time. */
async function settledRevision(services: Services, changes: Provable, attempts: Attempts): Promise<Revision | undefined> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await provenRevision(services, changes, attempts)
    } catch (error) {
      if (error instanceof DomainError) throw error
      if (attempts.signal.aborted || !(error instanceof StoreError && error.kind === 'unavailable')) throw outcomeUnknown(error)
      await backOff(services, attempt + 3)
    }
  }
}

/**
 * The revision at which an attempt committed though the last one was refused; throws the refusal where none did, code 2 where nothing tells. A refusal for want of
 * room says nothing of its own attempt: etcd writes the transaction that fills it.
 */
async function provenOr(services: Services, changes: Provable, { attempts, refusal }: { attempts: Attempts; refusal: unknown }): Promise<Revision> {
  const mayBeWritten = refusal instanceof StoreError && refusal.kind === 'exhausted' && changes.proofKey !== undefined
  const revision = attempts.unanswered || mayBeWritten ? await settledRevision(services, changes, attempts) : undefined
  if (revision === undefined) throw fromStore(refusal)
  return revision
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
  const entries = await Promise.all(changes.claims.map(({ key }) => services.store.get(key, signal)))
  for (const [at, { taken, uid }] of changes.claims.entries()) {
    const entry = entries[at]
    // Somebody else may have given this very record the same name meanwhile.
    if (entry !== undefined && Buffer.from(entry.value).toString() !== uid) throw taken()
  }
}

/**
 * Plans and commits a mutation. The plan is made of one commit's state and guarded against every later one; where a guard fails, the sweeps that
 * it waits for are finished, the caller's rights are looked at again and all is planned anew. Resolves when this replica's snapshot holds the commit. With `validateOnly`
 * everything but the commit happens.
 */
export async function commit<T>(services: Services, context: MutationContext, plan: (planning: Planning) => MutationPlan<T>): Promise<T> {
  return commitPrepared(services, context, { prepare: () => undefined, plan })
}

/** A mutation that looks at keys which are not in memory. */
export interface PreparedMutation<P, T> {
  /** Reads them, before each planning. What it read is to be guarded by the plan. */
  readonly prepare: (signal: AbortSignal) => Promise<P> | P
  readonly plan: (planning: Planning, prepared: P) => MutationPlan<T>
}

/** As `commit`, with something to read before each planning. */
export async function commitPrepared<P, T>(services: Services, context: MutationContext, mutation: PreparedMutation<P, T>): Promise<T> {
  const admission = services.quotas.begin(context.signal)
  try {
    return await commitAdmitted(services, context, { ...mutation, admission })
  } finally {
    admission.end()
  }
}

async function commitAdmitted<P, T>(services: Services, context: MutationContext, mutation: PreparedMutation<P, T> & { admission: Admission }): Promise<T> {
  const { replica, sweeper, random } = services
  const { signal } = context
  return inAttempts({ random, signal }, async (attempt) => {
    if (attempt > 1) await replica.barrier(signal)
    const { changes, result } = await admittedPlan(services, context, mutation)
    if (context.validateOnly) {
      await assertUnclaimed(services, changes, signal)
      return { done: result }
    }
    const revision = await transactAdmitted(services, changes, mutation.admission)
    if (revision !== undefined) {
      await settled(services, changes, revision)
      return { done: result }
    }
    const swept = await sweeper.finishBlocking(changes.guards, signal)
    if (!swept) await assertUnclaimed(services, changes, signal)
    return undefined
  })
}

/** A plan that the limits of its organisations let through now. Throws code 8 QUOTA_EXCEEDED. */
async function admittedPlan<P, T>(
  services: Services,
  context: MutationContext,
  { prepare, plan, admission }: PreparedMutation<P, T> & { admission: Admission },
): Promise<MutationPlan<T>> {
  for (;;) {
    context.signal.throwIfAborted()
    context.authorize()
    const reading = prepare(context.signal)
    const prepared = reading instanceof Promise ? await reading : reading
    if (reading instanceof Promise) context.authorize()
    const planned = plan(planningOf(services, context), prepared)
    const wait = admission.admit(planned.changes, context.validateOnly)
    if (wait === undefined) return planned
    await wait()
  }
}

/** As `transact`; the limits are told what became of it. */
async function transactAdmitted(services: Services, changes: ChangeSet, admission: Admission): Promise<Revision | undefined> {
  try {
    const revision = await transact(services, changes)
    admission.settle(revision ?? 'refused')
    return revision
  } catch (error) {
    admission.settle(error instanceof DomainError && error.code !== 2 ? 'refused' : 'unknown')
    throw error
  }
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
    services.log.warn('committed, but the watch is late', { revision, error: errorText(error) })
  }
}
