import type { ServerResponse, IncomingMessage } from 'node:http'

/** Time during which a client may go on sending unread bytes, in milliseconds. It lets the client read its answer. */
const drainMs = 5_000

/** Discards the unread rest of an answered request as it arrives, for a limited time. Then the connection ends. */
export function beginDrain(request: IncomingMessage): void {
  if (request.complete || request.destroyed) return
  request.resume()
  const timer = setTimeout(() => request.destroy(), drainMs)
  const done = (): void => clearTimeout(timer)
  request.once('end', done)
  request.once('close', done)
}

/** How long a client may send, or take, nothing where no setting says otherwise, in milliseconds. */
export const defaultIdleMs = 60_000

/** Ends the connection where nothing of the answer is taken for so long. For an answer that begins now: until then it is not the client who is waited for. */
export function endWhenIdle(response: ServerResponse, idleMs = defaultIdleMs): void {
  response.setTimeout(idleMs, () => response.destroy())
}
