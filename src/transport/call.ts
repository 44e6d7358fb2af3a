import type { Message } from '@bufbuild/protobuf'
import type { MethodRow } from '../base/schema/method.ts'
import type { Shown, ShownPage } from '../engine/services.ts'
import type { CallHeaders } from './call-headers.ts'

/** `GroupsService.GetGroup`: what metrics and error logs call a method, whichever of its names was used. */
export function callName(method: Pick<MethodRow, 'service' | 'rpc'>): string {
  return `${method.service.slice(method.service.lastIndexOf('.') + 1)}.${method.rpc}`
}

/** A decoded request. */
export interface DecodedCall {
  readonly message: Message
  /**
   * REST PATCH without `updateMask`: the paths (proto names, nested keys as leaf paths, maps and lists whole) of the keys present in the body
   * (docs/spec/conventions.md#update-masks). Undefined elsewhere.
   */
  readonly present?: readonly string[]
}

/** One call, as a transport hands it to the pipeline. Both transports make the same of the same request. */
export interface Call {
  readonly method: MethodRow
  readonly transport: 'http' | 'grpc'
  readonly headers: CallHeaders
  readonly validateOnly: boolean
  readonly remoteAddress: string
  /** Aborts with a DomainError as reason: code 1 where the client went away, code 4 where its deadline passed. */
  readonly signal: AbortSignal
  /** Throws the signal's reason where it has aborted; cheaper than asking the signal, which is made when first asked for. */
  throwIfEnded(): void
  /**
   * Reads and decodes the request; throws DomainError code 3 where it can't be read. Called once, after the token's signature was checked. `arrived` is called
   * once it has arrived, right before it is decoded.
   */
  decode(arrived?: () => void): Promise<DecodedCall>
}

/** What a handler answers. */
export interface Answer {
  readonly message: Message
  /** Where the message is what is shown of one record. */
  readonly shown?: Shown
  /** Where the message is a list's: what it holds. */
  readonly page?: ShownPage
  /** The resource's etag, sent as `ETag` header (REST, quoted) or `etag` metadata. */
  readonly etag?: string
  /** The page token had expired and the list started over: header `Page-Token-Restarted: true`. */
  readonly pageTokenRestarted?: boolean
}

/** Takes a call through all named steps. Throws DomainError, or any other error for a server fault. */
export type Dispatch = (call: Call) => Promise<Answer>
