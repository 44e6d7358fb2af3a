import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createPlatformClient, type ClientCall } from '../../src/cli/client/platform-client.ts'
import { retryLimits, retryWaitMs } from '../../src/cli/client/retry.ts'

/** One answer of a server. */
interface Scripted {
  readonly status: number
  readonly retryAfter?: string
  readonly body?: string
  /** The server cuts the connection in place of an answer. */
  readonly cut?: true
}

const cut: Scripted = { status: 0, cut: true }
const good: Scripted = { status: 200, body: '{"fine": true}' }
const refusal = JSON.stringify({
  code: 8,
  message: 'too many requests',
  details: [{ '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'RATE_LIMITED', metadata: { requestId: 'r-1' } }],
})

/** Calls a server with scripted answers. The last answer repeats. `keys` has the Idempotency-Key of each request that has one. */
async function callScripted(
  answers: readonly Scripted[],
  call: Partial<ClientCall> = {},
): Promise<{ outcome: unknown; asked: number; waits: number[]; keys: unknown[] }> {
  let asked = 0
  const keys: unknown[] = []
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    const { status, retryAfter, body = refusal, cut: isCut } = answers[Math.min(asked, answers.length - 1)] ?? good
    asked += 1
    if (request.headers['idempotency-key'] !== undefined) keys.push(request.headers['idempotency-key'])
    if (isCut === true) request.socket.destroy()
    else response.writeHead(status, retryAfter === undefined ? {} : { 'retry-after': retryAfter }).end(body)
  }).listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const waits: number[] = []
  const { port } = server.address() as AddressInfo // a cast: it listens on a port
  const client = createPlatformClient({ baseUrl: `http://127.0.0.1:${port}`, token: 'x', wait: (ms) => Promise.resolve(waits.push(ms)) })
  const outcome: unknown = await client.call({ method: 'GET', path: '/', ...call }).catch((error: unknown) => error)
  return { outcome, asked, waits, keys }
}

describe('an answer that asks the client to retry later', () => {
  test.for([
    ['429', { status: 429, retryAfter: '2' }],
    ['503', { status: 503, retryAfter: '2' }],
    ['503 of a proxy', { status: 503, retryAfter: '2', body: '<html>later</html>' }],
  ] as const)('an answer that asks the client to retry later is followed by the same request after that time: %s', async ([, answer]) => {
    expect(await callScripted([answer, answer, good])).toMatchObject({ outcome: { fine: true }, asked: 3, waits: [2000, 2000] })
  })

  test('an answer that asks the client to retry later is followed by the same dry run', async () => {
    const dryRun = { method: 'PATCH', body: {}, query: { validateOnly: 'true' } } as const
    expect(await callScripted([{ status: 429, retryAfter: '2' }, good], dryRun)).toMatchObject({ outcome: { fine: true }, asked: 2, waits: [2000] })
  })

  test('an answer that asks the client to retry later is followed by a limited number of attempts, and the last refusal is the result', async () => {
    const { outcome, asked, waits } = await callScripted([{ status: 429, retryAfter: '1' }])
    expect(outcome).toMatchObject({ name: 'ClientError', code: 8, reason: 'RATE_LIMITED', requestId: 'r-1' })
    expect([asked, waits.length]).toEqual([retryLimits.retries + 1, retryLimits.retries])
  })

  test.for([
    ['without Retry-After', [{ status: 503 }], 'GET'],
    ['with a Retry-After that is too long', [{ status: 429, retryAfter: '3600' }], 'GET'],
    ['with another status', [{ status: 500, retryAfter: '1' }], 'GET'],
    ['to a change', [{ status: 503, retryAfter: '1' }], 'POST'],
  ] as const)('an answer that asks the client to retry later is not retried: %s', async ([, answers, method]) => {
    expect(await callScripted(answers, { method })).toMatchObject({ asked: 1, waits: [] })
  })

  test('an answer that asks the client to retry later may give the time as a date or in seconds', () => {
    const now = Date.parse('2026-01-01T00:00:00Z')
    expect(retryWaitMs({ status: 503, retryAfter: 'Thu, 01 Jan 2026 00:00:07 GMT' }, now)).toBe(7000)
    expect(retryWaitMs({ status: 503, retryAfter: 'Thu, 01 Jan 2025 00:00:07 GMT' }, now)).toBe(0)
    expect(retryWaitMs({ status: 503, retryAfter: 'soon' }, now)).toBeUndefined()
  })
})

describe('a connection that breaks before the answer', () => {
  const key = 'one-create'
  const create: Partial<ClientCall> = { method: 'POST', body: {}, idempotencyKey: key }

  test('a connection that breaks before the answer repeats a create with the same key', async () => {
    expect(await callScripted([cut, good], create)).toMatchObject({ outcome: { fine: true }, asked: 2, keys: [key, key] })
    const later: Scripted = { status: 503, retryAfter: '2' }
    expect(await callScripted([later, good], create)).toMatchObject({ outcome: { fine: true }, asked: 2, waits: [2000], keys: [key, key] })
  })

  test.for([
    ['a create, after a second attempt', create, 2],
    ['another change', { method: 'PATCH', body: {} }, 1],
    ['a delete', { method: 'DELETE' }, 1],
  ] as const)('a connection that breaks before the answer leaves the outcome open, and the message says so: %s', async ([, call, requests]) => {
    const { outcome, asked } = await callScripted([cut], call)
    expect(outcome).toMatchObject({ message: expect.stringMatching(/ did not answer: .*\. The change may have happened: look/) as unknown })
    expect(asked).toBe(requests)
  })

  test('a connection that breaks before the answer changes nothing if the call only reads', async () => {
    expect((await callScripted([cut])).outcome).toMatchObject({ message: expect.stringMatching(/ cannot be reached: /) as unknown })
  })
})
