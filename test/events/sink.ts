import { createServer } from 'node:https'
import type { IncomingHttpHeaders, ServerResponse } from 'node:http'
import { createAuthority } from '../support/parts/sign-in/authority.ts'
import { closeNow, listenOnLoopback } from '../support/parts/loopback.ts'

/** A request that a sink received. */
export interface Received {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

/** Answers a request. */
export type Responder = (received: Received, response: ServerResponse) => void

/** An HTTPS server that receives events. */
export interface Sink {
  readonly url: string
  /** Every request, oldest first. */
  readonly received: readonly Received[]
  /** Returns the requests with this header `ce-subject`. */
  about(subject: string): readonly Received[]
  /** Sets the answer to later requests. The default is 200. */
  respond(responder: Responder): void
  /** Resolves once `isEnough` holds. */
  until(isEnough: (received: readonly Received[]) => boolean): Promise<void>
  close(): Promise<void>
}

/** The certificate authority of all sinks of a test file. */
export const sinkAuthority = createAuthority('sinks')

/** Answers with a status. */
export function answer(status: number, headers: Readonly<Record<string, string>> = {}): Responder {
  return (_received, response) => void response.writeHead(status, headers).end()
}

/** Starts a sink on the loopback address under the name `localhost`. */
export async function startSink(first: Responder = answer(200)): Promise<Sink> {
  const { certificate, key } = sinkAuthority.issue()
  const received: Received[] = []
  let responder = first
  let waiters: (() => void)[] = []
  const server = createServer({ cert: certificate, key }, (request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const one = { path: request.url ?? '', headers: request.headers, body: Buffer.concat(chunks).toString() }
      received.push(one)
      for (const wake of waiters.splice(0)) wake()
      responder(one, response)
    })
  })
  const port = await listenOnLoopback(server)
  return {
    url: `https://localhost:${port}/events`,
    received,
    about: (subject) => received.filter(({ headers }) => headers['ce-subject'] === subject),
    respond(next) {
      responder = next
    },
    async until(isEnough) {
      while (!isEnough(received)) {
        const { promise, resolve } = Promise.withResolvers<void>()
        waiters = [...waiters, resolve]
        await promise
      }
    },
    close: () => closeNow(server),
  }
}
