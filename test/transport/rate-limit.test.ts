import { setImmediate as nextTurn } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { LoopMeter } from '../../src/transport/loop-meter.ts'
import { addressKey, RateLimiter } from '../../src/transport/rate-limit.ts'
import { DomainError } from '../../src/base/errors.ts'
import { trustedUid } from '../../src/base/uid.ts'
import { issueRefreshToken } from '../../src/iam/signin/refresh-tokens.ts'
import { freshName, makeOrganisation, makePerson, ok, roleUid, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'
import type { Reply } from '../support/api-clients.ts'
import { slowness } from '../budgets.ts'
import { TestClock } from '../conformance/spec/test-clock.ts'

function refused(work: () => void): DomainError | undefined {
  try {
    work()
    return undefined
  } catch (error) {
    if (error instanceof DomainError) return error
    throw error
  }
}

describe('a token bucket', () => {
  test('a token bucket allows its burst, then its rate, for each key', () => {
    let now = 1_000
    const limiter = new RateLimiter({ requestsPerSecond: 10, burst: 3 }, { now: () => now })
    for (let count = 0; count < 3; count++) limiter.take('a')
    expect(refused(() => limiter.take('a'))).toMatchObject({ code: 8, reason: 'RATE_LIMITED', details: { retryAfterMs: 100 } })
    expect(refused(() => limiter.take('b'))).toBeUndefined()
    now += 100
    expect(refused(() => limiter.take('a'))).toBeUndefined()
    expect(refused(() => limiter.take('a'))?.code).toBe(8)
    now -= 5_000
    expect(refused(() => limiter.take('a'))?.code).toBe(8)
    now += 60_000
    for (let count = 0; count < 3; count++) limiter.take('a')
    expect(refused(() => limiter.take('a'))?.code).toBe(8)
  })
})

describe('a limit of processor time', () => {
  /** A meter with simulated processor time. */
  const measured = (): { limiter: RateLimiter; meter: LoopMeter; work: (ms: number) => void; pass: (ms: number) => void } => {
    let [loopMs, now] = [0, 1_000]
    const meter = new LoopMeter(() => loopMs)
    const limit = { requestsPerSecond: 1000, burst: 1000, workMillisecondsPerSecond: 100, workBurstMilliseconds: 50 }
    const limiter = new RateLimiter(limit, { now: () => now }, meter)
    return { limiter, meter, work: (ms) => void (loopMs += ms), pass: (ms) => void (now += ms) }
  }

  test('a limit of processor time lets one key use its burst, exceed it once, and continue as time passes', async () => {
    const { limiter, work, pass } = measured()
    limiter.take('a')
    work(150)
    await nextTurn()
    expect(refused(() => limiter.take('a'))).toMatchObject({ code: 8, reason: 'RATE_LIMITED', details: { retryAfterMs: 1010 } })
    expect(refused(() => limiter.take('b'))).toBeUndefined()
    pass(1010)
    expect(refused(() => limiter.take('a'))).toBeUndefined()
  })

  test('a limit of processor time counts work before the next wait, including settled promises, and nothing afterwards', async () => {
    const { limiter, work } = measured()
    const request = async (): Promise<void> => {
      limiter.take('a')
      work(20)
      for (let step = 0; step < 5; step++) await Promise.resolve()
      work(20)
      await nextTurn()
      // Without an owner: the awaited connection may belong to another client.
      work(1000)
      limiter.resume('a')
      work(20)
    }
    await request()
    await nextTurn()
    expect(refused(() => limiter.take('a'))).toMatchObject({ details: { retryAfterMs: 110 } })
  })

  test('counts for each of several concurrent requests its own work', async () => {
    const { limiter, work } = measured()
    const request = async (key: string, ms: number): Promise<void> => {
      await Promise.resolve()
      limiter.take(key)
      work(ms)
    }
    await Promise.all([request('a', 10), request('b', 60), request('c', 10)])
    await nextTurn()
    expect(['a', 'b', 'c'].map((key) => refused(() => limiter.take(key))?.code)).toEqual([undefined, 8, undefined])
  })
})

describe('a server with a limit of processor time', () => {
  const clock = new TestClock()
  let server: TestServer
  beforeAll(async () => {
    // On a slow machine, an organisation takes as much.
    const burst = String(Math.round(Math.max(250, 150 * slowness())))
    const limits = { TAPROOT_RATE_LIMIT_WORK_BURST_MILLISECONDS: burst, TAPROOT_RATE_LIMIT_ADDRESS_WORK_BURST_MILLISECONDS: '2' }
    server = await startTestServer({ env: { TAPROOT_RATE_LIMIT_ENABLED: 'true', ...limits }, clock })
  })
  afterAll(() => server.stop())

  /** Repeats a request until the limit of processor time refuses it; at most 150 times, below the limit of requests. */
  async function untilRefused(ask: () => Promise<Reply>): Promise<Reply | undefined> {
    for (let asked = 0; asked < 150; asked++) {
      const reply = await ask()
      if (reply.code === 8) return reply
    }
    return undefined
  }

  test.each(['rest', 'grpc'] as const)(
    'a server with a limit of processor time over %s answers 429 with RetryInfo to a principal with too expensive requests, and serves the next',
    async (transport) => {
      const apiClient = server[transport]
      const organisation = (): Promise<Organisation> => {
        clock.advance(60_000)
        return makeOrganisation(server)
      }
      const [busy, calm] = [await organisation(), await organisation()]
      await clock.hold(async () => {
        let asked = 0
        // New patterns: each is compiled.
        const reply = await untilRefused(() => {
          asked += 1
          const claimPatterns = Object.fromEntries(
            Array.from({ length: 6 }, (_, index) => [`c${index}`, `${transport}${asked}${'[^\\pL]x'.repeat(10)}${index}`]),
          )
          const identity = { name: 'dear', claimMatch: { issuer: 'https://issuer.example', subject: 'x', claimPatterns } }
          return apiClient.call('CreateIdentity', { parent: busy.group, identity }, { token: busy.token, validateOnly: true })
        })
        expect(reply?.message).toBe('too much processing time: wait as long as Retry-After or RetryInfo says')
        expect(reply?.details['RetryInfo']).toBeDefined()
        if (transport === 'rest') expect([reply?.httpStatus, Number(reply?.header('retry-after')) >= 1]).toEqual([429, true])
        expect((await apiClient.call('ListGroups', {}, { token: calm.token })).code).toBe(0)
      })
      clock.advance(60_000)
      expect((await apiClient.call('ListGroups', {}, { token: busy.token })).code).toBe(0)
    },
  )

  test('a server answers 429 to an address with too expensive requests without a credential, and serves a caller with one', async () => {
    clock.advance(60_000)
    const { token } = await makeOrganisation(server)
    await clock.hold(async () => {
      const reply = await untilRefused(() => server.rest.call('Auth/Register', { code: 'x'.repeat(4000) }, { token: 'garbage' }))
      expect(reply?.message).toBe('too much processing time: wait as long as Retry-After or RetryInfo says')
      expect((await server.rest.call('ListGroups', {}, { token })).code).toBe(0)
    })
  })
})

describe('the rate limit key of an address', () => {
  test.each([
    ['127.0.0.1', 'address 127.0.0.1'],
    ['::ffff:10.0.0.1', 'address 10.0.0.1'],
    ['2001:db8:1:2:3:4:5:6', 'address 2001:db8:1:2::/64'],
    ['2001:db8:1:2::6', 'address 2001:db8:1:2::/64'],
    ['2001:db8::6', 'address 2001:db8:0:0::/64'],
    ['::1', 'address 0:0:0:0::/64'],
  ])('the rate limit key of an address for %s is %s', (address, key) => {
    expect(addressKey(address)).toBe(key)
  })
})

describe('a server with rate limits', () => {
  const clock = new TestClock()
  let server: TestServer
  beforeAll(async () => {
    const limits = {
      TAPROOT_RATE_LIMIT_REQUESTS_PER_SECOND: '1',
      TAPROOT_RATE_LIMIT_BURST: '20',
      TAPROOT_RATE_LIMIT_ADDRESS_REQUESTS_PER_SECOND: '1',
      TAPROOT_RATE_LIMIT_ADDRESS_BURST: '20',
    }
    server = await startTestServer({ env: { TAPROOT_RATE_LIMIT_ENABLED: 'true', ...limits }, clock })
  })
  afterAll(() => server.stop())

  test.each(['rest', 'grpc'] as const)(
    'a server with rate limits over %s answers 429 with RetryInfo to one principal and serves the next',
    async (transport) => {
      const apiClient = server[transport]
      const busy = await makeOrganisation(server)
      const replies = await clock.hold(() => Promise.all(Array.from({ length: 30 }, () => apiClient.call('ListGroups', {}, { token: busy.token }))))
      const limited = replies.filter((reply) => reply.code === 8)
      expect(limited.length).toBeGreaterThanOrEqual(5)
      expect(limited[0]?.details['ErrorInfo']?.['reason']).toBe('RATE_LIMITED')
      expect(limited[0]?.details['RetryInfo']).toBeDefined()
      if (transport === 'rest') {
        expect(limited[0]?.httpStatus).toBe(429)
        expect(Number(limited[0]?.header('retry-after'))).toBeGreaterThanOrEqual(1)
      }
      const calm = await makeOrganisation(server)
      expect((await apiClient.call('ListGroups', {}, { token: calm.token })).code).toBe(0)
    },
  )

  test.each<[string, string, Readonly<Record<string, string>>?]>([
    ['GET', '/oauth?idp_id=nobody&redirect=http://localhost:1/'],
    ['POST', '/oauth/confirm', {}],
    ['GET', `/oauth/callback/${'a'.repeat(40)}/${'b'.repeat(16)}`],
    ['GET', '/orgcheck?name=nobody'],
    ['POST', '/oauth/device_authorization', {}],
    ['POST', '/oauth/token', { grant_type: 'refresh_token', refresh_token: 'guessed' }],
    ['POST', '/oauth/revoke', { token: 'guessed' }],
  ])('%s %s answers 429 with Retry-After to an address over its limit', async (method, path, form) => {
    const ask = () =>
      fetch(`http://127.0.0.1:${server.config.api.port}${path}`, {
        method,
        redirect: 'manual',
        ...(form === undefined ? {} : { body: new URLSearchParams(form) }),
      })
    const answers = await clock.hold(() => Promise.all(Array.from({ length: 30 }, ask)))
    const limited = answers.filter(({ status }) => status === 429)
    expect(limited.length).toBeGreaterThanOrEqual(1)
    expect(await limited[0]?.json()).toMatchObject({ code: 8, details: [{ reason: 'RATE_LIMITED' }, { retryDelay: expect.any(String) as string }] })
    for (const answer of limited) expect(Number(answer.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
  })

  test.each(['rest', 'grpc'] as const)(
    'a server with rate limits over %s limits refused credentials, at methods and at the exchange, and not valid ones of the same address',
    async (transport) => {
      const apiClient = server[transport]
      const { group, token } = await makeOrganisation(server)
      for (const rpc of ['ListGroups', 'SecurityTokenService/Exchange']) {
        const replies = await clock.hold(() => Promise.all(Array.from({ length: 30 }, () => apiClient.call(rpc, {}, { token: 'garbage' }))))
        expect(replies.some((reply) => reply.code === 8)).toBe(true)
        expect(replies.every((reply) => [7, 8, 16].includes(reply.code))).toBe(true)
      }
      expect((await apiClient.call('GetGroup', { uid: group }, { token })).code).toBe(0)
    },
  )
})

// docs/spec/limits.md#rate-limits
describe.each(['rest', 'grpc'] as const)('over %s a request refused with code 8 has written nothing and can be retried:', (transport) => {
  const clock = new TestClock()
  let server: TestServer
  beforeAll(async () => {
    const limits = { TAPROOT_RATE_LIMIT_REQUESTS_PER_SECOND: '1', TAPROOT_RATE_LIMIT_BURST: '10', TAPROOT_SELF_SERVICE_ROOT_GROUPS: 'false' }
    server = await startTestServer({ env: { TAPROOT_RATE_LIMIT_ENABLED: 'true', ...limits }, clock })
  })
  afterAll(() => server.stop())

  /** Runs `work` while a caller's limit is used up, with their issuer's token and their uid. */
  async function limited(work: (person: { uid: string; token: string }) => Promise<void>): Promise<void> {
    const { devIssuer, config } = server
    const subject = freshName('busy')
    const person = await makePerson(server, { issuer: devIssuer.issuer, subject })
    const token = await devIssuer.mintDevToken({ subject, audience: config.baseUrl, claims: {} })
    await clock.hold(async () => {
      const replies = await Promise.all(Array.from({ length: 11 }, () => server[transport].call('ListGroups', {}, { token: person.token })))
      expect(replies.filter(({ code }) => code === 8)).toHaveLength(1)
      await work({ uid: person.uid, token })
    })
    clock.advance(60_000)
  }

  test('a refused refresh token still works later', async () => {
    const { services } = server.running.engine
    let refresh = ''
    await limited(async ({ uid }) => {
      const act = { issuer: server.devIssuer.issuer, subject: 'foreign-name', audience: server.config.baseUrl }
      const claims = { act, restrictions: {}, issuedAtMs: services.clock.now() }
      const grant = { person: trustedUid(uid), claims, provider: undefined, externalId: '', audiences: [] }
      refresh = (await issueRefreshToken(services, grant, AbortSignal.timeout(60_000))).text
      expect((await server[transport].call('ExchangeRefreshToken', {}, { token: refresh })).code).toBe(8)
    })
    ok(await server[transport].call('ExchangeRefreshToken', {}, { token: refresh }))
  })

  test('a single-use invite code of a refused join still works later', async () => {
    const org = await makeOrganisation(server)
    const groupInvite = { roleUid: roleUid('viewer'), ttl: '3600s', singleUse: true }
    const { code } = ok(await server.rest.call('CreateGroupInvite', { parent: org.group, groupInvite }, { token: org.token }))
    let bearer = ''
    await limited(async ({ token }) => {
      bearer = token
      expect((await server[transport].call('Register', { code: String(code) }, { token })).code).toBe(8)
    })
    expect(ok(await server[transport].call('Register', { code: String(code) }, { token: bearer }))['group']).toBe(org.group)
  })

  // docs/spec/version-1.md#repos: a repo and its readme are two writes.
  test('a repo with a readme is created whole by the last request', async () => {
    const org = await makeOrganisation(server)
    const repo = { name: 'nginx', readme: '# Read me' }
    await clock.hold(async () => {
      for (let request = 1; request < 10; request++) ok(await server[transport].call('GetGroup', { uid: org.group }, { token: org.token }))
      expect(ok(await server[transport].call('Registry/CreateRepo', { parentId: org.group, repo }, { token: org.token }))).toMatchObject(repo)
      expect((await server[transport].call('Registry/CreateRepo', { parentId: org.group, repo: { name: 'httpd' } }, { token: org.token })).code).toBe(8)
    })
    clock.advance(60_000)
    expect(ok(await server[transport].call('Registry/ListRepos', {}, { token: org.token }))).toMatchObject({ items: [{ name: 'nginx' }] })
  })

  test('a token to exchange leaves no trace', async () => {
    await limited(async ({ uid, token }) => {
      const seen = server.running.engine.cache.tables.get('Identity', trustedUid(uid))?.revision
      expect((await server[transport].call('Exchange', {}, { token })).code).toBe(8)
      expect(server.running.engine.cache.tables.get('Identity', trustedUid(uid))?.revision).toBe(seen)
    })
  })
})
