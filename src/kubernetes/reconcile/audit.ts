import type { AuditTrail } from '../../base/audit-line.ts'
import type { DomainError } from '../../base/errors.ts'
import { clusterIdentity, type Cluster } from '../world.ts'
import type { RecordStep } from './plan.ts'

/** A record that was written for an object, or whose write was refused. */
export interface WrittenRecord {
  readonly cluster: Cluster
  /** Kind of the record. */
  readonly kind: string
  readonly step: RecordStep['do']
  readonly managedBy: string
  readonly uid: string | undefined
  /** Why the write was refused. */
  readonly error?: DomainError
}

/** Writes the audit line for a record that an object writes, like the API does for its callers. */
export function auditRecord(trail: AuditTrail, { cluster, kind, step, managedBy, uid, error }: WrittenRecord): void {
  trail.record({
    outcome: error === undefined ? 'done' : error.code === 7 ? 'denied' : 'failed',
    method: `kubernetes/${step}${kind}`,
    kind,
    transport: 'kubernetes',
    identity: clusterIdentity(cluster),
    operator: false,
    actorIssuer: 'kubernetes',
    actorSubject: managedBy,
    subject: uid,
    code: error?.code,
    reason: error?.reason,
  })
}
