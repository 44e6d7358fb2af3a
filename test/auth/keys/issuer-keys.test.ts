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
  test('keys are fetched by discovery, once an hour, for any number of concurrent requests', async () => {
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

  test('are served for a day where the issuer is down, and no longer', async () => {
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

  test('are fetched again for an unknown key, at most every 30 seconds', async () => {
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

  test('of an issuer that hangs cost the time-out once, then nothing for 30 seconds', async () => {
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

  test('a caller that goes away does not end the fetch for the others', async () => {
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

  test('keys of an issuer that no record names are never fetched', async () => {
    const { keys, local } = await ground({ configured: [] })
    expect(await failure(keys.keysFor(local.issuer, unscoped, signal))).toBe('unknown_issuer')
    expect(await failure(keys.keysFor(local.issuer, { named: [`${local.issuer}/`] }, signal))).toBe('unknown_issuer')
    expect(local.seen).toEqual([])
  })

  test('of an issuer on a private address are only fetched where configuration allows it', async () => {
    const { keys, local } = await ground({ configured: [] })
    expect(await failure(keys.keysFor(local.issuer, { named: [local.issuer] }, signal))).toBe('issuer_keys')
    expect(local.seen).toEqual([])
  })

  test('come from a configured address with its bearer token', async () => {
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
    ['on the same origin get', 'own', ['Bearer abc', 'Bearer abc']],
    ['elsewhere do not get', 'other', ['Bearer abc', undefined]],
  ])('that discovery places %s the bearer token', async (_name, place, expected) => {
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

  test('of an issuer inside this process are not fetched', async () => {
    const key = await testKey()
    const { keys } = await ground({ configured: [], local: new Map([['http://localhost:8080/dev/issuer', () => createKeySet([key.jwk])]]) })
    expect(kids(await keys.keysFor('http://localhost:8080/dev/issuer', unscoped, signal))).toEqual([key.kid])
    expect(keys.isConfigured('http://localhost:8080/dev/issuer')).toBe(true)
  })

  describe('of issuers that tenants name', () => {
    /** Several issuers, of which only the first is configured; the others' private addresses are let through. */
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

    test('are bounded in number', async () => {
      const { others, ask } = await crowd(3)
      for (const { issuer } of [...others, ...others.slice(0, 1)]) expect(await ask(issuer)).toBe('no failure')
      expect(others.map((other) => other.seen.length)).toEqual([4, 2, 2])
    })

    test('push no configured issuer out, nor its bound on tries', async () => {
      const { keys, mine, others, ask } = await crowd(4)
      const seen = await keys.keysFor(mine.issuer, unscoped, signal)
      for (const { issuer } of others) await ask(issuer)
      expect(await keys.refreshed(mine.issuer, seen, { scope: unscoped, signal })).toBe(seen)
      expect(await ask(mine.issuer)).toBe('no failure')
      expect(mine.seen).toHaveLength(2)
    })

    test('are fetched a few at a time; a configured issuer is fetched even so', async () => {
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
      // One of the hostile organisation's own was pushed out.
      expect(others.map((other) => other.seen.length)).toEqual([2, 4, 2, 2, 2, 2])
    })

    test('of equal organisations the one that used its issuer longest ago gives way', async () => {
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

    test('an issuer of several organisations stays for each of them', async () => {
      const { others, askFor } = await crowd(4, { limit: 3 })
      const [common, ...hostile] = others.map(({ issuer }) => issuer)
      await askFor('hostile', common)
      await askFor('mine', common)
      for (const issuer of hostile) await askFor('hostile', issuer)
      await askFor('mine', common)
      expect(others[0]?.seen).toHaveLength(2)
    })

    test('slow issuers of one organisation keep no other one from a fetch', async () => {
      const { others, askFor } = await crowd(4, { limit: 100, flightLimit: 2, timeoutMs: 60_000 })
      const [mine, ...hostile] = others
      for (const other of hostile) other.behave = () => true
      const waiting = hostile.map(({ issuer }) => askFor('hostile', issuer))
      expect(await askFor('mine', mine?.issuer)).toBe('no failure')
      expect(await Promise.race(waiting)).toBe('issuer_unavailable')
      // An organisation that names the other one's issuer, too, takes no turn of it.
      expect(await askFor('hostile', mine?.issuer)).toBe('no failure')
    })

    test('an issuer that an operator is known by is apart', async () => {
      const { others, keys, ask, askFor } = await crowd(4, { limit: 2, keptOf: (issuers) => issuers.slice(0, 1) })
      const [operators, ...hostile] = others.map(({ issuer }) => issuer)
      await ask(operators ?? '')
      for (const issuer of hostile) await askFor('hostile', issuer)
      await ask(operators ?? '')
      expect(others[0]?.seen).toHaveLength(2)
      // No pattern matches it: configuration names it for its operators alone.
      expect(keys.isConfigured(operators ?? '')).toBe(false)
    })

    test('are served from memory where no fetch can start now', async () => {
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

  test('after closing nothing is fetched any more', async () => {
    const { keys, local } = await ground()
    local.behave = () => true
    const waiting = failure(keys.keysFor(local.issuer, unscoped, signal))
    await keys.close()
    expect(await waiting).toBe('issuer_unavailable')
  })

  test.each<[string, (origin: string) => unknown]>([
    ['a discovery document of another issuer', (origin) => ({ issuer: 'https://other.example', jwks_uri: `${origin}/jwks.json` })],
    ['a discovery document whose issuer has a slash more', (origin) => ({ issuer: `${origin}/`, jwks_uri: `${origin}/jwks.json` })],
    ['a discovery document without keys', (origin) => ({ issuer: origin })],
    ['a discovery document that is no object', () => null],
    ['a huge document', (origin) => ({ issuer: origin, jwks_uri: `${origin}/jwks.json`, filler: 'x'.repeat(70_000) })],
    ['keys elsewhere on an odd scheme', (origin) => ({ issuer: origin, jwks_uri: 'file:///etc/passwd' })],
  ])('%s is refused', async (_name, document) => {
    const { keys, local } = await ground()
    local.behave = (request, response) => request.url !== '/jwks.json' && response.end(JSON.stringify(document(local.issuer))) !== undefined
    expect(await failure(keys.keysFor(local.issuer, unscoped, signal))).toBe('issuer_keys')
  })

  test('a huge, a redirected or a private JWKS is refused; keys of unknown kinds are left out', async () => {
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
