/** The kinds that the workload writes. */
export type HistoryKind = 'Group' | 'Identity' | 'Role' | 'RoleBinding'

/**
 * What is known of an operation's effect.
 * - `ok`: it took effect between `call` and `return`.
 * - `absent`: the record was not there at a moment between them (code 5), and nothing was changed.
 * - `stale`: the record was there, with another etag than `guard`, at a moment between them; nothing was changed.
 * - `taken`: the unique name was held at a moment between them; nothing was changed.
 * - `refused`: nothing was changed, for another reason.
 * - `unknown`: the outcome is unknown. A write may take effect at any time after `call`, or never. `return` is null.
 */
export type Outcome = 'ok' | 'absent' | 'stale' | 'taken' | 'refused' | 'unknown'

/** One record as an answer showed it. */
export interface Seen {
  readonly uid: string
  /** What the writer of this state chose, in full; it tells one write from every other. Of a role binding: the role. */
  readonly value: string
  readonly etag: string
  /** What the creator chose once and for all; tells which creation without an answer made this record. Role bindings have none. */
  readonly tag?: string
  /** Of a role binding: whose it is. */
  readonly identity?: string
}

/**
 * One operation of one client, as one line of a history. Times are nanoseconds of one monotonic clock.
 * A list shows all records of `kind` in `parent`, on one page. A use is a call by `identity`, which has no rights except by its role bindings in `parent`.
 * A use is `ok` if it was allowed, `absent` if not.
 * Retries of a creation with one idempotency key are one operation, from the first call to the last answer.
 */
export interface Operation {
  readonly client: number
  readonly call: number
  readonly return: number | null
  readonly action: 'create' | 'update' | 'read' | 'list' | 'delete' | 'use'
  readonly kind: HistoryKind
  /** The uid of the group that the record lies in. */
  readonly parent: string
  readonly outcome: Outcome
  /** Absent where a creation did not succeed, and for lists. */
  readonly uid?: string
  /** What was written or read. */
  readonly value?: string
  /** As answered; absent where the answer did not show the state that was written. */
  readonly etag?: string
  readonly tag?: string
  readonly identity?: string
  /** The name that a write claims, unique among the records of its kind in `parent`; of a role binding, identity and role. */
  readonly name?: string
  /** The etag that the write demanded, and the value that it stood for. */
  readonly guard?: string
  readonly guardValue?: string
  /** The code of an answer that was no success; absent where none came. */
  readonly code?: number
  /** What a list showed. */
  readonly members?: readonly Seen[]
}

/** All operations of one run of a workload, in the order in which they ended. */
export class History {
  readonly operations: Operation[] = []
  readonly #startedAt = process.hrtime.bigint()

  /** Nanoseconds since the history began. */
  now(): number {
    return Number(process.hrtime.bigint() - this.#startedAt)
  }

  record(operation: Operation): void {
    this.operations.push(operation)
  }

  /** One JSON object per line: what the checker reads, and what is kept of a run that failed. */
  toJsonLines(): string {
    return [...jsonLines(this.operations)].join('')
  }
}

/** One line for each operation. */
export function* jsonLines(operations: readonly Operation[]): Generator<string> {
  for (const operation of operations) yield `${JSON.stringify(operation)}\n`
}
