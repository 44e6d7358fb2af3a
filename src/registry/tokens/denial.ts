import { auditedCaller, type AuditTrail } from '../../base/audit-line.ts'
import type { Caller } from '../../engine/services.ts'
import type { RegistryError } from '../registry-error.ts'

/** Something that was refused at the registry host. */
export interface Denial {
  /** `token`, or what the repository was asked for: `pull`, `push`. */
  readonly method: string
  readonly caller: Caller | undefined
  /** The repository. */
  readonly subject: string | undefined
  readonly remoteAddress: string | undefined
  readonly error: RegistryError
}

/** Writes the audit line of a denial, as the API does: a credential that does not do, or one that does not allow it. Not that there was none: every pull begins so. */
export function auditDenial(trail: AuditTrail, { method, caller, subject, remoteAddress, error }: Denial): void {
  if (error.status !== 401 && error.status !== 403) return
  trail.record({
    outcome: 'denied',
    method: `registry/${method}`,
    transport: 'http',
    ...auditedCaller(caller),
    subject,
    remoteAddress,
    code: error.status === 401 ? 16 : 7,
    reason: error.code,
  })
}
