import type { DescMessage, DescMethod } from '@bufbuild/protobuf'

/**
 * The callers that a method accepts:
 * - `public`: everyone; tokens are ignored, unless `optionalToken` is set.
 * - `scoped`: callers who hold every listed capability at the group of the resource that the request's scope field names.
 * - `unscoped`: every signed-in caller. If capabilities are listed, the answer contains only data from groups where the caller holds them.
 * - `external`: the credential is not a Taproot access token, and the handler verifies it (token exchange).
 */
export type MethodScope = 'public' | 'scoped' | 'unscoped' | 'external'

/** The effect of a method on its resource. A `custom` method has its own handler. */
export type MethodVerb = 'get' | 'list' | 'create' | 'update' | 'delete' | 'custom'

/** Maximum size in bytes of a request that is read before its caller is known: of public methods, and of forms that contain their credential. */
export const maxOpenRequestBytes = 8 * 1024

/** One REST route of a method from its `google.api.http` annotation, e.g. {verb: 'PATCH', template: '/iam/v2/groups/{group.uid=**}', body: 'group'}. */
export interface HttpBinding {
  readonly verb: 'GET' | 'POST' | 'PATCH' | 'DELETE' | 'PUT'
  readonly template: string
  /** The part of the request that the HTTP body fills: '' (none), '*' (the whole request) or the proto name of a field. */
  readonly body: string
}

/** One method of the schema with its annotations. The transports and the pipeline are driven by the table of these rows. */
export interface MethodRow {
  /** Full name of the gRPC service, e.g. `taproot.iam.v2.GroupsService`. */
  readonly service: string
  /** Name of the method in its service, e.g. `CreateGroup`. */
  readonly rpc: string
  /** The part of the package name after `taproot`, e.g. `iam`. */
  readonly domain: string
  readonly desc: DescMethod
  readonly input: DescMessage
  readonly output: DescMessage
  readonly http: readonly HttpBinding[]
  readonly verb: MethodVerb
  readonly scope: MethodScope
  /** Dotted names of the capabilities that a caller needs, all of them, e.g. `groups.create`. */
  readonly capabilities: readonly string[]
  /** True if only operators may call the method, whatever capabilities other callers hold. */
  readonly operators: boolean
  /** True if a public method shows more to a caller with a valid token. A token that is not valid is ignored. */
  readonly optionalToken: boolean
  /** Path (proto names) of the request field with the uid that permissions are checked at, e.g. ['group', 'uid']. Empty if the method has no such field. */
  readonly scopePath: readonly string[]
  /** The kind of resource that the method acts on, e.g. `Group`; undefined if there is none. */
  readonly kind: string | undefined
  /** The event that a successful call emits; undefined if it emits none. */
  readonly event: MethodEvent | undefined
  /** True if the answer is a stream of messages. A REST client asks for the stream with `Accept: text/event-stream`. */
  readonly streaming: boolean
  /** True if a call of the method may change stored data. */
  readonly mutation: boolean
  /** Maximum size of a request in bytes. Over REST it limits the body, also after decompression; over gRPC the message. */
  readonly maxRequestBytes: number
}

/** The event of a mutation: its type without the common prefix, and how to find the group it belongs to (docs/spec/events.md#event-group). */
export interface MethodEvent {
  readonly type: string
  readonly group: 'parent' | 'self' | 'root' | 'none'
  /** True if the event is only for the platform itself and is never delivered to subscribers. */
  readonly internal: boolean
}

/** Returns the name of a method for tables, metrics and logs: `taproot.iam.v2.GroupsService/CreateGroup`. */
export function methodName(method: Pick<MethodRow, 'service' | 'rpc'>): string {
  return `${method.service}/${method.rpc}`
}
