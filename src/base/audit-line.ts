/** One audit event: caller, action, target, address and result. Never a secret. */
export interface AuditLine {
  readonly outcome: 'done' | 'denied' | 'failed'
  /** The called method: `<service>/<rpc>`, or the name of another entry point. */
  readonly method: string
  /** The capabilities that the method needs, separated by commas. */
  readonly capability?: string | undefined
  readonly transport: 'http' | 'grpc' | 'kubernetes' | 'cli'
  readonly requestId?: string | undefined
  readonly identity?: string | undefined
  readonly operator?: boolean | undefined
  /** Issuer and subject claimed by the caller's token. A tenant's own keys can sign any issuer and subject. Only `identity` is verified by the platform. */
  readonly claimedIssuer?: string | undefined
  readonly claimedSubject?: string | undefined
  /** The Kubernetes object that made the change, as read by the platform, or the user of a machine who ran a command. */
  readonly actorIssuer?: string | undefined
  readonly actorSubject?: string | undefined
  /** The changed resource, or the one to which access was denied. */
  readonly subject?: string | undefined
  /** The path of a repository, also with a tag or digest. */
  readonly name?: string | undefined
  /** The kind of resource that the method is about. */
  readonly kind?: string | undefined
  readonly validateOnly?: boolean | undefined
  readonly remoteAddress?: string | undefined
  readonly userAgent?: string | undefined
  readonly traceparent?: string | undefined
  /** The gRPC code and reason of a failure. */
  readonly code?: number | undefined
  readonly reason?: string | undefined
}

/** An audit event as sinks get it. */
export interface AuditEvent extends AuditLine {
  /** Unique. A sink may get an event twice. */
  readonly id: string
  /** RFC 3339, UTC. */
  readonly time: string
  /** The group nearest to the resource, and the resource's organisation. */
  readonly group?: string | undefined
  readonly root?: string | undefined
  /** How many anonymous denials before this one have no event of their own. */
  readonly suppressed?: number | undefined
}

/** Receives audit events. `record` never throws and never waits. */
export interface AuditTrail {
  record(line: AuditLine): void
}

/** Returns the caller's fields of a line. */
export function auditedCaller(
  caller: { readonly identity: string; readonly operator: boolean; readonly actor: Readonly<Record<string, string>> } | undefined,
): Pick<AuditLine, 'identity' | 'operator' | 'claimedIssuer' | 'claimedSubject'> {
  return { identity: caller?.identity, operator: caller?.operator, claimedIssuer: caller?.actor['iss'], claimedSubject: caller?.actor['sub'] }
}
