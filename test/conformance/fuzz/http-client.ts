import { connect, type Socket } from 'node:net'
import { bytesOf, type HttpDraft } from './requests/http-draft.ts'
import { MalformedAnswer, readAnswer, type HttpAnswer } from './http-answer.ts'

/** The outcome of a request. */
export interface HttpOutcome {
  /** The answers in order. A request with a clear end gets at most two, the second being that of the probe. */
  readonly answers: readonly HttpAnswer[]
  /** `closed` or `reset` by the server, or `late`: closed by the client after the time limit. */
  readonly ended: 'closed' | 'reset' | 'late'
  /** What is wrong with the received bytes. */
  readonly malformed: string | undefined
  readonly milliseconds: number
}

/** Port and time limit of a request. */
export interface HttpSending {
  readonly port: number
  readonly boundMs: number
}

/** The id of the probe request, which follows on the same connection. */
export const probeId = 'probe-of-the-fuzzer'

/** The request that follows a request with a clear end. Its answer shows whether the server read too many or too few bytes. */
const probe = Buffer.from(`OPTIONS /iam/v2/groups HTTP/1.1\r\nHost: probe\r\nX-Request-Id: ${probeId}\r\nConnection: close\r\n\r\n`)

/** Sends a request on its own connection, and waits until the server closes it. Never rejects. */
export function sendHttp(draft: HttpDraft, { port, boundMs }: HttpSending): Promise<HttpOutcome> {
  const startedAt = performance.now()
  const { promise, resolve } = Promise.withResolvers<HttpOutcome>()
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true })
  const received: Buffer[] = []
  let ended: HttpOutcome['ended'] = 'closed'
  const late = setTimeout(() => {
    ended = 'late'
    socket.destroy()
  }, boundMs)
  const verbs = draft.wire === undefined ? [draft.verb, 'OPTIONS'] : [draft.wire.verb]
  socket.on('data', (chunk) => received.push(Buffer.from(chunk)))
  // The server has sent everything.
  socket.on('end', () => socket.destroy())
  socket.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'ECONNRESET' || error.code === 'EPIPE') ended = 'reset'
    else if (error.code !== undefined) ended = 'reset'
  })
  socket.once('close', () => {
    clearTimeout(late)
    resolve({ ...answersIn(Buffer.concat(received), verbs), ended, milliseconds: performance.now() - startedAt })
  })
  socket.once('connect', () => void write(socket, draft))
  return promise
}

/** After such a request a client waits for the answer, which decides the protocol (RFC 9110, 7.8). Node drops bytes sent earlier. */
function asksToUpgrade({ headers }: HttpDraft): boolean {
  const named = (wanted: string): readonly string[] => headers.flatMap(([name, value]) => (name.toLowerCase() === wanted ? [value.toLowerCase()] : []))
  return named('upgrade').length > 0 && named('connection').some((value) => value.includes('upgrade'))
}

async function write(socket: Socket, draft: HttpDraft): Promise<void> {
  const { wire } = draft
  if (wire === undefined) {
    if (asksToUpgrade(draft)) {
      socket.once('data', () => socket.write(probe))
      socket.write(bytesOf(draft))
    } else socket.write(Buffer.concat([bytesOf(draft), probe]))
    return
  }
  for (const [index, chunk] of wire.chunks.entries()) {
    // So that the pieces arrive separately.
    if (index > 0) await new Promise(setImmediate)
    if (!socket.destroyed) socket.write(chunk)
  }
  if (wire.ending === 'end') socket.end()
  else socket.write(Buffer.alloc(0), () => socket.resetAndDestroy())
}

/** Returns all answers, matched with their requests. Additional ones are answers to the last request. */
function answersIn(bytes: Buffer, verbs: readonly string[]): { answers: HttpAnswer[]; malformed: string | undefined } {
  const answers: HttpAnswer[] = []
  let rest = bytes
  try {
    while (rest.length > 0) {
      const read = readAnswer(rest, verbs[answers.length] ?? verbs.at(-1) ?? 'GET', true)
      // Interim answers to an abandoned request.
      if (read === undefined && /^(?:HTTP\/1\.1 1\d\d [^\r]*\r\n\r\n)+$/.test(rest.toString('latin1'))) break
      if (read === undefined)
        return { answers, malformed: `${rest.length} bytes are no whole answer: ${JSON.stringify(rest.subarray(0, 200).toString('latin1'))}` }
      answers.push(read.answer)
      rest = read.rest
    }
    return { answers, malformed: undefined }
  } catch (error) {
    if (error instanceof MalformedAnswer) return { answers, malformed: error.message }
    throw error
  }
}
