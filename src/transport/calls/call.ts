import type { Message } from '@bufbuild/protobuf'
import type { MethodRow } from '../../base/schema/method.ts'
import type { AnswerDocument, Context, Shown, ShownPage, StreamedMessage } from '../../engine/services.ts'
import type { CallHeaders } from './call-headers.ts'
import type { LimitState } from '../rate-limit.ts'

/** Returns the name of the method in metrics and error logs: `GroupsService.GetGroup`. It does not depend on the alias that the client used. */
export function callName(method: Pick<MethodRow, 'service' | 'rpc'>): string {
  return `${method.service.slice(method.service.lastIndexOf('.') + 1)}.${method.rpc}`
}

/** A request message, and for a REST PATCH the fields that were present in it. */
export interface DecodedCall {
  readonly message: Message
  /** The request as it was sent, if `message` was made of it: a request of version 1, or one with paths in place of uids. */
  readonly original?: Message
  /**
   * For a REST PATCH without `updateMask`: the paths of the keys in the body (docs/spec/conventions.md#update-masks). The paths use proto names and lead to
   * the innermost keys; maps and lists count as a whole. Undefined for other calls.
   */
  readonly present?: readonly string[]
  /**
   * Set for a list of one record: `get` answers it, with `message` as its request. If the caller may not get that record, the call's own method answers the
   * message that `list` returns.
   */
  readonly instead?: { readonly get: MethodRow; readonly list: () => Message }
  /**
   * Returns the message that the handler gets: `message` with defaults that depend on the time, so that a repeated request still has an equal `message`. Called
   * after the caller was authorized and `message` was checked. Throws code 3 for a request that is not valid.
   */
  readonly complete?: (context: Context) => Message | Promise<Message>
}

/** A call as a transport passes it to the pipeline. REST and gRPC create the same call from the same request. */
export interface Call {
  readonly method: MethodRow
  /** The method of version 1 that the client called, if `method` is the one of version 2 that answers it. */
  readonly calledAs?: MethodRow
  /** True for a part of another call, which the rate limit has counted. */
  readonly isCounted?: boolean
  /** What the call's transaction also writes, see Context. */
  readonly also?: Context['also']
  readonly transport: 'http' | 'grpc'
  readonly headers: CallHeaders
  readonly validateOnly: boolean
  readonly remoteAddress: string
  /** Aborts with a DomainError as reason: code 1 if the client disconnected, code 4 if its deadline passed. */
  readonly signal: AbortSignal
  /** Learns the rate limit that the call counted against, also if it is refused. */
  limited?(limit: LimitState): void
  /** Throws the signal's reason if it has aborted. This is cheaper than reading `signal`, which is created when it is first used. */
  throwIfEnded(): void
  /**
   * Reads and decodes the request. Throws DomainError code 3 if it cannot be read. Called once, after the token's signature was checked. Calls `arrived` once
   * the request has arrived completely, right before decoding it.
   */
  decode(arrived?: () => void): Promise<DecodedCall>
}

/** The answer of a call, as the pipeline returns it to a transport. */
export interface Answer {
  readonly message: Message
  /** The rendered record with its cached encodings, if the answer is a single record. */
  readonly shown?: Shown
  /** The rendered records with their cached encodings, if the answer is a list. */
  readonly page?: ShownPage
  /** Reads the next page of a list; undefined on the last page. */
  readonly next?: () => Promise<Pick<Answer, 'page' | 'next'>>
  /** The pages of a list without pages, after `page`. Over REST they are sent one by one. */
  readonly more?: AsyncIterable<ShownPage>
  /** The messages of a streaming method, which replace the message. */
  readonly stream?: AsyncIterable<StreamedMessage>
  /** If set, a REST answer has this content type, and only the items of a list instead of the whole message. */
  readonly document?: AnswerDocument
  /** The resource's etag. It is sent as the header `ETag` (REST, in quotes) or as the metadata `etag` (gRPC). */
  readonly etag?: string
  /** True if the page token had expired and the list starts again from the beginning. It is sent as the header `Page-Token-Restarted: true`. */
  readonly pageTokenRestarted?: boolean
}

/** Takes a call through all steps of the pipeline. Throws DomainError, or any other error for a fault of the server. */
export type Dispatch = (call: Call) => Promise<Answer>
