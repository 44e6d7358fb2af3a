import type { IncomingMessage } from 'node:http'

/** How long a client may go on sending what nobody reads, in milliseconds: it should get to read its answer. */
const lingerMs = 5_000

/** For a request that is answered: what of it nobody read is dropped as it comes, for a while; then the connection ends. */
export function linger(request: IncomingMessage): void {
  if (request.complete || request.destroyed) return
  request.resume()
  const timer = setTimeout(() => request.destroy(), lingerMs)
  const done = (): void => clearTimeout(timer)
  request.once('end', done)
  request.once('close', done)
}
