import { auditedCaller, writeAuditLine, type AuditLine } from '../base/audit-line.ts'
import type { Log } from '../base/log.ts'
import { methodName } from '../base/schema/method.ts'
import type { Caller } from '../engine/services.ts'
import type { Call } from './call.ts'
import type { RawRequest } from './http/raw-route.ts'

/** The outcome of a call for the audit log. */
export interface AuditEntry {
  readonly call: Call
  readonly caller: Caller | undefined
  /** The uid that was changed, or to which access was denied. */
  readonly subject: string | undefined
  readonly outcome: 'done' | 'denied' | 'failed'
  /** The gRPC code and reason of a failure. */
  readonly code?: number
  readonly reason?: string | undefined
}

/** Writes one line per mutation and per denial: caller, method, subject, address and result. Never a secret. */
export function audit(log: Log, entry: AuditEntry): void {
  const { call, caller, outcome, subject, code, reason } = entry
  writeAuditLine(log, {
    outcome,
    method: methodName(call.method),
    requestId: call.headers.requestId,
    transport: call.transport,
    ...auditedCaller(caller),
    subject,
    validateOnly: call.validateOnly || undefined,
    remoteAddress: call.remoteAddress,
    userAgent: call.headers.userAgent,
    traceparent: call.headers.traceparent,
    code,
    reason,
  })
}

/** Writes the audit line of a request that is not an API call: a request to a sign-in or directory endpoint. */
export function auditRequest({ auditLog }: { readonly auditLog: Log }, request: RawRequest, line: Omit<AuditLine, 'transport'>): void {
  const { requestId, remoteAddress } = request
  writeAuditLine(auditLog, { transport: 'http', requestId, remoteAddress, userAgent: request.header('user-agent'), ...line })
}
