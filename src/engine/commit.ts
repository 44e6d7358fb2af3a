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

/** The result of a plan: the transaction, and the answer to return once it commits. */
export interface MutationPlan<T> {
  readonly changes: ChangeSet
  readonly result: T
}

/** How long to repeat an unanswered transaction before its outcome counts as unknown, in milliseconds. */
const outcomeTimeoutMs = 10_000

/** Returns what rules may read while planning, as of now. */
export function planningOf(services: Services, context: MutationContext): Planning {
  const caller = callerOf(context)
  return { services, tables: services.cache.tables, caller, permissions: caller.permissions(), ownership: context.ownership, nowMs: services.clock.now() }
}

/** A transaction with a proof key, which shows afterwards whether the transaction committed. */
interface Provable extends Transaction {
  /** A key that only this transaction writes, or to which only it gives `proofValue`. Undefined if there is no proof. */
  readonly proofKey: string | undefined
  readonly proofValue?: Uint8Array
}

/**
 * Returns the revision at which the transaction committed, or undefined if it did not and never will. `unanswered` is true if an attempt got no answer. Such an
 * attempt is fenced off first, or it could still commit after the read. Throws code 2 without a proof, and StoreError if the store does not answer.
 */
async function provenRevision(services: Services, { proofKey, proofValue }: Provable, { unanswered, signal }: Attempts): Promise<Revision | undefined> {
  if (proofKey === undefined) throw outcomeUnknown()
  if (unanswered) await services.store.fence(signal)
  const entry = await services.store.get(proofKey, signal)
  return entry === undefined || (proofValue !== undefined && !Buffer.from(proofValue).equals(entry.value)) ? undefined : entry.revision
}

/** The known state of the attempts to commit one transaction. */
interface Attempts {
  readonly unanswered: boolean
  /** Aborts once the outcome counts as unknown. */
  readonly signal: AbortSignal
}

/**
 * Commits. Returns undefined if a guard failed. An unanswered transaction is sent again unchanged: its guards let it commit at most once. Its proof shows
 * whether the first attempt committed. So a committed write never gets UNAVAILABLE, and a refused write never commits later.
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
      // Check the proof even if every attempt was answered. A transaction that fills the store is written but refused, and sent again if it was part of a
      // group.
      return unanswered || changes.proofKey !== undefined ? await settledRevision(services, changes, { unanswered, signal }) : undefined
    } catch (error) {
      if (error instanceof DomainError) throw error
      const kind = error instanceof StoreError ? error.kind : undefined
      unanswered ||= kind === 'indeterminate'
      if (signal.aborted) throw unanswered ? outcomeUnknown(error) : fromStore(error)
      if (kind !== 'unavailable' && kind !== 'indeterminate') return await provenOr(services, changes, { attempts: { unanswered, signal }, refusal: error })
      await backOff({ random: services.random, signal }, attempt + 3)
    }
  }
}

/** Calls `provenRevision` until the store answers. Throws code 2 if the store does not answer in time. */
async function settledRevision(services: Services, changes: Provable, attempts: Attempts): Promise<Revision | undefined> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await provenRevision(services, changes, attempts)
    } catch (error) {
      if (error instanceof DomainError) throw error
      if (attempts.signal.aborted || !(error instanceof StoreError && error.kind === 'unavailable')) throw outcomeUnknown(error)
      await backOff({ random: services.random, signal: attempts.signal }, attempt + 3)
    }
  }
}

/**
 * Returns the revision at which an attempt committed although the last one was refused. Throws the refusal if none committed, and code 2 without a proof. A
 * refusal for lack of space does not mean that this attempt failed: etcd writes the transaction that fills it.
 */
async function provenOr(services: Services, changes: Provable, { attempts, refusal }: { attempts: Attempts; refusal: unknown }): Promise<Revision> {
  const mayBeWritten = refusal instanceof StoreError && refusal.kind === 'exhausted' && changes.proofKey !== undefined
  const revision = attempts.unanswered || mayBeWritten ? await settledRevision(services, changes, attempts) : undefined
  if (revision === undefined) throw fromStore(refusal)
  return revision
}

/**
 * Commits entries that are not records. The first value must be unique to this call (a secret, or sealed data): it proves the write if the store's answer is
 * lost. Returns false if a guard failed. Throws code 2 `OUTCOME_UNKNOWN` if the store does not answer in time, and codes 8 and 14 if nothing was written.
 */
export async function commitEntries(services: Services, guards: readonly Guard[], puts: readonly [Put, ...Put[]]): Promise<boolean> {
  const [{ key, value }] = puts
  return (await transact(services, { guards, writes: puts, proofKey: key, proofValue: value })) !== undefined
}

/** Throws the conflict error of the first unique key that is taken. Returns if none is. */
async function assertUnclaimed(services: Services, changes: ChangeSet, signal: AbortSignal): Promise<void> {
  if (changes.isUpsert) return
  const entries = await Promise.all(changes.claims.map(({ key }) => services.store.get(key, signal)))
  for (const [at, { taken, uid }] of changes.claims.entries()) {
    const entry = entries[at]
    // Another call may have given this same record the same name in the meantime.
    if (entry !== undefined && Buffer.from(entry.value).toString() !== uid) throw taken()
  }
}

/**
 * Plans and commits a mutation. The plan uses the state of one commit and has guards against all later ones. If a guard fails, it finishes the cascades that
 * the guard waits for, checks the caller's rights again, and plans again. Resolves once this replica's snapshot holds the commit. With `validateOnly`, does
 * everything but commit.
 */
export async function commit<T>(services: Services, context: MutationContext, plan: (planning: Planning) => MutationPlan<T>): Promise<T> {
  return commitPrepared(services, context, { prepare: () => undefined, plan })
}

/** A mutation that depends on keys which are not in memory. */
export interface PreparedMutation<P, T> {
  /** Reads these keys before each planning. The plan must guard what was read. */
  readonly prepare: (signal: AbortSignal) => Promise<P> | P
  readonly plan: (planning: Planning, prepared: P) => MutationPlan<T>
}

/** Like `commit`, with a read before each planning. */
export async function commitPrepared<P, T>(services: Services, context: MutationContext, mutation: PreparedMutation<P, T>): Promise<T> {
  const admission = services.quotas.begin(context.signal)
  try {
    return await commitAdmitted(services, context, { ...mutation, admission })
  } finally {
    admission.end()
  }
}

async function commitAdmitted<P, T>(services: Services, context: MutationContext, mutation: PreparedMutation<P, T> & { admission: Admission }): Promise<T> {
  const { cache, cascader, random } = services
  const { signal } = context
  return inAttempts({ random, signal }, async (attempt) => {
    if (attempt > 1) await cache.barrier(signal)
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
    const cascaded = await cascader.finishBlocking(changes.guards, signal)
    if (!cascaded) await assertUnclaimed(services, changes, signal)
    return undefined
  })
}

/** Returns a plan that fits within its organisation's limits now. Throws code 8 QUOTA_EXCEEDED. */
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

/** Like `transact`, and reports the outcome to the limits. */
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
 * Waits until the snapshot holds the commit. A watch that breaks after the commit must not turn a success into an error. Does not wait for a commit without
 * watched keys: the watch never reports it.
 */
async function settled(services: Services, changes: ChangeSet, revision: Revision): Promise<void> {
  if (!changes.writes.some(({ key }) => watchedPrefixes.some((prefix) => key.startsWith(prefix)))) return
  try {
    await services.cache.reached(revision)
  } catch (error) {
    services.log.warn('the change is committed, but this replica has not read it yet', { revision, error: errorText(error) })
  }
}
