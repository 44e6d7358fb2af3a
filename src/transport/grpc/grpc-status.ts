import { Metadata } from '@grpc/grpc-js'
import type { DomainError } from '../../base/errors.ts'
import type { ErrorContext } from '../errors-details.ts'
import { grpcError } from '../errors-grpc.ts'

/** How a failed call ends. */
export interface GrpcStatus {
  readonly code: number
  readonly details: string
  readonly metadata: Metadata
}

/** The trailer that carries error details, a google.rpc.Status. */
export const detailsTrailer = 'grpc-status-details-bin'

/** An error as the end of a call: details and request id go in the trailers. */
export function grpcStatus(error: DomainError, context: ErrorContext): GrpcStatus {
  const { code, message, details } = grpcError(error, context)
  const metadata = new Metadata()
  metadata.set('x-request-id', context.requestId)
  metadata.set(detailsTrailer, Buffer.from(details))
  return { code, details: message, metadata }
}
