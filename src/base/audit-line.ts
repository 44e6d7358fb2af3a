/** One audit event: caller, action, target, address and result. It never contains a secret. */
export interface AuditLine {
  readonly outcome: 'done' | 'denied' | 'failed'
  /** The called method as `<service>/<rpc>`. For an action that is not an API method, the name of the action. */
  readonly method: string
  /** The capabilities that the method needs, separated by commas. */
  readonly capability?: string | undefined
  readonly transport: 'http' | 'grpc' | 'kubernetes' | 'cli' | 'worker'
  readonly requestId?: string | undefined
  readonly identity?: string | undefined
  readonly operator?: boolean | undefined
  /** Issuer and subject that the caller's token claims. A tenant can sign a token with any issuer and subject; the platform verifies only `identity`. */
  readonly claimedIssuer?: string | undefined
  readonly claimedSubject?: string | undefined
  /**
   * The author of a change outside the API. It is the Kubernetes object that the controller read, or the operating system's user who ran a command.
   */
  readonly actorIssuer?: string | undefined
  readonly actorSubject?: string | undefined
  /** The uid of the changed resource, or of the resource to which access was denied. */
  readonly subject?: string | undefined
  /** The path of a repository, with its tag or digest if the request named one. */
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

/** An audit event as audit sinks receive it. */
export interface AuditEvent extends AuditLine {
  /** The unique id of the event. A sink may receive an event twice. */
  readonly id: string
  /** The time of the event as an RFC 3339 text in UTC. */
  readonly time: string
  /** The uids of the group nearest to the resource and of the resource's organisation. */
  readonly group?: string | undefined
  readonly root?: string | undefined
  /** Number of earlier denials that were counted but have no event of their own. */
  readonly suppressed?: number | undefined
}

/** Receives audit events. `record` never throws and never waits. */
export interface AuditTrail {
  record(line: AuditLine): void
}

/** Returns the fields of an audit event that describe the caller. */
export function auditedCaller(
  caller: { readonly identity: string; readonly operator: boolean; readonly actor: Readonly<Record<string, string>> } | undefined,
): Pick<AuditLine, 'identity' | 'operator' | 'claimedIssuer' | 'claimedSubject'> {
  return { identity: caller?.identity, operator: caller?.operator, claimedIssuer: caller?.actor['iss'], claimedSubject: caller?.actor['sub'] }
}
