import type { History, Outcome } from './history.ts'

/** What a workload runs against. */
export interface WorkloadOptions {
  /** Base URLs of the replicas; each serves REST and gRPC. */
  readonly endpoints: readonly string[]
  /** An operator's access token; asked for anew every few minutes, and when one is refused. */
  readonly token: () => Promise<string>
  /** Decides all choices of all clients; what is interleaved how is up to the run. */
  readonly seed: number
  /** How many clients act at once; each does one thing at a time. */
  readonly clients: number
  readonly history: History
  /** How long an answer is waited for, in milliseconds; 5,000 by default. What takes longer has an unknown outcome. */
  readonly callTimeoutMs?: number
}

/** What a workload has come to. */
export interface WorkloadSummary {
  readonly seed: number
  /** The root group that it made; undefined where it did not come so far. */
  readonly root: string | undefined
  readonly operations: number
  readonly outcomes: Readonly<Record<Outcome, number>>
  /** Longest time between two acknowledged writes, in milliseconds. */
  readonly longestGapMs: number
}

/** A running workload. */
export interface Workload {
  /** Writes that were acknowledged so far: a schedule waits for it to grow. */
  readonly acknowledged: number
  /** Operations that ended so far, with whatever outcome. */
  readonly ended: number
  /** Lets every client end what it is doing; takes `callTimeoutMs` at most. Rejects where an answer was none that the API may give. */
  stop(): Promise<WorkloadSummary>
  /**
   * After `stop`, when all replicas are well again: repeats the creations with idempotency keys that had no answer, and reads and lists everything through
   * every replica. All of it goes into the history.
   */
  settle(): Promise<void>
}

/** Starts the clients. They make a root group of their own, so that any number of workloads can run on one installation, each with its own history. */
export function startWorkload(_options: WorkloadOptions): Workload {
  throw new Error('to come')
}
