import { DomainError, type Code } from '../../base/errors.ts'
import { fromStore } from '../../engine/errors.ts'
import { RegistryError, type RegistryErrorCode } from '../registry-error.ts'
import { UpstreamError, type UpstreamErrorKind } from '../upstream/upstream.ts'

/** The response for an error. Without `message`, the response has the error's own message. */
interface OciErrorRow {
  readonly code: RegistryErrorCode
  readonly status?: number
  readonly message?: string
  readonly retryAfterSeconds?: number
}

const fixedSentence = 'internal error; give the request id to the operator'

const ofUpstream = {
  unavailable: { code: 'UNAVAILABLE', message: 'the upstream storage is unreachable; try again', retryAfterSeconds: 5 },
  exhausted: { code: 'UNAVAILABLE', message: 'the upstream storage is full', retryAfterSeconds: 30 },
  digest_mismatch: { code: 'DIGEST_INVALID', message: 'the bytes do not match the digest' },
  corrupt: { code: 'UNKNOWN', message: 'the upstream storage holds bytes that do not match the digest' },
  upload_unknown: { code: 'BLOB_UPLOAD_UNKNOWN', message: 'there is no such upload' },
  range_invalid: { code: 'BLOB_UPLOAD_INVALID', status: 416, message: 'the chunk must start where the upload ends' },
  refused: { code: 'UNKNOWN', message: 'the upstream storage refuses this' },
} as const satisfies Record<UpstreamErrorKind, OciErrorRow>

const unknown: OciErrorRow = { code: 'UNKNOWN', message: fixedSentence }

const ofDomain = {
  1: { code: 'UNKNOWN', message: 'the request was cancelled' },
  2: { code: 'UNAVAILABLE' },
  3: { code: 'UNSUPPORTED', status: 400 },
  4: { code: 'UNAVAILABLE', status: 504 },
  5: { code: 'NAME_UNKNOWN' },
  6: { code: 'DENIED', status: 409 },
  7: { code: 'DENIED' },
  8: { code: 'TOOMANYREQUESTS' },
  9: { code: 'DENIED', status: 409 },
  // Clients retry after a 503, but not after a 409.
  10: { code: 'UNAVAILABLE', retryAfterSeconds: 1 },
  11: { code: 'UNSUPPORTED', status: 400 },
  12: { code: 'UNSUPPORTED' },
  13: unknown,
  14: { code: 'UNAVAILABLE', retryAfterSeconds: 1 },
  15: unknown,
  16: { code: 'UNAUTHORIZED' },
} as const satisfies Record<Code, OciErrorRow>

/** Rows for reasons, which take precedence over the row for the code. */
const ofReason: Readonly<Record<string, OciErrorRow>> = {
  MANIFEST_BLOB_UNKNOWN: { code: 'MANIFEST_BLOB_UNKNOWN' },
  NAME_INVALID: { code: 'NAME_INVALID' },
  // Retrying does not help, and clients would retry after a 429.
  QUOTA_EXCEEDED: { code: 'DENIED' },
  STORE_FULL: { code: 'UNAVAILABLE', status: 503 },
}

function made(row: OciErrorRow, error: Error, more: { retryAfterMs?: number | undefined; detail?: unknown } = {}): RegistryError {
  const seconds = more.retryAfterMs === undefined ? row.retryAfterSeconds : Math.max(1, Math.ceil(more.retryAfterMs / 1000))
  return new RegistryError(row.code, row.message ?? error.message, {
    ...(row.status === undefined ? {} : { status: row.status }),
    ...(seconds === undefined ? {} : { headers: { 'Retry-After': String(seconds) } }),
    detail: more.detail,
    cause: error,
  })
}

/** Returns the `detail` of the response: the first digest that the repo does not hold, as other registries return it. */
function detailOf({ reason, details }: DomainError): unknown {
  const digest = reason === 'MANIFEST_BLOB_UNKNOWN' ? details.precondition?.[0]?.subject : undefined
  return digest === undefined ? undefined : { digest }
}

/**
 * Converts any error into a RegistryError; only this function converts foreign errors. Unknown errors become UNKNOWN (500) with a fixed
 * message.
 */
export function toRegistryError(error: unknown): RegistryError {
  if (error instanceof RegistryError) return error
  if (error instanceof UpstreamError) return made(ofUpstream[error.kind], error)
  const domain = fromStore(error)
  if (domain instanceof DomainError) {
    const row = Object.hasOwn(ofReason, domain.reason) ? ofReason[domain.reason] : undefined
    return made(row ?? ofDomain[domain.code], domain, { retryAfterMs: domain.details.retryAfterMs, detail: detailOf(domain) })
  }
  return new RegistryError('UNKNOWN', fixedSentence, { cause: error })
}

/** Returns true for errors whose cause is only in the server's log. */
export function isServerError(error: RegistryError): boolean {
  return error.status >= 500
}

/** Returns the error body of the distribution specification, as JSON. */
export function errorBody(error: RegistryError): string {
  const { code, message, detail } = error
  return `${JSON.stringify({ errors: [detail === undefined ? { code, message } : { code, message, detail }] })}\n`
}
