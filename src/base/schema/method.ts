import type { DescMessage, DescMethod } from '@bufbuild/protobuf'

/**
 * Who may call a method:
 * - `public`: anyone; a token is not looked at.
 * - `scoped`: who holds every capability at the group that the request's scope field lies in.
 * - `unscoped`: any signed-in caller; where capabilities are listed, the answer is restricted to where the caller holds them.
 * - `external`: the bearer is not one of our access tokens; the handler verifies it (token exchange).
 */
export type MethodScope = 'public' | 'scoped' | 'unscoped' | 'external'

/** What the method does to its resource; `custom` has a handler of its own. */
export type MethodVerb = 'get' | 'list' | 'create' | 'update' | 'delete' | 'custom'

/** The largest request, in bytes, where the caller is not known before it is read: public methods, and forms that hold their credential. */
export const maxOpenRequestBytes = 8 * 1024

/** One REST route: `google.api.http`, e.g. {verb: 'PATCH', template: '/iam/v2/groups/{group.uid=**}', body: 'group'}. */
export interface HttpBinding {
  readonly verb: 'GET' | 'POST' | 'PATCH' | 'DELETE' | 'PUT'
  readonly template: string
  /** '' (no body), '*' (the whole request) or the request field (proto name) that the body fills. */
  readonly body: string
}

/** One method of the schema, read from its annotations; the transports and the pipeline loop over the table of these. */
export interface MethodRow {
  /** `taproot.iam.v2.GroupsService` */
  readonly service: string
  /** `CreateGroup` */
  readonly rpc: string
  /** `iam` */
  readonly domain: string
  readonly desc: DescMethod
  readonly input: DescMessage
  readonly output: DescMessage
  readonly http: readonly HttpBinding[]
  readonly verb: MethodVerb
  readonly scope: MethodScope
  /** Dotted names, e.g. `groups.create`; all are needed. */
  readonly capabilities: readonly string[]
  /** Only operators may call it, whatever others hold. */
  readonly operators: boolean
  /** Path (proto names) of the request field that names the scope, e.g. ['group', 'uid']; empty where the method has none. */
  readonly scopePath: readonly string[]
  /** The resource's kind, e.g. `Group`, where the method is about one. */
  readonly kind: string | undefined
  /** The event that a success emits, `iam.group.created.v1`, without the common prefix. */
  readonly event: MethodEvent | undefined
  /** True if the answer is a stream of messages. Over REST it is chosen by `Accept: text/event-stream`. */
  readonly streaming: boolean
  /** True where the method changes state. */
  readonly mutation: boolean
  /** The largest request, in bytes: the body over REST, also once decompressed; the message over gRPC. */
  readonly maxRequestBytes: number
}

/** What a mutation's event is and which group it belongs to (docs/spec/events.md#event-group). */
export interface MethodEvent {
  readonly type: string
  readonly group: 'parent' | 'self' | 'root' | 'none'
  /** Never leaves the platform. */
  readonly internal: boolean
}

/** The name of a method in tables, metrics and logs: `taproot.iam.v2.GroupsService/CreateGroup`. */
export function methodName(method: Pick<MethodRow, 'service' | 'rpc'>): string {
  return `${method.service}/${method.rpc}`
}
