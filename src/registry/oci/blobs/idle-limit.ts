import type { ServerResponse, IncomingMessage } from 'node:http'

/** How long a client may continue to send bytes that are discarded, in milliseconds. Meanwhile it can read the response. */
const drainMs = 5_000

/** After the response, discards the unread rest of the request for a limited time. Then closes the connection. */
export function beginDrain(request: IncomingMessage): void {
  if (request.complete || request.destroyed) return
  request.resume()
  const timer = setTimeout(() => request.destroy(), drainMs)
  const done = (): void => clearTimeout(timer)
  request.once('end', done)
  request.once('close', done)
}

/** Default of the idle limit, in milliseconds: how long a client may send no bytes, or read no bytes. */
export const defaultIdleMs = 60_000

/**
 * Closes the connection if the client reads nothing of the response for `idleMs` milliseconds. Call it when the response begins: before
 * that, the client has nothing to read.
 */
export function endWhenIdle(response: ServerResponse, idleMs = defaultIdleMs): void {
  response.setTimeout(idleMs, () => response.destroy())
}
