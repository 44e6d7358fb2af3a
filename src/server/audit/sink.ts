import type { AuditEvent } from '../../base/audit-line.ts'

/** A destination of audit events. */
export interface AuditSink {
  readonly name: string
  /** Takes an event. `json` returns it as JSON. Never throws and never waits. */
  write(event: AuditEvent, json: () => string): void
  /** Size of the events that wait, in bytes. */
  readonly waitingBytes: number
  /** The time of the oldest event that waits, in milliseconds since 1970; undefined if none waits. */
  readonly oldestMs: number | undefined
  /** Keeps or delivers what waits, and ends. */
  close(): Promise<void>
}

/** Receives what became of events. */
export interface SinkObserver {
  /** `delivered`, `refused` by the receiver, or `dropped` because the spool or queue is full. */
  counted(outcome: 'delivered' | 'refused' | 'dropped', count: number): void
  /** An attempt or a write to the disk failed. It is repeated. */
  failed(error: unknown): void
}

/** A receiver will never take these events as they are. */
export class RefusedEvents extends Error {
  override readonly name = 'RefusedEvents'
}
