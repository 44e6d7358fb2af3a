import type { Dispatcher } from 'undici'
import { readBounded } from '../chunk-body.ts'
import { UpstreamError, type UpstreamErrorKind } from '../upstream.ts'

/** Timeouts of the upstream. None of them limits a body that makes progress. */
export interface UpstreamTimeouts {
  /** Until a response begins, and between two reads of the request body, in milliseconds. */
  readonly headersMs: number
  /** Until a response begins to a request for which the upstream reads a whole blob, in milliseconds. */
  readonly finishMs: number
  /** Between two pieces of a response body, in milliseconds. */
  readonly stallMs: number
}

const maxErrorBytes = 64 * 1024

/** Kinds of error by the code in the OCI error envelope, for any status. */
const kindsOfCodes: Readonly<Record<string, UpstreamErrorKind>> = {
  BLOB_UPLOAD_UNKNOWN: 'upload_unknown',
  RANGE_INVALID: 'range_invalid',
  DIGEST_INVALID: 'digest_mismatch',
  TOOMANYREQUESTS: 'unavailable',
  // Distribution sends 500 if it reports several errors.
  MANIFEST_BLOB_UNKNOWN: 'refused',
  MANIFEST_INVALID: 'refused',
}

/** Kinds of error by HTTP status. */
const kindsOfStatuses: Readonly<Record<number, UpstreamErrorKind>> = {
  408: 'unavailable',
  413: 'exhausted',
  416: 'range_invalid',
  425: 'unavailable',
  429: 'unavailable',
  507: 'exhausted',
}

/** A response with an error status. */
export interface Failure {
  readonly status: number
  /** The first meaningful code of the OCI error envelope; undefined without one. */
  readonly code: string | undefined
}

/** Reads the error code of a response. If its body breaks off, only the status is known. Rejects with the signal's reason if it is aborted. */
export async function failureOf({ statusCode, body }: Dispatcher.ResponseData, signal: AbortSignal): Promise<Failure> {
  const { kind, bytes } = await readBounded(body, maxErrorBytes)
  // If the connection broke, the failed status is still known.
  if (kind === 'broken') signal.throwIfAborted()
  const codes = codesIn(bytes.toString())
  return { status: statusCode, code: codes.find((code) => code !== 'UNKNOWN') ?? codes[0] }
}

/** Returns the codes of an OCI error envelope; none for other content, such as an error page of a proxy. */
function codesIn(text: string): string[] {
  try {
    const { errors } = JSON.parse(text) as { errors?: { code?: unknown }[] } // a cast of unverified JSON: anything that does not fit throws
    return (errors ?? []).map(({ code }) => code).filter((code) => typeof code === 'string')
  } catch {
    return []
  }
}

/** Converts the failure into an UpstreamError. `doing` names the request, for the message. */
export function upstreamError({ status, code }: Failure, doing: string): UpstreamError {
  const kind = kindsOfCodes[code ?? ''] ?? kindsOfStatuses[status] ?? (status >= 500 ? 'unavailable' : 'refused')
  return new UpstreamError(kind, `the upstream answered ${status}${code === undefined ? '' : ` ${code}`} to ${doing}`)
}
