import { KubeError, type KubeErrorReason } from '../kube-api.ts'

/** The used fields of a Status, the object with which the API server reports a failure. */
export interface StatusAnswer {
  readonly code?: number
  readonly reason?: string
  readonly message?: string
  readonly details?: { readonly retryAfterSeconds?: number; readonly causes?: readonly { readonly reason?: string }[] }
}

/** Kinds of error by the reason of a Status. The reason is more precise than the HTTP status, or differs from it. */
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

/** The cause in a Status if the requested resource version is newer than the server's. This happens after a backup was restored. */
const aheadOfServer = 'ResourceVersionTooLarge'

function reasonOf(code: number, status: StatusAnswer | undefined): KubeErrorReason {
  if (status?.details?.causes?.some(({ reason }) => reason === aheadOfServer) === true) return 'expired'
  const known = reasonsByStatus.get(status?.reason ?? '') ?? reasonsByCode.get(code)
  if (known !== undefined) return known
  return code >= 400 && code < 500 ? 'invalid' : 'unavailable'
}

/** Creates the error for a failed response. `body` is its text: a Status, or any text if it comes from a proxy. */
export function answeredError(code: number, body: string, retryAfter?: string): KubeError {
  const status = parseStatus(body)
  const reason = reasonOf(code, status)
  const seconds = status?.details?.retryAfterSeconds ?? (retryAfter === undefined ? Number.NaN : Number(retryAfter))
  // A starting server requests 5 s but needs less. Only an overloaded server knows how long to wait.
  return new KubeError(reason, status?.message ?? `the API server answered ${code}`, {
    ...(reason === 'throttled' && seconds > 0 && { retryAfterMs: seconds * 1000 }),
  })
}

/** Creates the error that a watch reports in place of an event. */
export function watchError(status: StatusAnswer): KubeError {
  return new KubeError(reasonOf(status.code ?? 500, status), status.message ?? 'the API server ended the watch')
}

/** Creates the error for a call without a response. */
export function unansweredError(cause: unknown): KubeError {
  return cause instanceof KubeError ? cause : new KubeError('unavailable', 'the API server does not answer', { cause })
}

function parseStatus(body: string): StatusAnswer | undefined {
  try {
    const parsed: unknown = JSON.parse(body)
    // a cast: objects of other kinds have none of these optional fields
    return typeof parsed === 'object' && parsed !== null && 'kind' in parsed && parsed.kind === 'Status' ? (parsed as StatusAnswer) : undefined
  } catch {
    // Not JSON: a page of a proxy, or the plain text for an unknown path.
    return undefined
  }
}
