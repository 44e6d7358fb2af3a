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

/** A planned mutation: its transaction, and the answer to return once it is committed. */
export interface MutationPlan<T> {
  readonly changes: ChangeSet
  readonly result: T
}

/** Time for which an unanswered transaction is repeated before its outcome counts as unknown, in milliseconds. */
const outcomeTimeoutMs = 10_000

/** Returns the current data that rules may read while a mutation is planned. */
export function planningOf(services: Services, context: MutationContext): Planning {
  const caller = callerOf(context)
  return { services, tables: services.cache.tables, caller, permissions: caller.permissions(), ownership: context.ownership, nowMs: services.clock.now() }
}

/** A transaction that may have a proof key, with which a later read shows whether it was committed. */
interface Provable extends Transaction {
  /** A key that only this transaction writes, or to which only it gives `proofValue`. Undefined if there is no proof. */
  readonly proofKey: string | undefined
  readonly proofValue?: Uint8Array
}

/**
 * Returns the revision at which the transaction committed, or undefined if it did not and never will. If an attempt is `unanswered`, it is fenced off before
 * the read, because it could still commit afterwards. Throws code 2 without a proof, and StoreError if the store does not answer.
 */
async function provenRevision(services: Services, { proofKey, proofValue }: Provable, { unanswered, signal }: Attempts): Promise<Revision | undefined> {
  if (proofKey === undefined) throw outcomeUnknown()
  if (unanswered) await services.store.fence(signal)
  const entry = await services.store.get(proofKey, signal)
  return entry === undefined || (proofValue !== undefined && !Buffer.from(proofValue).equals(entry.value)) ? undefined : entry.revision
}

/** What is known about the attempts to commit one transaction. */
interface Attempts {
  readonly unanswered: boolean
  /** Aborts when the outcome counts as unknown. */
  readonly signal: AbortSignal
}

/**
 * Commits a transaction. Returns undefined if a guard failed. An unanswered transaction is sent again unchanged: its guards let it commit at most once. Its
 * proof shows whether the first attempt committed. So a committed write never gets UNAVAILABLE, and a refused write never commits later.
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
      // Check the proof even if every attempt was answered. etcd refuses the transaction that fills it, although it writes it. In a group, that transaction is
      // then sent again.
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
 * Returns the revision at which an attempt committed, although the last attempt was refused. Throws the refusal if none committed, and code 2 without a proof.
 * A refusal for lack of space does not prove that the attempt failed: etcd writes the transaction that fills it.
 */
async function provenOr(services: Services, changes: Provable, { attempts, refusal }: { attempts: Attempts; refusal: unknown }): Promise<Revision> {
  const mayBeWritten = refusal instanceof StoreError && refusal.kind === 'exhausted' && changes.proofKey !== undefined
  const revision = attempts.unanswered || mayBeWritten ? await settledRevision(services, changes, attempts) : undefined
  if (revision === undefined) throw fromStore(refusal)
  return revision
}

/**
 * Commits entries that are not records. The first value must be unique to this call (a secret, or encrypted data), because it proves the write if the store's
 * answer is lost. Returns false if a guard failed. Throws code 2 `OUTCOME_UNKNOWN` if the store does not answer in time, and codes 8 and 14 if nothing was
 * written.
 */
export async function commitEntries(services: Services, guards: readonly Guard[], puts: readonly [Put, ...Put[]]): Promise<boolean> {
  const [{ key, value }] = puts
  return (await transact(services, { guards, writes: puts, proofKey: key, proofValue: value })) !== undefined
}

/** Throws the conflict error of the first unique key that another record has. Returns if there is none. */
async function assertUnclaimed(services: Services, changes: ChangeSet, signal: AbortSignal): Promise<void> {
  if (changes.isUpsert) return
  const entries = await Promise.all(changes.claims.map(({ key }) => services.store.get(key, signal)))
  for (const [at, { taken, uid }] of changes.claims.entries()) {
    const entry = entries[at]
    // A concurrent call may have given the same name to this same record.
    if (entry !== undefined && Buffer.from(entry.value).toString() !== uid) throw taken()
  }
}

/**
 * Plans and commits a mutation. The plan is based on one commit, and its guards fail if a later commit makes it invalid. Then it finishes the cascades that
 * the guard waits for, checks the caller's permissions again, and plans again. Resolves once this replica's snapshot contains the commit. With `validateOnly`,
 * does everything except the commit.
 */
export async function commit<T>(services: Services, context: MutationContext, plan: (planning: Planning) => MutationPlan<T>): Promise<T> {
  return commitPrepared(services, context, { prepare: () => undefined, plan })
}

/** A mutation whose plan depends on keys that are not in memory. */
export interface PreparedMutation<P, T> {
  /** Reads these keys before each plan. The plan must have guards for what was read. */
  readonly prepare: (signal: AbortSignal) => Promise<P> | P
  readonly plan: (planning: Planning, prepared: P) => MutationPlan<T>
}

/** Like `commit`, for a mutation that reads keys of the store before each plan. */
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
    if (cascaded) return undefined
    if (context.also !== undefined) {
      // A name may be taken in a place to which a path leads no longer.
      await cache.barrier(signal)
      context.also(services.clock.now())
    }
    await assertUnclaimed(services, changes, signal)
    return undefined
  })
}

/** Checks the caller's permissions again. Returns what the transaction also guards and writes. A path that leads elsewhere now is code 10 before anything else. */
function authorized(services: Services, context: MutationContext): Transaction | undefined {
  const also = context.also?.(services.clock.now())
  context.authorize()
  return also
}

/** Returns a plan that its organisation's limits allow now. Throws code 8 QUOTA_EXCEEDED. */
async function admittedPlan<P, T>(
  services: Services,
  context: MutationContext,
  { prepare, plan, admission }: PreparedMutation<P, T> & { admission: Admission },
): Promise<MutationPlan<T>> {
  for (;;) {
    context.signal.throwIfAborted()
    let also = authorized(services, context)
    const reading = prepare(context.signal)
    const prepared = reading instanceof Promise ? await reading : reading
    if (reading instanceof Promise) also = authorized(services, context)
    const planned = plan(planningOf(services, context), prepared)
    planned.changes.add(also)
    const wait = admission.admit(planned.changes, context.validateOnly)
    if (wait === undefined) return planned
    await wait()
  }
}

/** Commits a transaction like `transact`, and reports the outcome to the quotas. */
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
 * Waits until the snapshot contains the commit. Does not wait if the commit wrote no watched keys, which the watch never reports. A watch that breaks after
 * the commit must not turn success into an error.
 */
async function settled(services: Services, changes: ChangeSet, revision: Revision): Promise<void> {
  if (!changes.writes.some(({ key }) => watchedPrefixes.some((prefix) => key.startsWith(prefix)))) return
  try {
    await services.cache.reached(revision)
  } catch (error) {
    services.log.warn('the change is committed, but this replica has not read it yet', { revision, error: errorText(error) })
  }
}
