import { expect, onTestFinished, test } from 'vitest'
import { answerGrpc, answerHttp, startBrokenTarget, type Sabotage } from './broken-target.ts'
import type { BreachKind } from './judge-http.ts'
import type { Transport } from './requests/make-request.ts'
import { breachLines } from './report.ts'
import { Run } from './run.ts'

interface Row {
  readonly what: string
  readonly only: Transport
  readonly sabotage: Sabotage
  /** Undefined if no fault is expected. */
  readonly kind: BreachKind | undefined
  /** 200 if absent. */
  readonly requests?: number
}

const info = { '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'X', domain: 'x', metadata: { requestId: 'another' } }
const rows: readonly Row[] = [
  { what: 'no fault over REST', only: 'rest', sabotage: {}, kind: undefined },
  { what: 'no fault over gRPC', only: 'grpc', sabotage: {}, kind: undefined },
  { what: 'status 500', only: 'rest', sabotage: { http: (broken) => answerHttp(broken, { status: 500, body: { code: 13 } }) }, kind: 'fault' },
  { what: 'status 503', only: 'rest', sabotage: { http: (broken) => answerHttp(broken, { status: 503, body: { code: 14 } }) }, kind: 'fault' },
  { what: 'an error without details', only: 'rest', sabotage: { http: (broken) => answerHttp(broken, { body: { details: [], errors: [] } }) }, kind: 'form' },
  { what: 'an error without a message', only: 'rest', sabotage: { http: (broken) => answerHttp(broken, { body: { message: '', errors: [] } }) }, kind: 'form' },
  { what: 'an unknown error code', only: 'rest', sabotage: { http: (broken) => answerHttp(broken, { body: { code: 99, errors: [] } }) }, kind: 'form' },
  {
    what: 'an error code of another status',
    only: 'rest',
    sabotage: { http: (broken) => answerHttp(broken, { body: { code: 7, errors: [] } }) },
    kind: 'form',
  },
  { what: 'a different request id', only: 'rest', sabotage: { http: (broken) => answerHttp(broken, { body: { details: [info], errors: [] } }) }, kind: 'form' },
  { what: 'no request id', only: 'rest', sabotage: { http: (broken) => answerHttp(broken, { headers: { 'x-request-id': '' } }) }, kind: 'form' },
  { what: 'an error that is not JSON', only: 'rest', sabotage: { http: (broken) => answerHttp(broken, { body: '<h1>Not found</h1>' }) }, kind: 'form' },
  {
    what: 'an OAuth error outside the standard',
    only: 'rest',
    sabotage: { every: 1, http: (broken) => answerHttp(broken, { body: { error: 'server_error' } }) },
    kind: 'form',
    requests: 1000,
  },
  {
    what: 'a SCIM error without detail',
    only: 'rest',
    sabotage: { every: 1, http: (broken) => answerHttp(broken, { body: { detail: undefined } }) },
    kind: 'form',
    requests: 1000,
  },
  {
    what: 'a stack trace',
    only: 'rest',
    sabotage: { http: (broken) => answerHttp(broken, { body: { message: 'Error\n    at async x (file.ts:1:2)' } }) },
    kind: 'leak',
  },
  { what: 'no answer', only: 'rest', sabotage: { http: () => undefined }, kind: 'hang' },
  { what: 'a broken connection', only: 'rest', sabotage: { http: ({ request }) => void request.socket.destroy() }, kind: 'connection' },
  {
    what: 'one answer too many',
    only: 'rest',
    sabotage: {
      http: (broken) => {
        answerHttp(broken)
        broken.request.socket.write('HTTP/1.1 204 No Content\r\nX-Request-Id: x\r\n\r\n')
      },
    },
    kind: 'connection',
  },
  { what: 'a refused request that changes something', only: 'rest', sabotage: { changes: true }, kind: 'state' },
  {
    what: 'a log line that should never appear',
    only: 'rest',
    sabotage: { logs: true },
    kind: 'log',
  },
  { what: '4 KiB kept in memory for each request', only: 'rest', sabotage: { keptBytes: 4096 }, kind: 'memory', requests: 4000 },
  { what: 'the end of the server process', only: 'rest', sabotage: { target: { running: () => false } }, kind: 'end' },
  { what: 'code 13', only: 'grpc', sabotage: { grpc: (broken) => answerGrpc(broken, { 'grpc-status': 13 }) }, kind: 'fault' },
  { what: 'code 2', only: 'grpc', sabotage: { grpc: (broken) => answerGrpc(broken, { 'grpc-status': 2 }) }, kind: 'fault' },
  {
    what: 'an error without details',
    only: 'grpc',
    sabotage: { grpc: (broken) => answerGrpc(broken, { 'grpc-status-details-bin': undefined }) },
    kind: 'form',
  },
  { what: 'no request id', only: 'grpc', sabotage: { grpc: (broken) => answerGrpc(broken, { 'x-request-id': undefined }) }, kind: 'form' },
  { what: 'details of another error code', only: 'grpc', sabotage: { grpc: (broken) => answerGrpc(broken, { 'grpc-status': 7 }) }, kind: 'form' },
  { what: 'no status', only: 'grpc', sabotage: { grpc: ({ stream }) => stream.close(2) }, kind: 'form' },
  { what: 'no answer', only: 'grpc', sabotage: { grpc: () => undefined }, kind: 'hang' },
  { what: 'a refused call that changes something', only: 'grpc', sabotage: { changes: true }, kind: 'state' },
]

test.each(rows)('the fuzzer reports exactly this fault of a server: $what ($only)', async ({ only, sabotage, kind, requests = 200 }) => {
  const target = await startBrokenTarget(sabotage)
  onTestFinished(() => target.stop())
  const { breaches, sent } = await new Run(target, { seed: 7, requests, only, boundMs: kind === 'hang' ? 1000 : 30_000, maxBreaches: 5 }).all()
  expect([...new Set(breaches.map((breach) => breach.kind))]).toEqual(kind === undefined ? [] : [kind])
  if (kind === undefined) expect(sent).toBeGreaterThanOrEqual(requests)
  for (const breach of breaches) expect(breachLines(breach, 'npm run fuzz -- --seed 7')).toMatch(/^BREACH [^]*--seed 7/)
})

test('a reported fault contains the request, as a command or as bytes', async () => {
  const target = await startBrokenTarget({ http: (broken) => answerHttp(broken, { status: 500 }), grpc: (broken) => answerGrpc(broken, { 'grpc-status': 13 }) })
  onTestFinished(() => target.stop())
  const { breaches } = await new Run(target, { seed: 7, requests: 200, boundMs: 30_000 }).all()
  expect(breaches.length).toBeGreaterThan(3)
  for (const { request, dump } of breaches)
    expect({ rest: request % 10, dump }).toEqual({ rest: 0, dump: expect.stringMatching(/^(?:curl |bytes in hex|gRPC )/) as unknown })
})
