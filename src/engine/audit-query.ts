import type { AuditEvent, AuditLine } from '../base/audit-line.ts'
import type { TaskTurn } from '../base/task-thread.ts'

/** Where an event is among all: by time, then by id. */
export interface AuditPlace {
  /** Milliseconds since 1970. */
  readonly timeMs: number
  /** The event's id without hyphens; empty: before all events of this time. */
  readonly id: string
}

/** A question to the audit events that are kept. */
export interface AuditQuery {
  /** Groups whose events are wanted, with those of groups below them; undefined: all events. */
  readonly groups: readonly string[] | undefined
  readonly actor?: string | undefined
  readonly resource?: string | undefined
  readonly capability?: string | undefined
  readonly outcome?: AuditLine['outcome'] | undefined
  readonly method?: string | undefined
  /** Inclusive, in milliseconds since 1970. */
  readonly startMs?: number | undefined
  /** Exclusive, in milliseconds since 1970. */
  readonly endMs?: number | undefined
  readonly newestFirst: boolean
  readonly after?: AuditPlace | undefined
  /** Number of events to leave out, and to return at most. */
  readonly skip: number
  readonly limit: number
}

/** The answer to a question. */
export interface AuditPage {
  readonly events: readonly AuditEvent[]
  /** Where the next page begins, and what is left to skip there; undefined on the last page. A page can have another one after it and still be short. */
  readonly next: { readonly after: AuditPlace; readonly skip: number } | undefined
}

/** Reads the audit events that are kept. */
export interface AuditReader {
  /**
   * Returns a page, with all events that this process recorded before. Questions of several organisations, the keys of `turn`, take turns. Rejects if the index
   * fails, with code 8 if too many questions of the organisation wait, or with the signal's reason.
   */
  read(query: AuditQuery, turn: TaskTurn): Promise<AuditPage>
}
