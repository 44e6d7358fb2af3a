import { randomBytes } from 'node:crypto'
import type { ServerResponse } from 'node:http'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createIssuerKeys } from '../../../src/auth/oidc/issuer-keys.ts'
import type { IssuerKeysOptions } from '../../../src/auth/oidc/issuer-keys.ts'
import { createKeySet } from '../../../src/auth/keys/key-set.ts'
import type { SafeFetch } from '../../../src/auth/safe-fetch.ts'
import { failure, localIssuer, signal, testClock, testFetch, testKey } from '../parts.ts'

const unscoped = { named: [] }
const hourMs = 3_600_000

async function ground(options: Partial<IssuerKeysOptions> = {}) {
  const key = await testKey()
  const local = await localIssuer([key])
  const clock = testClock()
  const keys = createIssuerKeys({ fetch: testFetch(), clock, configured: [{ issuer: local.issuer, allowPrivate: true }], ...options })
  return { key, local, clock, keys }
}

const kids = (set: { keys: readonly { kid?: string }[] }): unknown[] => set.keys.map((key) => key.kid)

describe("an issuer's keys", () => {
  test('issuer keys are fetched by discovery once an hour, for any number of concurrent requests', async () => {
    const { key, keys, local, clock } = await ground()
    const sets = await Promise.all(Array.from({ length: 50 }, () => keys.keysFor(local.issuer, unscoped, signal)))
    expect(sets.map(kids)).toEqual(sets.map(() => [key.kid]))
    expect(local.seen).toEqual(['/.well-known/openid-configuration', '/jwks.json'])
    clock.advance(hourMs - 1)
    await keys.keysFor(local.issuer, unscoped, signal)
    expect(local.seen).toHaveLength(2)
    clock.advance(1)
    await keys.keysFor(local.issuer, unscoped, signal)
    expect(local.seen).toHaveLength(4)
  })

  test('issuer keys are used for up to a day while the issuer is down', async () => {
    const { key, keys, local, clock } = await ground()
    await keys.keysFor(local.issuer, unscoped, signal)
    local.behave = (_request, response) => response.writeHead(503).end() !== undefined
    clock.advance(23 * hourMs)
    expect(kids(await keys.keysFor(local.issuer, unscoped, signal))).toEqual([key.kid])
    clock.advance(hourMs)
    expect(await failure(keys.keysFor(local.issuer, unscoped, signal))).toBe('issuer_unavailable')
    local.behave = () => false
    clock.advance(30_000)
    expect(kids(await keys.keysFor(local.issuer, unscoped, signal))).toEqual([key.kid])
  })

  test('issuer keys are fetched again for an unknown key, at most every 30 seconds', async () => {
    const { keys, local, clock } = await ground()
    const seen = await keys.keysFor(local.issuer, unscoped, signal)
    const rotated = await testKey()
    local.keys = [rotated.jwk]
    const scope = { scope: unscoped, signal }
    expect(await keys.refreshed(local.issuer, seen, scope)).toBe(seen)
    clock.advance(30_000)
    const [newer] = await Promise.all([keys.refreshed(local.issuer, seen, scope), keys.refreshed(local.issuer, seen, scope)])
    expect(kids(newer)).toEqual([rotated.kid])
    await Promise.all(Array.from({ length: 20 }, () => keys.refreshed(local.issuer, newer, scope)))
    expect(local.seen).toHaveLength(4)
  })

  test('keys of an issuer that hangs cost one time-out, and then no wait for 30 seconds', async () => {
    const { keys, local, clock } = await ground({ timeoutMs: 150 })
    local.behave = () => true
    const startedMs = performance.now()
    const errors = await Promise.all(Array.from({ length: 10 }, () => failure(keys.keysFor(local.issuer, unscoped, signal))))
    expect(new Set(errors)).toEqual(new Set(['issuer_unavailable']))
    expect(performance.now() - startedMs).toBeLessThan(2000)
    const seen = local.seen.length
    expect(await failure(keys.keysFor(local.issuer, unscoped, signal))).toBe('issuer_unavailable')
    expect(local.seen).toHaveLength(seen)
    clock.advance(30_000)
    local.behave = () => false
    await keys.keysFor(local.issuer, unscoped, signal)
  })

  test('issuer keys are still fetched for the other callers if one caller disconnects', async () => {
    const { key, keys, local } = await ground()
    const gone = new AbortController()
    local.behave = () => {
      gone.abort(new Error('gone'))
      return false
    }
    const stayed = keys.keysFor(local.issuer, unscoped, signal)
    await expect(keys.keysFor(local.issuer, unscoped, gone.signal)).rejects.toThrow('gone')
    expect(kids(await stayed)).toEqual([key.kid])
  })

  test('issuer keys are never fetched from an issuer that no record names', async () => {
    const { keys, local } = await ground({ configured: [] })
    expect(await failure(keys.keysFor(local.issuer, unscoped, signal))).toBe('unknown_issuer')
    expect(await failure(keys.keysFor(local.issuer, { named: [`${local.issuer}/`] }, signal))).toBe('unknown_issuer')
    expect(local.seen).toEqual([])
  })

  test('issuer keys on a private address are fetched only if the configuration allows it', async () => {
    const { keys, local } = await ground({ configured: [] })
    expect(await failure(keys.keysFor(local.issuer, { named: [local.issuer] }, signal))).toBe('issuer_keys')
    expect(local.seen).toEqual([])
  })

  test('issuer keys are fetched from a configured address with its bearer token', async () => {
    const key = await testKey()
    const local = await localIssuer([key])
    let bearer: string | undefined
    local.behave = (request) => {
      bearer = request.headers.authorization
      return false
    }
    const row = { issuer: 'https://kubernetes.default.svc', jwksUri: `${local.issuer}/jwks.json`, token: () => 'abc', allowPrivate: true }
    const keys = createIssuerKeys({ fetch: testFetch(), clock: testClock(), configured: [row] })
    expect(kids(await keys.keysFor(row.issuer, unscoped, signal))).toEqual([key.kid])
    expect([bearer, local.seen]).toEqual(['Bearer abc', ['/jwks.json']])
  })

  test.each([
    ['on the same origin also get', 'own', ['Bearer abc', 'Bearer abc']],
    ['on another origin do not get', 'other', ['Bearer abc', undefined]],
  ])('issuer keys on an address that discovery places %s the bearer token', async (_name, place, expected) => {
    const key = await testKey()
    const bearers: (string | undefined)[] = []
    const [own, other] = [await localIssuer([key]), await localIssuer([key])]
    for (const local of [own, other]) {
      local.behave = (request, response) => {
        bearers.push(request.headers.authorization)
        const jwksUri = `${place === 'own' ? own.issuer : other.issuer}/jwks.json`
        return request.url !== '/jwks.json' && response.end(JSON.stringify({ issuer: own.issuer, jwks_uri: jwksUri })) !== undefined
      }
    }
    const keys = createIssuerKeys({ fetch: testFetch(), clock: testClock(), configured: [{ issuer: own.issuer, token: () => 'abc', allowPrivate: true }] })
    expect(kids(await keys.keysFor(own.issuer, unscoped, signal))).toEqual([key.kid])
    expect(bearers).toEqual(expected)
  })

  test('issuer keys are not fetched if the issuer is inside this process', async () => {
    const key = await testKey()
    const { keys } = await ground({ configured: [], local: new Map([['http://localhost:8080/dev/issuer', () => createKeySet([key.jwk])]]) })
    expect(kids(await keys.keysFor('http://localhost:8080/dev/issuer', unscoped, signal))).toEqual([key.kid])
    expect(keys.isConfigured('http://localhost:8080/dev/issuer')).toBe(true)
  })

  describe('of issuers that tenants name', () => {
    /** Starts several issuers of which only the first is configured. Private addresses are permitted for all. */
    async function crowd(
      count: number,
      { keptOf, ...options }: Partial<IssuerKeysOptions> & { keptOf?: (issuers: readonly string[]) => readonly string[] } = {},
    ) {
      const key = await testKey()
      const [mine, ...others] = await Promise.all(Array.from({ length: count + 1 }, () => localIssuer([key])))
      if (mine === undefined) throw new Error('no issuer')
      const clock = testClock()
      const fetch = testFetch()
      const open: SafeFetch = { ...fetch, json: (request, aborted) => fetch.json({ ...request, allowPrivate: true }, aborted) }
      const keys = createIssuerKeys({
        fetch: open,
        clock,
        configured: [{ issuer: mine.issuer, allowPrivate: true }],
        limit: 2,
        kept: keptOf?.(others.map(({ issuer }) => issuer)) ?? [],
        ...options,
      })
      onTestFinished(() => keys.close())
      const ask = async (issuer: string): Promise<string> => failure(keys.keysFor(issuer, { named: [issuer] }, signal))
      const askFor = async (tenant: string, issuer = ''): Promise<string> => failure(keys.keysFor(issuer, { named: [issuer], tenants: [tenant] }, signal))
      return { keys, clock, mine, others, ask, askFor }
    }

    test("issuer keys of tenants' issuers are bounded in number", async () => {
      const { others, ask } = await crowd(3)
      for (const { issuer } of [...others, ...others.slice(0, 1)]) expect(await ask(issuer)).toBe('no failure')
      expect(others.map((other) => other.seen.length)).toEqual([4, 2, 2])
    })

    test("issuer keys of tenants' issuers evict no keys of a configured issuer, and use none of its attempts", async () => {
      const { keys, mine, others, ask } = await crowd(4)
      const seen = await keys.keysFor(mine.issuer, unscoped, signal)
      for (const { issuer } of others) await ask(issuer)
      expect(await keys.refreshed(mine.issuer, seen, { scope: unscoped, signal })).toBe(seen)
      expect(await ask(mine.issuer)).toBe('no failure')
      expect(mine.seen).toHaveLength(2)
    })

    test("issuer keys of tenants' issuers are fetched a few at a time; a fetch for a configured issuer does not wait for them", async () => {
      const { mine, others, ask } = await crowd(3, { limit: 100, flightLimit: 2, timeoutMs: 60_000 })
      const [one, two, three] = others
      for (const other of others) other.behave = () => true
      const waiting = [one, two].map((other) => ask(other?.issuer ?? ''))
      expect(await ask(three?.issuer ?? '')).toBe('issuer_unavailable')
      expect(three?.seen).toEqual([])
      expect(await ask(mine.issuer)).toBe('no failure')
      expect(waiting).toHaveLength(2)
    })

    test('an organisation with many issuers evicts only its own keys', async () => {
      const { others, askFor } = await crowd(6, { limit: 4 })
      const [mine, ...hostile] = others.map(({ issuer }) => issuer)
      expect(await askFor('mine', mine)).toBe('no failure')
      for (const issuer of [...hostile, ...hostile.slice(0, 1)]) await askFor('hostile', issuer)
      expect(await askFor('mine', mine)).toBe('no failure')
      // One issuer of the hostile organisation itself was evicted.
      expect(others.map((other) => other.seen.length)).toEqual([2, 4, 2, 2, 2, 2])
    })

    test("keys of tenants' issuers are evicted first for the organisation that used its issuer longest ago, if all have equally many", async () => {
      const { others, askFor } = await crowd(3, { limit: 2 })
      const [one, two, three] = others.map(({ issuer }) => issuer)
      await askFor('one', one)
      await askFor('two', two)
      await askFor('one', one)
      await askFor('three', three)
      await askFor('one', one)
      await askFor('two', two)
      expect(others.map((other) => other.seen.length)).toEqual([2, 4, 2])
    })

    test("issuer keys of tenants' issuers stay cached for each organisation that names the issuer", async () => {
      const { others, askFor } = await crowd(4, { limit: 3 })
      const [common, ...hostile] = others.map(({ issuer }) => issuer)
      await askFor('hostile', common)
      await askFor('mine', common)
      for (const issuer of hostile) await askFor('hostile', issuer)
      await askFor('mine', common)
      expect(others[0]?.seen).toHaveLength(2)
    })

    test("keys of tenants' issuers that arrive slowly for one organisation delay no fetch of another", async () => {
      const { others, askFor } = await crowd(4, { limit: 100, flightLimit: 2, timeoutMs: 60_000 })
      const [mine, ...hostile] = others
      for (const other of hostile) other.behave = () => true
      const waiting = hostile.map(({ issuer }) => askFor('hostile', issuer))
      expect(await askFor('mine', mine?.issuer)).toBe('no failure')
      expect(await Promise.race(waiting)).toBe('issuer_unavailable')
      // An organisation that also names the other organisation's issuer takes no turn of it.
      expect(await askFor('hostile', mine?.issuer)).toBe('no failure')
    })

    test("keys of tenants' issuers are cached separately from those of an issuer that signs an operator in", async () => {
      const { others, keys, ask, askFor } = await crowd(4, { limit: 2, keptOf: (issuers) => issuers.slice(0, 1) })
      const [operators, ...hostile] = others.map(({ issuer }) => issuer)
      await ask(operators ?? '')
      for (const issuer of hostile) await askFor('hostile', issuer)
      await ask(operators ?? '')
      expect(others[0]?.seen).toHaveLength(2)
      // No pattern matches this issuer: the configuration names it for operators alone.
      expect(keys.isConfigured(operators ?? '')).toBe(false)
    })

    test("issuer keys of tenants' issuers are served from memory while no new fetch may start", async () => {
      const { clock, others, ask } = await crowd(2, { limit: 100, flightLimit: 1, timeoutMs: 60_000 })
      const [known, slow] = others
      await ask(known?.issuer ?? '')
      clock.advance(hourMs)
      if (slow !== undefined) slow.behave = () => true
      const waiting = ask(slow?.issuer ?? '')
      expect(await ask(known?.issuer ?? '')).toBe('no failure')
      expect(known?.seen).toHaveLength(2)
      expect(waiting).toBeInstanceOf(Promise)
    })
  })

  test('issuer keys are no longer fetched after closing', async () => {
    const { keys, local } = await ground()
    local.behave = () => true
    const waiting = failure(keys.keysFor(local.issuer, unscoped, signal))
    await keys.close()
    expect(await waiting).toBe('issuer_unavailable')
  })

  test.each<[string, (origin: string) => unknown]>([
    ['a discovery document of another issuer', (origin) => ({ issuer: 'https://other.example', jwks_uri: `${origin}/jwks.json` })],
    ['a discovery document whose issuer has an additional slash', (origin) => ({ issuer: `${origin}/`, jwks_uri: `${origin}/jwks.json` })],
    ['a discovery document without keys', (origin) => ({ issuer: origin })],
    ['a discovery document that is not an object', () => null],
    ['a huge document', (origin) => ({ issuer: origin, jwks_uri: `${origin}/jwks.json`, filler: 'x'.repeat(70_000) })],
    ['keys at a URL with an unsupported scheme', (origin) => ({ issuer: origin, jwks_uri: 'file:///etc/passwd' })],
  ])('issuer keys are refused from %s', async (_name, document) => {
    const { keys, local } = await ground()
    local.behave = (request, response) => request.url !== '/jwks.json' && response.end(JSON.stringify(document(local.issuer))) !== undefined
    expect(await failure(keys.keysFor(local.issuer, unscoped, signal))).toBe('issuer_keys')
  })

  test('issuer keys in a JWKS that is huge, redirected or private are refused; keys of unknown kinds are ignored', async () => {
    const { key, keys, local, clock } = await ground()
    const jwks = async (answer: (response: ServerResponse) => unknown): Promise<string> => {
      local.behave = (request, response) => request.url === '/jwks.json' && answer(response) !== undefined
      clock.advance(30_000)
      return await failure(keys.keysFor(local.issuer, unscoped, signal))
    }
    expect(await jwks((response) => response.end(JSON.stringify({ keys: [key.jwk], filler: randomBytes(40_000).toString('hex') })))).toBe('issuer_keys')
    expect(await jwks((response) => response.writeHead(302, { location: '/elsewhere' }).end())).toBe('issuer_keys')
    expect(await jwks((response) => response.end(JSON.stringify({ keys: [{ ...key.jwk, d: 'AA' }] })))).toBe('issuer_keys')
    expect(
      await jwks((response) => response.end(JSON.stringify({ keys: [key.jwk, { kty: 'AKP', alg: 'ML-DSA-44', pub: 'AA' }, { kty: 'RSA', use: 'enc' }] }))),
    ).toBe('no failure')
    expect(kids(await keys.keysFor(local.issuer, unscoped, signal))).toEqual([key.kid])
  })
})
