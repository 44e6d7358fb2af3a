import { auditedCaller, type AuditLine, type AuditTrail } from '../../base/audit-line.ts'
import type { Caller } from '../../engine/services.ts'
import type { Presented } from '../gate.ts'
import type { RegistryError } from '../registry-error.ts'

/** A request that the registry host refused. */
export interface Denial extends Pick<AuditLine, 'capability' | 'subject' | 'kind' | 'name'> {
  /** `token`, or the actions at a repository, such as `pull`. */
  readonly method: string
  readonly caller: Caller | undefined
  readonly error: RegistryError
}

/**
 * Records a denial in the audit trail: an invalid credential, or one without the right. A request without a credential is not recorded,
 * because every pull begins with one.
 */
export function auditDenial(trail: AuditTrail, { requestId, remoteAddress, userAgent }: Presented, { method, caller, error, ...more }: Denial): void {
  if (error.status !== 401 && error.status !== 403) return
  trail.record({
    outcome: 'denied',
    method: `registry/${method}`,
    transport: 'http',
    requestId,
    ...auditedCaller(caller),
    ...more,
    remoteAddress,
    userAgent,
    code: error.status === 401 ? 16 : 7,
    reason: error.code,
  })
}
