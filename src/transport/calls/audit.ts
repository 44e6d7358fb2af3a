import { auditedCaller, type AuditLine, type AuditTrail } from '../../base/audit-line.ts'
import { DomainError } from '../../base/errors.ts'
import { methodName } from '../../base/schema/method.ts'
import { fromStore } from '../../engine/errors.ts'
import type { Caller } from '../../engine/services.ts'
import type { Call } from './call.ts'
import type { WebRequest } from '../web/web-request.ts'

/** The outcome of a call, from which its audit event is made. */
export interface AuditEntry {
  readonly call: Call
  readonly caller: Caller | undefined
  /** Uid of the resource that was changed, or to which access was denied. */
  readonly subject: string | undefined
  readonly outcome: 'done' | 'denied' | 'failed'
  /** The gRPC code and reason of a failure. */
  readonly code?: number
  readonly reason?: string | undefined
}

/** Writes the audit event of a mutation, or of a denied call. */
export function audit(trail: AuditTrail, entry: AuditEntry): void {
  const { call, caller, outcome, subject, code, reason } = entry
  trail.record({
    outcome,
    method: methodName(call.calledAs ?? call.method),
    capability: call.method.capabilities.join(',') || undefined,
    kind: call.method.kind,
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

/** True if the error is a denial. That includes errors for resources that the caller may not see, which look the same as for missing ones. */
function isDenial(error: DomainError): boolean {
  return error.code === 7 || error.code === 16 || error.concealed
}

/** Writes an audit event for every failed mutation and for every denial, including faults of the server. */
export function auditFailure(trail: AuditTrail, failure: Pick<AuditEntry, 'call' | 'caller' | 'subject'> & { readonly error: unknown }): void {
  const { call, caller } = failure
  const error = failure.error instanceof DomainError ? failure.error : new DomainError(13, '')
  const denied = isDenial(error)
  if (!call.method.mutation && !denied) return
  const { metadata, resource } = error.details
  const subject = metadata?.['scope'] ?? failure.subject ?? resource?.resourceName
  audit(trail, { call, caller, subject, outcome: denied ? 'denied' : 'failed', code: error.code, reason: error.reason })
}

/** The fields of an audit event that are not read from the request. */
type RequestLine = Omit<AuditLine, 'transport'>

/** Writes the audit event of a request to a web route. */
export function auditRequest({ auditLog }: { readonly auditLog: AuditTrail }, request: WebRequest, line: RequestLine): void {
  const { requestId, remoteAddress } = request
  auditLog.record({ transport: 'http', requestId, remoteAddress, userAgent: request.header('user-agent'), ...line })
}

/**
 * Runs `work` and writes its audit event. On success, the event has the fields that `done` returns. On failure, it has the fields in `failed` and the code and
 * reason of the error. Throws like `work`.
 */
export async function audited<T>(
  options: { readonly auditLog: AuditTrail },
  request: WebRequest,
  line: { readonly work: () => Promise<T>; readonly done: (result: T) => Omit<RequestLine, 'outcome'>; readonly failed: Omit<RequestLine, 'outcome'> },
): Promise<T> {
  try {
    const result = await line.work()
    auditRequest(options, request, { ...line.done(result), outcome: 'done' })
    return result
  } catch (thrown) {
    const error = fromStore(thrown)
    const { code, reason } = error instanceof DomainError ? error : new DomainError(13, '')
    auditRequest(options, request, { ...line.failed, outcome: code === 7 || code === 16 ? 'denied' : 'failed', code, reason })
    throw error
  }
}
