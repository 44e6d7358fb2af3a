import type { Metadata, ServerInterceptingCall, ServerInterceptor } from '@grpc/grpc-js'
import { DomainError } from '../../core/errors.ts'
import type { Code } from '../../core/errors.ts'
import { detailsTrailer } from './grpc-status.ts'
import type { GrpcStatus } from './grpc-status.ts'

/** The largest request message, in bytes; over it code 3, as over REST. */
export const maxMessageBytes = 1024 * 1024

/** Ends the call with this error: what the client gets of it. */
export type Refuse = (error: DomainError) => GrpcStatus

const refusal = Symbol('refusal')

/** All that interceptor and handler of one call have in common. A map beside it, a weak one too, would keep calls from dying young. */
type CallMetadata = Metadata & { [refusal]?: Refuse }

/**
 * grpc-js ends some calls by itself (message too large, bad timeout, deadline), with its own codes and without details. Through the
 * interceptor such calls end as errors of ours do. Calls that nothing was told of `onRefusal` end as the library says.
 */
export class LibraryRefusals {
  /** `refuse` is called where the library ends the call that brought this metadata. */
  onRefusal(metadata: CallMetadata, refuse: Refuse): void {
    metadata[refusal] = refuse
  }

  /** Must be the first interceptor of the server. */
  readonly interceptor: ServerInterceptor = (_method, call) => {
    let received: CallMetadata | undefined
    // The library ends calls on this innermost object, where responders of interceptors do not see it.
    const sendStatus = call.sendStatus.bind(call)
    call.sendStatus = (status) => {
      const refuse = received?.[refusal]
      const isOurs = !status.code || (status.metadata?.get(detailsTrailer).length ?? 0) > 0
      sendStatus(isOurs || refuse === undefined ? status : refuse(libraryError(Number(status.code), status.details ?? '')))
    }
    const start = call.start.bind(call)
    call.start = (listener) => {
      const onReceiveMetadata = listener.onReceiveMetadata.bind(listener)
      listener.onReceiveMetadata = (metadata) => {
        received = metadata
        onReceiveMetadata(metadata)
      }
      start(listener)
    }
    // The library uses nothing but the interface; a call of its own around this one would cost a tenth of a small call.
    return call as ServerInterceptingCall
  }
}

function libraryError(code: number, details: string): DomainError {
  if (details.startsWith('Received message')) return DomainError.invalid('body', `must not be larger than ${maxMessageBytes} bytes`)
  if (details.startsWith('Failed to decompress')) return DomainError.invalid('body', 'can not be decompressed')
  if (details.startsWith('Invalid grpc-timeout')) return DomainError.invalid('grpc-timeout', 'is not a timeout')
  // The library's codes are gRPC's; 0 never comes here.
  return new DomainError(code as Code, details)
}
