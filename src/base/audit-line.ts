import type { Log } from './log.ts'

/** One line of the audit log: who, what, on what, from where, with what result. Never a secret. */
export interface AuditLine {
  readonly outcome: 'done' | 'denied' | 'failed'
  /** What was called: `<service>/<rpc>`, or the name of another door. */
  readonly method: string
  readonly transport: 'http' | 'grpc' | 'kubernetes'
  readonly requestId?: string | undefined
  readonly identity?: string | undefined
  readonly operator?: boolean | undefined
  /** Whose token stood behind the call, as that token says: keys that a tenant chose may sign any issuer and subject. Only `identity` is the platform's word. */
  readonly claimedIssuer?: string | undefined
  readonly claimedSubject?: string | undefined
  /** The Kubernetes object that acts, which the platform read itself. */
  readonly actorIssuer?: string | undefined
  readonly actorSubject?: string | undefined
  /** What was changed, or what access was denied to. */
  readonly subject?: string | undefined
  readonly validateOnly?: boolean | undefined
  readonly remoteAddress?: string | undefined
  readonly userAgent?: string | undefined
  readonly traceparent?: string | undefined
  /** The gRPC code and reason of a failure. */
  readonly code?: number | undefined
  readonly reason?: string | undefined
}

/** Writes the line, whatever the log's level is. */
export function writeAuditLine(log: Log, line: AuditLine): void {
  log.info('audit', { audit: true, ...line })
}

/** What a line says of who called. */
export function auditedCaller(
  caller: { readonly identity: string; readonly operator: boolean; readonly actor: Readonly<Record<string, string>> } | undefined,
): Pick<AuditLine, 'identity' | 'operator' | 'claimedIssuer' | 'claimedSubject'> {
  return { identity: caller?.identity, operator: caller?.operator, claimedIssuer: caller?.actor['iss'], claimedSubject: caller?.actor['sub'] }
}
