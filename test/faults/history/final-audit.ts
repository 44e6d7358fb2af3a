import type { Store } from '../../../src/store/store.ts'
import type { History } from './history.ts'

/** What an audit found. */
export interface AuditReport {
  /** One line for each fault; none where all is well. */
  readonly faults: readonly string[]
  readonly records: number
  readonly outboxEvents: number
}

/**
 * Looks at the raw store once nothing writes any more: keys without their record and records without their keys, bindings of what is gone, mutations without
 * their event, acknowledged writes that are not there. Waits for sweeps to end first. Puts what is stored into the history as last reads, so it is called
 * before `checkHistory`. Without a history only the store is looked at.
 */
export function finalAudit(_options: { store: Store; history?: History }): Promise<AuditReport> {
  return Promise.reject(new Error('to come'))
}
