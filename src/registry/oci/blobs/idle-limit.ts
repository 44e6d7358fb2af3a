import type { ServerResponse } from 'node:http'

/** How long a client may send, or take, nothing where no setting says otherwise, in milliseconds. */
export const defaultIdleMs = 60_000

/** Ends the connection where nothing of the answer is taken for so long. For an answer that begins now: until then it is not the client who is waited for. */
export function endWhenIdle(response: ServerResponse, idleMs = defaultIdleMs): void {
  response.setTimeout(idleMs, () => response.destroy())
}
