import { create, toBinary, type MessageShape } from '@bufbuild/protobuf'
import { anyPack, type Any } from '@bufbuild/protobuf/wkt'
import { Metadata } from '@grpc/grpc-js'
import type { DomainError } from '../../base/errors.ts'
import { BadRequestSchema, ErrorInfoSchema, PreconditionFailureSchema, ResourceInfoSchema, RetryInfoSchema } from '../../gen/google/rpc/error_details_pb.ts'
import { StatusSchema } from '../../gen/google/rpc/status_pb.ts'
import { type ErrorContext, errorDetails, type ErrorDetail } from '../errors-details.ts'

/** Maximum size of the error details in bytes, before base64. Common clients refuse header lists of more than 8 KiB. */
const maxDetailsBytes = 4500

/** Maximum length of an error message in characters. It is sent twice: in `grpc-message` and in the details. */
const maxMessageLength = 500

/** A DomainError in the form in which gRPC sends it. */
interface GrpcError {
  readonly code: number
  readonly message: string
  /** Value of `grpc-status-details-bin`: an encoded google.rpc.Status. */
  readonly details: Uint8Array
}

/**
 * Returns the gRPC status of an error, with the same details as over REST (docs/spec/errors.md#error-shape). Omits details, last ones first, if the status
 * would be longer than common clients accept. ErrorInfo is always present.
 */
export function grpcError(error: DomainError, context: ErrorContext): GrpcError {
  const message = error.message.slice(0, maxMessageLength).toWellFormed()
  const packed = errorDetails(error, context).map(pack)
  while (packed.length > 1 && packed.reduce((sum, { value }) => sum + value.length, 0) > maxDetailsBytes) packed.pop()
  const status: MessageShape<typeof StatusSchema> = create(StatusSchema, { code: error.code, message, details: packed })
  return { code: error.code, message, details: toBinary(StatusSchema, status) }
}

function pack(detail: ErrorDetail): Any {
  switch (detail.type) {
    case 'ErrorInfo':
      return anyPack(ErrorInfoSchema, create(ErrorInfoSchema, { reason: detail.reason, domain: detail.domain, metadata: { ...detail.metadata } }))
    case 'BadRequest':
      return anyPack(BadRequestSchema, create(BadRequestSchema, { fieldViolations: [...detail.fieldViolations] }))
    case 'PreconditionFailure':
      return anyPack(PreconditionFailureSchema, create(PreconditionFailureSchema, { violations: [...detail.violations] }))
    case 'ResourceInfo':
      return anyPack(ResourceInfoSchema, create(ResourceInfoSchema, { ...withoutType(detail) }))
    case 'RetryInfo':
      return anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelay: duration(detail.retryAfterMs) }))
  }
}

function withoutType<T extends { readonly type: string }>({ type: _, ...fields }: T): Omit<T, 'type'> {
  return fields
}

function duration(ms: number): { seconds: bigint; nanos: number } {
  return { seconds: BigInt(Math.floor(ms / 1000)), nanos: Math.floor(ms % 1000) * 1_000_000 }
}

/** The status and trailers that end a failed call. */
export interface GrpcStatus {
  readonly code: number
  readonly details: string
  readonly metadata: Metadata
}

/** Name of the trailer with the error details, an encoded google.rpc.Status. */
export const detailsTrailer = 'grpc-status-details-bin'

/** Returns the status and trailers for an error. The trailers contain the error details and the request id. */
export function grpcStatus(error: DomainError, context: ErrorContext): GrpcStatus {
  const { code, message, details } = grpcError(error, context)
  const metadata = new Metadata()
  metadata.set('x-request-id', context.requestId)
  metadata.set(detailsTrailer, Buffer.from(details))
  return { code, details: message, metadata }
}
