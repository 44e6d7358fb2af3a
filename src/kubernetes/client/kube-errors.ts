import { KubeError, type KubeErrorReason } from '../kube-api.ts'

/** What is used of a Status, the object with which the API server answers what failed. */
export interface StatusAnswer {
  readonly code?: number
  readonly reason?: string
  readonly message?: string
  readonly details?: { readonly retryAfterSeconds?: number; readonly causes?: readonly { readonly reason?: string }[] }
}

/** The reasons of a Status that say more than, or other than, its code. */
const reasonsByStatus = new Map<string, KubeErrorReason>([
  ['AlreadyExists', 'already_exists'],
  ['Expired', 'expired'],
  ['Gone', 'expired'],
])

const reasonsByCode = new Map<number, KubeErrorReason>([
  [401, 'unauthorized'],
  [403, 'forbidden'],
  [404, 'not_found'],
  [409, 'conflict'],
  [410, 'expired'],
  [429, 'throttled'],
])

/** The cause of a Status where the resource version is one that the server has not reached: one from before a backup was restored. */
const aheadOfServer = 'ResourceVersionTooLarge'

function reasonOf(code: number, status: StatusAnswer | undefined): KubeErrorReason {
  if (status?.details?.causes?.some(({ reason }) => reason === aheadOfServer) === true) return 'expired'
  const known = reasonsByStatus.get(status?.reason ?? '') ?? reasonsByCode.get(code)
  if (known !== undefined) return known
  return code >= 400 && code < 500 ? 'invalid' : 'unavailable'
}

/** The error of an answer; `body` is its text, a Status or, from whatever stands in between, anything. */
export function answeredError(code: number, body: string, retryAfter?: string): KubeError {
  const status = parseStatus(body)
  const reason = reasonOf(code, status)
  const seconds = status?.details?.retryAfterSeconds ?? (retryAfter === undefined ? Number.NaN : Number(retryAfter))
  // A server that starts asks for 5 s and needs less. Only one that is too busy knows how long.
  return new KubeError(reason, status?.message ?? `the API server answered ${code}`, {
    ...(reason === 'throttled' && seconds > 0 && { retryAfterMs: seconds * 1000 }),
  })
}

/** The error that a watch tells in place of an event. */
export function watchError(status: StatusAnswer): KubeError {
  return new KubeError(reasonOf(status.code ?? 500, status), status.message ?? 'the API server ended the watch')
}

/** The error of a call without an answer. */
export function unansweredError(cause: unknown): KubeError {
  return cause instanceof KubeError ? cause : new KubeError('unavailable', 'the API server does not answer', { cause })
}

function parseStatus(body: string): StatusAnswer | undefined {
  try {
    const parsed: unknown = JSON.parse(body)
    // A cast: what is of another kind has none of the fields, all of which are optional.
    return typeof parsed === 'object' && parsed !== null && 'kind' in parsed && parsed.kind === 'Status' ? (parsed as StatusAnswer) : undefined
  } catch {
    // Not JSON: a proxy's page, or the plain text of a path that is not served.
    return undefined
  }
}
