import type { Installation, InstallationKind } from '../cluster/installation.ts'
import type { SeededRandom } from './random.ts'

/** What two actions that run at the same time must not both disturb. */
export type Lock = (typeof allLocks)[number]

export const allLocks = ['clocks', 'history', 'links', 'members', 'processes', 'room'] as const

/** What was killed, for the count. */
export type Victim = 'member' | 'leader' | 'process'

/** What an action works with. */
export interface ActionContext {
  readonly installation: Installation
  readonly random: SeededRandom
  /** Aborts when the run ends early. */
  readonly signal: AbortSignal
  /** Counts a kill. */
  killed(victim: Victim): void
  /** Waits until so many more writes were acknowledged. */
  progress(writes: number): Promise<void>
  /** Something that must never be so: the run fails. */
  violation(text: string): void
  /**
   * Runs `work` between two histories: what was acknowledged before is checked before, and what comes after is a new history. Needed where acknowledged
   * writes are lost for a good reason.
   */
  betweenHistories(work: () => Promise<void>): Promise<void>
}

/** Ends a fault; resolves when what it touched serves again. */
export type Heal = () => Promise<void>

/** One kind of fault. */
export interface Action {
  readonly needs: readonly InstallationKind[]
  readonly locks: readonly Lock[]
  /** How long it stands until it is healed, in milliseconds, from and to. */
  readonly holdMs: readonly [number, number]
  /** Needs an installation with little room. */
  readonly littleRoom?: boolean
  /** What is kept for some time only, events and idempotency keys, may be gone early: such a run can't tell where one is missing. */
  readonly expires?: boolean
  /** Wall clocks jump: tokens end at any time. */
  readonly jumps?: boolean
  /** Why this machine can't make it, in one line; undefined where it can. */
  missing?(): Promise<string | undefined>
  /**
   * Makes the fault and returns a function that ends it. Returns undefined if etcd did not make it now; then nothing is left of it.
   * All choices come from `context.random`.
   */
  apply(context: ActionContext): Promise<Heal | undefined>
}
