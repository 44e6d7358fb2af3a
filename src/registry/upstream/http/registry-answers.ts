import type { Dispatcher } from 'undici'
import { UpstreamError, type UpstreamErrorKind } from '../upstream.ts'

const maxErrorBytes = 64 * 1024

/** What a code of the OCI error envelope means, whatever the status. */
const kindsOfCodes: Readonly<Record<string, UpstreamErrorKind>> = {
  BLOB_UPLOAD_UNKNOWN: 'upload_unknown',
  RANGE_INVALID: 'range_invalid',
  DIGEST_INVALID: 'digest_mismatch',
  TOOMANYREQUESTS: 'unavailable',
}

/** What a status means. */
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
  /** The first code of the OCI error envelope; undefined where there is none. */
  readonly code: string | undefined
}

/** Reads what an answer says went wrong. */
export async function failureOf({ statusCode, body }: Dispatcher.ResponseData): Promise<Failure> {
  const text = await bounded(body)
  let code: unknown
  try {
    code = (JSON.parse(text) as { errors?: { code?: unknown }[] } | null)?.errors?.[0]?.code
  } catch {
    // A proxy's page: its status has to do.
  }
  return { status: statusCode, code: typeof code === 'string' ? code : undefined }
}

/** The failure as the port has it. */
export function upstreamError({ status, code }: Failure, doing: string): UpstreamError {
  const kind = kindsOfCodes[code ?? ''] ?? kindsOfStatuses[status] ?? (status >= 500 ? 'unavailable' : 'refused')
  return new UpstreamError(kind, `the upstream answered ${status}${code === undefined ? '' : ` ${code}`} to ${doing}`)
}

/** Text of a body, cut off. */
async function bounded(body: Dispatcher.ResponseData['body']): Promise<string> {
  const pieces: Buffer[] = []
  let left = maxErrorBytes
  for await (const piece of body) {
    pieces.push(piece as Buffer) // a cast: no encoding is set
    left -= (piece as Buffer).length
    if (left < 0) break
  }
  return Buffer.concat(pieces).toString()
}
