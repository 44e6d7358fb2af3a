import type { IncomingMessage, ServerResponse } from 'node:http'
import { DomainError } from '../../core/errors.ts'

/** The longest deadline that a client may set, in seconds; longer ones count as this. */
const maxTimeoutSeconds = 3600

/**
 * A signal that aborts with code 1 where the client goes away before its answer, and with code 4 after `Request-Timeout` (a header of
 * ours: seconds, decimals allowed, e.g. `2.5`; anything else is ignored). Its timer ends with the response.
 */
export function createCallSignal(request: IncomingMessage, response: ServerResponse): AbortSignal {
  const controller = new AbortController()
  const seconds = timeoutSeconds(request.headers['request-timeout'])
  const timer =
    seconds === undefined
      ? undefined
      : setTimeout(() => controller.abort(new DomainError(4, 'the deadline passed before the request was done')), seconds * 1000)
  response.once('close', () => {
    clearTimeout(timer)
    if (!response.writableFinished) controller.abort(new DomainError(1, 'the client went away'))
  })
  return controller.signal
}

function timeoutSeconds(header: string | string[] | undefined): number | undefined {
  if (typeof header !== 'string' || !/^\d{1,6}(?:\.\d{1,6})?$/.test(header)) return undefined
  return Math.min(Number(header), maxTimeoutSeconds)
}
