import { create, toBinary, type MessageShape } from '@bufbuild/protobuf'
import { anyPack, type Any } from '@bufbuild/protobuf/wkt'
import { Metadata } from '@grpc/grpc-js'
import type { DomainError } from '../../base/errors.ts'
import { BadRequestSchema, ErrorInfoSchema, PreconditionFailureSchema, ResourceInfoSchema, RetryInfoSchema } from '../../gen/google/rpc/error_details_pb.ts'
import { StatusSchema } from '../../gen/google/rpc/status_pb.ts'
import { type ErrorContext, errorDetails, type ErrorDetail } from '../errors-details.ts'

/** The longest details sent, in bytes before base64: header lists over 8 KiB are refused by common clients. */
const maxDetailsBytes = 4500

/** The longest message sent, in characters; it goes out twice, in `grpc-message` and in the details. */
const maxMessageLength = 500

/** A DomainError as the status of a gRPC call. */
interface GrpcError {
  readonly code: number
  readonly message: string
  /** `grpc-status-details-bin`: a google.rpc.Status. */
  readonly details: Uint8Array
}

/**
 * The gRPC status of an error, with the same details as over REST (docs/spec/errors.md#error-shape). Details that would make it longer than common clients
 * accept are left out, last ones first; ErrorInfo is always there.
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
