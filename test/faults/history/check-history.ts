import type { History } from './history.ts'

/** A part of the history that no order of its operations explains. */
export interface Failure {
  /** `record <kind> <uid>`, `members <kind> <group>`, `name <kind> <group>:<name>` or `tag <tag>`. */
  readonly partition: string
  /** How many operations it has. */
  readonly ops: number
  /** What is wrong, for people. */
  readonly info: string
}

/** What the checker says of a history. */
export interface Verdict {
  /** True where every part was checked and none failed. */
  readonly ok: boolean
  /** Operations that were checked. */
  readonly checked: number
  readonly partitions: number
  readonly failures: readonly Failure[]
  /** Parts that could not be decided in time: such a history counts as not ok. */
  readonly unknown: readonly string[]
}

/**
 * Runs the history checker (tools/parts/history-checker). Rejects with its complaint where it can't be built or does not run to its end.
 */
export function checkHistory(_history: Pick<History, 'toJsonLines'>): Promise<Verdict> {
  return Promise.reject(new Error('to come'))
}
