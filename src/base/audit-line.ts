import type { Log } from './log.ts'

/** One line of the audit log: caller, action, target, address and result. Never a secret. */
export interface AuditLine {
  readonly outcome: 'done' | 'denied' | 'failed'
  /** The called method: `<service>/<rpc>`, or the name of another entry point. */
  readonly method: string
  readonly transport: 'http' | 'grpc' | 'kubernetes'
  readonly requestId?: string | undefined
  readonly identity?: string | undefined
  readonly operator?: boolean | undefined
  /** Issuer and subject claimed by the caller's token. A tenant's own keys can sign any issuer and subject. Only `identity` is verified by the platform. */
  readonly claimedIssuer?: string | undefined
  readonly claimedSubject?: string | undefined
  /** The Kubernetes object that made the change, as read by the platform. */
  readonly actorIssuer?: string | undefined
  readonly actorSubject?: string | undefined
  /** The changed resource, or the one to which access was denied. */
  readonly subject?: string | undefined
  readonly validateOnly?: boolean | undefined
  readonly remoteAddress?: string | undefined
  readonly userAgent?: string | undefined
  readonly traceparent?: string | undefined
  /** The gRPC code and reason of a failure. */
  readonly code?: number | undefined
  readonly reason?: string | undefined
}

/** Writes the line at any log level. */
export function writeAuditLine(log: Log, line: AuditLine): void {
  log.info('audit', { audit: true, ...line })
}

/** Returns the caller's fields of a line. */
export function auditedCaller(
  caller: { readonly identity: string; readonly operator: boolean; readonly actor: Readonly<Record<string, string>> } | undefined,
): Pick<AuditLine, 'identity' | 'operator' | 'claimedIssuer' | 'claimedSubject'> {
  return { identity: caller?.identity, operator: caller?.operator, claimedIssuer: caller?.actor['iss'], claimedSubject: caller?.actor['sub'] }
}
