import { DomainError, maxViolations } from '../base/errors.ts'
import type { FieldViolation, PreconditionViolation, ResourceInfo } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import { errorDomainSuffix } from '../base/schema/schema.ts'

/** The error domain of errors that concern no method, such as those for unknown paths. */
export const platformDomain = 'platform'

/** The call to which an error is the answer. */
export interface ErrorContext {
  readonly requestId: string
  /** The method's domain, e.g. `iam`. */
  readonly domain: string
}

/** One detail of an error. Its key is the short name of the google.rpc message. Both transports send the same details (docs/spec/errors.md#error-shape). */
export type ErrorDetail =
  | { readonly type: 'ErrorInfo'; readonly reason: string; readonly domain: string; readonly metadata: Readonly<Record<string, string>> }
  | { readonly type: 'BadRequest'; readonly fieldViolations: readonly FieldViolation[] }
  | { readonly type: 'PreconditionFailure'; readonly violations: readonly PreconditionViolation[] }
  | ({ readonly type: 'ResourceInfo' } & ResourceInfo)
  | { readonly type: 'RetryInfo'; readonly retryAfterMs: number }

/** Returns `value` with all its texts as well-formed Unicode. A shortened text may end in half a character, which neither protobuf nor HTTP/2 can carry. */
function wellFormed<T>(value: T): T {
  // Details contain only texts, numbers, lists and plain objects. The result has the same type.
  if (typeof value === 'string') return value.toWellFormed() as T
  if (Array.isArray(value)) return value.map(wellFormed) as T
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key.toWellFormed(), wellFormed(inner)])) as T
}

/** Returns the details of an error in the order in which they are sent, ErrorInfo first. */
export function errorDetails(error: DomainError, context: ErrorContext): ErrorDetail[] {
  const { badRequest, precondition, resource, retryAfterMs, metadata } = wellFormed(error.details)
  const list: ErrorDetail[] = [
    {
      type: 'ErrorInfo',
      reason: error.reason,
      domain: `${context.domain}.${errorDomainSuffix}`,
      metadata: { ...metadata, requestId: context.requestId },
    },
  ]
  if (badRequest !== undefined) list.push({ type: 'BadRequest', fieldViolations: badRequest.slice(0, maxViolations) })
  if (precondition !== undefined) list.push({ type: 'PreconditionFailure', violations: precondition.slice(0, maxViolations) })
  if (resource !== undefined) list.push({ type: 'ResourceInfo', ...resource })
  if (retryAfterMs !== undefined) list.push({ type: 'RetryInfo', retryAfterMs })
  return list
}

/** The method and the request during which a value was thrown. */
export interface ThrownContext {
  readonly requestId: string
  /** Name of the method for the log: `GroupsService.GetGroup`, or `unknown` if no method was found. */
  readonly method: string
  readonly signal?: AbortSignal
  readonly log: Log
}

/**
 * Converts a thrown value to the error that the caller receives. A DomainError stays unchanged. An error that an abort caused becomes the reason of the abort.
 * Any other value becomes code 13 with a fixed message, and goes to the log.
 */
export function toDomainError(thrown: unknown, context: ThrownContext): DomainError {
  const reason: unknown = context.signal?.aborted === true ? context.signal.reason : undefined
  const known = thrown instanceof DomainError ? thrown : reason instanceof DomainError ? reason : undefined
  if (known !== undefined && known.code !== 13) return known
  context.log.error('request failed', { requestId: context.requestId, method: context.method, error: known?.cause ?? thrown })
  return new DomainError(13, `internal error; the request id is ${context.requestId}`, { cause: thrown })
}
