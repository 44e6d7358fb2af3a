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

/** One record in an answer. */
export interface Seen {
  readonly uid: string
  /** The complete content that the writer of this state chose; it identifies the write. For a role binding: the role. */
  readonly value: string
  readonly etag: string
  /** A text that the creator chose and that never changes. It identifies the create of this record. Role bindings have none. */
  readonly tag?: string
  /** The identity of a role binding. */
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
  /** The uid of the record's group. */
  readonly parent: string
  readonly outcome: Outcome
  /** Absent for a failed create, and for lists. */
  readonly uid?: string
  /** The written or read content. */
  readonly value?: string
  /** The etag in the answer; absent if the answer does not show the written state. */
  readonly etag?: string
  readonly tag?: string
  readonly identity?: string
  /** The name that a write claims, unique among the records of its kind in `parent`; for a role binding its identity and role. */
  readonly name?: string
  /** The etag in If-Match, and the state that it stands for. */
  readonly guard?: string
  readonly guardValue?: string
  /** The code of an error; absent without an answer. */
  readonly code?: number
  /** The records of a list. */
  readonly members?: readonly Seen[]
}

/** All operations of one run of a workload, in the order of their ends. */
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

  /** Returns one JSON object per line: the input of the checker, and the record of a failed run. */
  toJsonLines(): string {
    return [...jsonLines(this.operations)].join('')
  }
}

/** One line for each operation. */
export function* jsonLines(operations: readonly Operation[]): Generator<string> {
  for (const operation of operations) yield `${JSON.stringify(operation)}\n`
}
