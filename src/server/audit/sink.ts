import type { AuditEvent } from '../../base/audit-line.ts'

/** A destination of audit events. */
export interface AuditSink {
  readonly name: string
  /** Accepts an event. `json` returns it as JSON. Never throws and never waits. */
  write(event: AuditEvent, json: () => string): void
  /** Size of the waiting events, in bytes. */
  readonly waitingBytes: number
  /** Time of the oldest waiting event, in milliseconds since 1970; undefined if none waits. */
  readonly oldestMs: number | undefined
  /** Stores or delivers the waiting events, then closes the sink. */
  close(): Promise<void>
}

/** Receives the outcomes of events, for metrics and logs. */
export interface SinkObserver {
  /** `delivered`, `refused` by the receiver, or `dropped` because the spool or queue is full. */
  counted(outcome: 'delivered' | 'refused' | 'dropped', count: number): void
  /** Called after a failed delivery or write, which is repeated. */
  failed(error: unknown): void
}

/** The receiver permanently refuses these events. */
export class RefusedEvents extends Error {
  override readonly name = 'RefusedEvents'
}
