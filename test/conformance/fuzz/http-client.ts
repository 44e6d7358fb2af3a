import { connect, type Socket } from 'node:net'
import { bytesOf, type HttpDraft } from './requests/http-draft.ts'
import { MalformedAnswer, readAnswer, type HttpAnswer } from './http-answer.ts'

/** What became of a request. */
export interface HttpOutcome {
  /** In order; of a request with a plain end at most two, the second being that of the probe. */
  readonly answers: readonly HttpAnswer[]
  /** `closed` by the server, `reset` by it, or cut off by us because it took too long. */
  readonly ended: 'closed' | 'reset' | 'late'
  /** What is wrong with the bytes that came. */
  readonly malformed: string | undefined
  readonly milliseconds: number
}

/** Where and how long. */
export interface HttpSending {
  readonly port: number
  readonly boundMs: number
}

/** The request id of the request that follows on the same connection. */
export const probeId = 'probe-of-the-fuzzer'

/** Sent right behind a request with a clear end. The answer to this one shows whether the server read more or fewer bytes than the request has. */
const probe = Buffer.from(`OPTIONS /iam/v2/groups HTTP/1.1\r\nHost: probe\r\nX-Request-Id: ${probeId}\r\nConnection: close\r\n\r\n`)

/** Sends a request on a connection of its own, and waits until the server has closed it. Never rejects. */
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
  // The server has said all.
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

/** Behind such a request a client waits for the answer: until then it can't tell in which protocol to go on (RFC 9110, 7.8). Node drops what it sends earlier. */
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
    // So that they arrive one by one.
    if (index > 0) await new Promise(setImmediate)
    if (!socket.destroyed) socket.write(chunk)
  }
  if (wire.ending === 'end') socket.end()
  else socket.write(Buffer.alloc(0), () => socket.resetAndDestroy())
}

/** All answers, each to the request that it stands for; further ones are answers to the last. */
function answersIn(bytes: Buffer, verbs: readonly string[]): { answers: HttpAnswer[]; malformed: string | undefined } {
  const answers: HttpAnswer[] = []
  let rest = bytes
  try {
    while (rest.length > 0) {
      const read = readAnswer(rest, verbs[answers.length] ?? verbs.at(-1) ?? 'GET', true)
      // Interim answers to a request that was given up.
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
