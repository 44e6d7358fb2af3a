import { FetchError, type SafeFetch } from '../../auth/safe-fetch.ts'

/** A signed event as an HTTP request. */
export interface EventRequest {
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array
}

/**
 * The result of sending an event:
 * - `delivered`: the sink answered 2xx.
 * - `gone`: the sink answered 410. It wants no more events.
 * - `failed`: any other response, or none. `status` is 0 without a response. `retryAfterMs` is set if a 429 or 503 requested a delay.
 */
export type SendOutcome =
  | { readonly kind: 'delivered'; readonly status: number }
  | { readonly kind: 'gone'; readonly status: 410 }
  | { readonly kind: 'failed'; readonly status: number; readonly error: string; readonly retryAfterMs: number | undefined }

/** Messages for failures without an HTTP status, which subscriptions show. */
const messages: Readonly<Record<string, string>> = {
  refused_url: 'the sink is not an https URL',
  refused_address: 'the sink has a private address that the configuration does not allow',
  unresolved: 'the name of the sink does not resolve',
  unreachable: 'the sink does not accept connections, or closed this one early',
  untrusted: 'the certificate of the sink is not trusted',
  timeout: 'the sink did not answer in time',
}

/** Statuses whose `Retry-After` is obeyed (docs/spec/events.md#delivery). */
const waitingStatuses: ReadonlySet<number> = new Set([429, 503])

/** Sends an event to a sink. Failures of the sink are results, not errors. Rejects only with the signal's reason. */
export async function sendEvent(fetch: SafeFetch, sink: string, { request, signal }: { request: EventRequest; signal: AbortSignal }): Promise<SendOutcome> {
  try {
    const { status } = await fetch.send({ url: sink, method: 'POST', headers: request.headers, body: request.body, discardBody: true }, signal)
    return { kind: 'delivered', status }
  } catch (failure) {
    signal.throwIfAborted()
    if (!(failure instanceof FetchError)) throw failure
    const { reason, status = 0, retryAfterMs } = failure
    if (status === 410) return { kind: 'gone', status }
    const error = status === 0 ? (messages[reason] ?? reason) : `the sink answered ${status}`
    return { kind: 'failed', status, error, retryAfterMs: waitingStatuses.has(status) ? retryAfterMs : undefined }
  }
}
