import { create } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { DomainError } from '../../src/base/errors.ts'
import { GroupSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { serve } from './harness/harness.ts'
import type { Seen, Served } from './harness/harness.ts'
import { sendTo } from './harness/send.ts'
import type { Sent } from './harness/send.ts'

const root = 'a'.repeat(40)
const child = `${root}/${'b'.repeat(16)}`

let served: Served

beforeAll(async () => {
  served = await serve(({ call }) => create(call.method.output))
})
afterAll(() => served.close())

function send(verb: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Sent> {
  return sendTo(served.port, { verb, path, body, headers })
}

function last(): Seen {
  const seen = served.seen.at(-1)
  if (seen === undefined) throw new Error('nothing was dispatched')
  return seen
}

describe('REST headers', () => {
  test('REST headers of a request are part of the call', async () => {
    const traceparent = `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`
    await send('DELETE', `/iam/v2/groups/${root}`, undefined, {
      authorization: 'Bearer t',
      'taproot-identity': child,
      'if-match': 'W/"e1"',
      'if-none-match': '*',
      'idempotency-key': 'k',
      'x-request-id': 'mine-1',
      'user-agent': 'ua/1',
      traceparent,
    })
    expect(last().call).toMatchObject({
      transport: 'http',
      headers: {
        authorization: 'Bearer t',
        identity: child,
        ifMatch: 'e1',
        ifNoneMatch: '*',
        idempotencyKey: 'k',
        requestId: 'mine-1',
        userAgent: 'ua/1',
        traceparent,
      },
      remoteAddress: '127.0.0.1',
    })
  })

  test.each([
    ['x-request-id', 'has space', 'requestId', /^generated-/],
    ['x-request-id', 'x'.repeat(129), 'requestId', /^generated-/],
    ['traceparent', `00-${'0'.repeat(32)}-${'2'.repeat(16)}-01`, 'traceparent', undefined],
    ['traceparent', 'nonsense', 'traceparent', undefined],
  ] as const)('REST headers with an invalid %s are ignored', async (name, value, key, expected) => {
    await send('GET', `/iam/v2/groups/${root}`, undefined, { [name]: value })
    if (expected === undefined) expect(last().call.headers[key]).toBeUndefined()
    else expect(last().call.headers[key]).toMatch(expected)
  })
})

describe('REST answers', () => {
  test('REST answers contain a resource with its etag, a restarted list, or an empty body', async () => {
    const own = await serve(async ({ call }) => ({ message: create(call.method.output), etag: 'e1', pageTokenRestarted: call.method.verb === 'list' }))
    try {
      const group = await fetch(`${own.url}/iam/v2/groups/${root}`, { headers: { 'x-request-id': 'r1' } })
      expect(group.status).toBe(200)
      expect(group.headers.get('etag')).toBe('"e1"')
      expect(group.headers.get('x-request-id')).toBe('r1')
      expect(group.headers.get('cache-control')).toBe('no-store')
      expect(group.headers.get('x-content-type-options')).toBe('nosniff')
      expect(group.headers.get('content-type')).toMatch(/^application\/json/)
      const list = await fetch(`${own.url}/iam/v2/groups`)
      expect(list.headers.get('page-token-restarted')).toBe('true')
      const deleted = await fetch(`${own.url}/iam/v2/groups/${root}`, { method: 'DELETE' })
      expect([deleted.status, deleted.headers.get('content-type'), await deleted.text()]).toEqual([200, null, ''])
    } finally {
      await own.close()
    }
  })

  test('REST answers for errors contain details, headers and the request id', async () => {
    const own = await serve(async () => {
      throw new DomainError(8, 'slow down', { reason: 'RATE_LIMITED', details: { retryAfterMs: 1500, metadata: { limit: '5' } } })
    })
    try {
      const response = await fetch(`${own.url}/iam/v2/groups`, { headers: { 'x-request-id': 'r2' } })
      expect(response.status).toBe(429)
      expect(response.headers.get('retry-after')).toBe('2')
      expect(response.headers.get('x-request-id')).toBe('r2')
      expect(await response.json()).toEqual({
        code: 8,
        message: 'slow down',
        details: [
          { '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'RATE_LIMITED', domain: 'iam.taproot.dev', metadata: { limit: '5', requestId: 'r2' } },
          { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '1.500s' },
        ],
      })
    } finally {
      await own.close()
    }
  })

  test('REST answers for an internal error show only the request id, and the error is logged', async () => {
    const own = await serve(async () => {
      throw new Error('secret inside')
    })
    try {
      const response = await fetch(`${own.url}/iam/v2/groups`, { headers: { 'x-request-id': 'r3' } })
      expect(response.status).toBe(500)
      expect(await response.json()).toMatchObject({ code: 13, message: 'internal error; the request id is r3' })
      expect(own.logged).toMatchObject([{ requestId: 'r3', method: 'GroupsService.ListGroups' }])
    } finally {
      await own.close()
    }
  })

  test('REST answers with status 401 contain a challenge', async () => {
    const own = await serve(async () => {
      throw new DomainError(16, 'no token')
    })
    try {
      const response = await fetch(`${own.url}/iam/v2/groups`)
      expect([response.status, response.headers.get('www-authenticate')]).toEqual([401, 'Bearer'])
    } finally {
      await own.close()
    }
  })
})

describe('the end of a REST call', () => {
  /** A server whose calls end only by their signal. */
  async function serveHanging(): Promise<{ own: Served; reason: Promise<unknown> }> {
    let settle: (reason: unknown) => void = () => {}
    const reason = new Promise((resolve) => {
      settle = resolve
    })
    const own = await serve(
      ({ call }) =>
        new Promise((_, reject) => {
          call.signal.addEventListener('abort', () => {
            settle(call.signal.reason)
            reject(new Error('aborted'))
          })
        }),
    )
    return { own, reason }
  }

  test('the end of a REST call aborts the signal with code 1 when the client disconnects', async () => {
    const { own, reason } = await serveHanging()
    try {
      const controller = new AbortController()
      const pending = fetch(`${own.url}/iam/v2/groups`, { signal: controller.signal }).catch(() => 'aborted')
      await expect.poll(() => own.seen.length).toBe(1)
      controller.abort()
      expect(await pending).toBe('aborted')
      expect(await reason).toMatchObject({ code: 1 })
    } finally {
      await own.close()
    }
  })

  test('the end of a REST call may be set by Request-Timeout as a deadline', async () => {
    const { own, reason } = await serveHanging()
    try {
      const response = await fetch(`${own.url}/iam/v2/groups`, { headers: { 'request-timeout': '0.05' } })
      expect(response.status).toBe(504)
      expect(await response.json()).toMatchObject({ code: 4 })
      expect(await reason).toMatchObject({ code: 4 })
    } finally {
      await own.close()
    }
  })
})

test('the field `type` of a created resource is returned', async () => {
  const own = await serve(() => create(GroupSchema, { name: 'n', resourceLimits: { a: 1 } }))
  try {
    const response = await fetch(`${own.url}/iam/v2/groups`, { method: 'POST', body: '{"name":"n"}', headers: { 'content-type': 'application/json' } })
    expect(await response.json()).toMatchObject({ name: 'n', resourceLimits: { a: 1 }, kind: 'ORG_KIND_UNSPECIFIED' })
  } finally {
    await own.close()
  }
})
