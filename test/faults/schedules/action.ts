import type { Installation, InstallationKind } from '../cluster/installation.ts'
import type { SeededRandom } from './random.ts'

/** A resource that two concurrent actions must not both disturb. */
export type Lock = (typeof allLocks)[number]

export const allLocks = ['clocks', 'history', 'links', 'members', 'processes', 'room'] as const

/** The kind of a killed process. */
export type Victim = 'member' | 'leader' | 'process'

/** The input of an action. */
export interface ActionContext {
  readonly installation: Installation
  readonly random: SeededRandom
  /** Aborts when the run ends early. */
  readonly signal: AbortSignal
  /** Counts a kill. */
  killed(victim: Victim): void
  /** Waits until `writes` more writes were acknowledged. */
  progress(writes: number): Promise<void>
  /** Reports a violation, so that the run fails. */
  violation(text: string): void
  /**
   * Runs `work` between two histories: earlier acknowledged writes are checked before, and later ones belong to a new history. Needed if acknowledged writes
   * are lost for a good reason.
   */
  betweenHistories(work: () => Promise<void>): Promise<void>
}

/** Ends a fault. Resolves when the affected parts serve again. */
export type Heal = () => Promise<void>

/** One kind of fault. */
export interface Action {
  readonly needs: readonly InstallationKind[]
  readonly locks: readonly Lock[]
  /** Minimum and maximum duration of the fault, in milliseconds. */
  readonly holdMs: readonly [number, number]
  /** True if it needs an installation with little space. */
  readonly littleRoom?: boolean
  /** True if temporary data, events and idempotency keys, may expire early: such a run can't detect missing ones. */
  readonly expires?: boolean
  /** True if wall clocks jump: tokens end at any time. */
  readonly jumps?: boolean
  /** Returns in one line why this machine can't make it; undefined if it can. */
  missing?(): Promise<string | undefined>
  /**
   * Makes the fault and returns a function that ends it. Returns undefined, with no effect, if etcd did not make it now. All choices come from
   * `context.random`.
   */
  apply(context: ActionContext): Promise<Heal | undefined>
}
