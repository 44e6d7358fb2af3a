import { randomBytes } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createHttp2Server, type Http2Server, type ServerHttp2Stream } from 'node:http2'
import { DomainError } from '../../../src/base/errors.ts'
import { createOnePort, type PortListener } from '../../../src/transport/one-port.ts'
import { grpcError } from '../../../src/transport/grpc/grpc-status.ts'
import { httpError } from '../../../src/transport/errors-http.ts'
import { createUnreadableAnswer, dropBody, type UnreadableAnswer } from '../../../src/transport/http/unreadable-request.ts'
import { memoryInUse } from '../../support/parts/memory-in-use.ts'
import { sampleCorpus } from './requests/sample-corpus.ts'
import type { Target } from './target.ts'

/** A request whose answer is to be broken. */
export interface BrokenHttp {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly requestId: string
}

/** A call whose answer is to be broken. */
export interface BrokenGrpc {
  readonly stream: ServerHttp2Stream
  readonly requestId: string
}

/** The faults of a broken server for the chosen requests. */
export interface Sabotage {
  readonly http?: (broken: BrokenHttp) => void
  readonly grpc?: (broken: BrokenGrpc) => void
  /** One in this many requests is chosen; ten if absent. */
  readonly every?: number
  /** Each chosen request changes the store although it is refused. */
  readonly changes?: true
  /** The server logs an internal error for each chosen request. */
  readonly logs?: true
  /** Number of bytes that the server keeps in memory for each request. */
  readonly keptBytes?: number
  /** Values that replace those of the target. */
  readonly target?: Partial<Pick<Target, 'running'>>
}

const notThere = new DomainError(5, 'there is nothing')

/** Adds the additional members of OAuth, SCIM and registry errors. */
function inAllForms(status: number): object {
  return {
    error: 'invalid_request',
    error_description: 'x',
    schemas: ['urn:ietf:params:scim:api:messages:2.0:Error'],
    status: String(status),
    detail: 'x',
    errors: [{ code: 'UNKNOWN', message: 'x' }],
  }
}

/** Sends the correct answer of every endpoint, not found, with optional changes. */
export function answerHttp(
  { request, response, requestId }: BrokenHttp,
  change: { status?: number; body?: object | string; headers?: Record<string, string> } = {},
): void {
  const { status, body } = httpError(notThere, { requestId, domain: 'test' })
  const text = typeof change.body === 'string' ? change.body : JSON.stringify({ ...body, ...inAllForms(change.status ?? status), ...change.body })
  response.writeHead(change.status ?? status, {
    'content-type': request.url?.startsWith('/scim/') === true ? 'application/scim+json' : 'application/json',
    'x-request-id': requestId,
    'content-length': Buffer.byteLength(text),
    ...change.headers,
  })
  response.end(text)
}

/** Ends a call correctly, with optional changes. */
export function answerGrpc({ stream, requestId }: BrokenGrpc, change: Record<string, string | number | undefined> = {}): void {
  if (stream.destroyed || stream.closed) return
  const { code, message, details } = grpcError(notThere, { requestId, domain: 'test' })
  const trailers = {
    'grpc-status': code,
    'grpc-message': message,
    'grpc-status-details-bin': Buffer.from(details).toString('base64'),
    'x-request-id': requestId,
  }
  const all = Object.entries({ ...trailers, ...change }).filter(([, value]) => value !== undefined)
  stream.respond({ ':status': 200, 'content-type': 'application/grpc', ...Object.fromEntries(all) }, { endStream: true })
}

function isChosen(requestId: string, every: number): boolean {
  return Number(/^fuzz-(\d+)$/.exec(requestId)?.[1] ?? 1) % every === 0
}

/** Returns an error in both formats, so that one server serves both ports. */
function unreadable(): UnreadableAnswer {
  const { body } = httpError(DomainError.invalid('request', 'is not readable'), { requestId: 'none', domain: 'test' })
  return { requestId: 'none', body: JSON.stringify({ ...body, errors: [{ code: 'UNKNOWN', message: 'x' }] }) }
}

/** Answers every request correctly, except those that `choose` selects. */
function createHttp(choose: (requestId: string) => boolean, sabotage: Sabotage): Server {
  const server = createServer({ requireHostHeader: false, maxHeaderSize: 32 * 1024 }, (request, response) => {
    const id = String(request.headers['x-request-id'] ?? 'none')
    const exchange = { request, response, requestId: /^[\w-]{1,128}$/.test(id) ? id : 'none' }
    void dropBody(request, { maxBytes: Infinity, timeoutMs: 60_000 }).then(() => {
      if (choose(id) && sabotage.http !== undefined) sabotage.http(exchange)
      else answerHttp(exchange)
    })
  })
  server.on('clientError', createUnreadableAnswer(unreadable))
  return server.on('checkExpectation', (request, response) => server.emit('request', request, response))
}

function createGrpc(choose: (requestId: string) => boolean, sabotage: Sabotage): Http2Server {
  const server = createHttp2Server()
  return server.on('stream', (stream: ServerHttp2Stream, headers) => {
    stream.on('error', () => undefined)
    stream.resume()
    const requestId = String(headers['x-request-id'] ?? 'none')
    if (choose(requestId) && sabotage.grpc !== undefined) sabotage.grpc({ stream, requestId })
    else answerGrpc({ stream, requestId })
  })
}

/** Starts a server that answers every request with not found, except for the sabotage. */
export async function startBrokenTarget(sabotage: Sabotage): Promise<Target> {
  const { changes, logs, keptBytes = 0, target = {}, every = 10 } = sabotage
  const chosen: string[] = []
  const taken = { changes: 0, logs: 0 }
  const kept: string[] = []
  const choose = (requestId: string): boolean => {
    if (keptBytes > 0) kept.push(randomBytes(keptBytes / 2).toString('hex'))
    const isOne = isChosen(requestId, every)
    if (isOne) chosen.push(requestId)
    return isOne
  }
  /** Returns the requests chosen since the last call. */
  const since = (what: keyof typeof taken): readonly string[] => chosen.slice(taken[what], (taken[what] = chosen.length))
  const apiClientOf = (server: Server | Http2Server): PortListener => ({
    accept: (socket) => void server.emit('connection', socket),
    beginDrain: () => undefined,
    drain: () => undefined,
  })
  const port = createOnePort({ http: apiClientOf(createHttp(choose, sabotage)), grpc: apiClientOf(createGrpc(choose, sabotage)) })
  const { port: number } = await port.listen('127.0.0.1', 0)
  return {
    ports: { api: number, ops: number, registry: number },
    corpus: () => Promise.resolve(sampleCorpus),
    changes: () => Promise.resolve(changes === true ? since('changes').map((id) => ({ key: `r/Group/${id}`, how: 'added' as const })) : []),
    memory: () => memoryInUse(),
    errors: () => Promise.resolve(logs === true ? since('logs').map((requestId) => ({ requestId, text: 'unexpected' })) : []),
    work: () => Promise.resolve({ totalMs: 0, longestTurnMs: 0 }),
    fill: () => Promise.resolve([]),
    token: () => Promise.resolve('token'),
    swept: () => Promise.resolve(),
    running: () => chosen.length === 0 || (target.running?.() ?? true),
    async stop() {
      await port.close(0)
      kept.length = 0
    },
  }
}
