import type { Message } from '@bufbuild/protobuf'
import type { MethodRow } from '../base/schema/method.ts'
import type { AnswerDocument, Shown, ShownPage, StreamedMessage } from '../engine/services.ts'
import type { CallHeaders } from './call-headers.ts'

/** Returns the method's name in metrics and error logs, whichever alias was used: `GroupsService.GetGroup`. */
export function callName(method: Pick<MethodRow, 'service' | 'rpc'>): string {
  return `${method.service.slice(method.service.lastIndexOf('.') + 1)}.${method.rpc}`
}

/** A decoded request. */
export interface DecodedCall {
  readonly message: Message
  /**
   * REST PATCH without `updateMask`: the paths of the keys present in the body (docs/spec/conventions.md#update-masks). Paths use proto names; nested keys are
   * leaf paths, maps and lists count as a whole. Undefined for other calls.
   */
  readonly present?: readonly string[]
}

/** One call as a transport passes it to the pipeline. Both transports create the same call from the same request. */
export interface Call {
  readonly method: MethodRow
  readonly transport: 'http' | 'grpc'
  readonly headers: CallHeaders
  readonly validateOnly: boolean
  readonly remoteAddress: string
  /** Aborts with a DomainError as reason: code 1 if the client disconnected, code 4 if its deadline passed. */
  readonly signal: AbortSignal
  /** Throws the signal's reason if it has aborted. Cheaper than reading `signal`, which is created on first use. */
  throwIfEnded(): void
  /**
   * Reads and decodes the request; throws DomainError code 3 if it is unreadable. Called once, after the token's signature was checked. Calls `arrived` once
   * the request has arrived, right before decoding it.
   */
  decode(arrived?: () => void): Promise<DecodedCall>
}

/** A handler's answer. */
export interface Answer {
  readonly message: Message
  /** Set if the message is one rendered record. */
  readonly shown?: Shown
  /** Set if the message is a list: its rendered items. */
  readonly page?: ShownPage
  /** Replaces the message: the messages of a streaming method. */
  readonly stream?: AsyncIterable<StreamedMessage>
  /** Over REST, replaces the message: the items of a list field alone, with their own content type. */
  readonly document?: AnswerDocument
  /** The resource's etag, sent as `ETag` header (REST, quoted) or `etag` metadata. */
  readonly etag?: string
  /** True if the page token had expired and the list started over: header `Page-Token-Restarted: true`. */
  readonly pageTokenRestarted?: boolean
}

/** Takes a call through all named steps. Throws DomainError, or any other error for a server fault. */
export type Dispatch = (call: Call) => Promise<Answer>
