import type { Dispatcher } from 'undici'
import { readBounded } from '../chunk-body.ts'
import { UpstreamError, type UpstreamErrorKind } from '../upstream.ts'

/** How long the upstream may take. None of them limits a body that flows. */
export interface UpstreamTimeouts {
  /** Timeout to begin the answer, and to take the next bytes of the request. */
  readonly headersMs: number
  /** To begin its answer where it has to go over a whole blob first. */
  readonly finishMs: number
  /** Between two pieces of a body. */
  readonly stallMs: number
}

const maxErrorBytes = 64 * 1024

/** The meaning of each code of the OCI error envelope, whatever the status. */
const kindsOfCodes: Readonly<Record<string, UpstreamErrorKind>> = {
  BLOB_UPLOAD_UNKNOWN: 'upload_unknown',
  RANGE_INVALID: 'range_invalid',
  DIGEST_INVALID: 'digest_mismatch',
  TOOMANYREQUESTS: 'unavailable',
  // Distribution says 500 where what it says is several things.
  MANIFEST_BLOB_UNKNOWN: 'refused',
  MANIFEST_INVALID: 'refused',
}

/** The meaning of each status. */
const kindsOfStatuses: Readonly<Record<number, UpstreamErrorKind>> = {
  408: 'unavailable',
  413: 'exhausted',
  416: 'range_invalid',
  425: 'unavailable',
  429: 'unavailable',
  507: 'exhausted',
}

/** An answer that is no success. */
export interface Failure {
  readonly status: number
  /** The first meaningful code of the OCI error envelope; undefined without one. */
  readonly code: string | undefined
}

/** Reads what an answer says went wrong: where that breaks off, the status has to do. Rejects with the reason of a signal that is aborted. */
export async function failureOf({ statusCode, body }: Dispatcher.ResponseData, signal: AbortSignal): Promise<Failure> {
  const { kind, bytes } = await readBounded(body, maxErrorBytes)
  // Where the connection broke, that the request failed is known all the same.
  if (kind === 'broken') signal.throwIfAborted()
  const codes = codesIn(bytes.toString())
  return { status: statusCode, code: codes.find((code) => code !== 'UNKNOWN') ?? codes[0] }
}

/** The codes of an OCI error envelope; none in a proxy's page, whose status has to do. */
function codesIn(text: string): string[] {
  try {
    const { errors } = JSON.parse(text) as { errors?: { code?: unknown }[] } // a cast of what is not known yet: whatever does not fit throws
    return (errors ?? []).map(({ code }) => code).filter((code) => typeof code === 'string')
  } catch {
    return []
  }
}

/** The failure as the port has it. */
export function upstreamError({ status, code }: Failure, doing: string): UpstreamError {
  const kind = kindsOfCodes[code ?? ''] ?? kindsOfStatuses[status] ?? (status >= 500 ? 'unavailable' : 'refused')
  return new UpstreamError(kind, `the upstream answered ${status}${code === undefined ? '' : ` ${code}`} to ${doing}`)
}
