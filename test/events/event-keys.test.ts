import { createLocalJWKSet, decodeJwt, jwtVerify, type JSONWebKeySet, type JWTPayload } from 'jose'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { signEs256 } from '../../src/auth/keys/es256.ts'
import { createKeyring } from '../../src/auth/keys/sealing.ts'
import { createEventKeys, eventKeySchedule, type EventKeys } from '../../src/events/delivery/event-keys.ts'
import { freshStore, random, signal, testClock } from '../auth/parts.ts'
import { makeOrganisation, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'

const kids = (keys: EventKeys): (string | undefined)[] => keys.keySet().keys.map(({ kid }) => kid)

// docs/spec/events.md#event-keys
describe('event keys in the store', () => {
  test('event keys in the store are shared by replicas that start at once, and stored encrypted', async () => {
    const store = await freshStore()
    const options = { store, keyring: await createKeyring({ store, keyEncryptionKey: Buffer.alloc(32, 7), random }, signal), clock: testClock() }
    const replicas = await Promise.all([1, 2, 3].map(() => createEventKeys(options, signal)))
    expect(new Set(replicas.map((keys) => keys.current().kid)).size).toBe(1)
    const secret = replicas[0]?.current().privateKey.export({ format: 'jwk' }).d ?? ''
    const { entries } = await store.range({ prefix: 'meta/event-keys/', limit: 10 }, signal)
    expect(entries).toHaveLength(1)
    const stored = Buffer.from(entries[0]?.value ?? []).toString('latin1')
    expect(stored).not.toContain(secret)
    expect(stored).not.toContain(Buffer.from(secret, 'base64url').toString('base64').slice(0, 30))
  })

  test('event keys in the store are published before they sign, and stay published after their last use', async () => {
    const store = await freshStore()
    const clock = testClock()
    const options = { store, keyring: await createKeyring({ store, keyEncryptionKey: Buffer.alloc(32, 7), random }, signal), clock }
    const keys = await createEventKeys(options, signal)
    const first = keys.current().kid
    clock.advance(eventKeySchedule.rotateEveryMs - eventKeySchedule.publishAheadMs)
    await keys.maintain(signal)
    expect(kids(keys)).toHaveLength(2)
    expect(keys.current().kid).toBe(first)
    clock.advance(eventKeySchedule.publishAheadMs)
    expect(keys.current().kid).not.toBe(first)
    await keys.maintain(signal)
    expect(kids(keys)).toContain(first)
    clock.advance(eventKeySchedule.retainMs)
    await keys.maintain(signal)
    expect(kids(keys)).toEqual([keys.current().kid])
  })
})

describe('a server', () => {
  let server: TestServer
  let organisation: Organisation
  const document = async <T>(path: string): Promise<T> => (await (await fetch(`http://127.0.0.1:${server.config.api.port}${path}`)).json()) as T

  beforeAll(async () => {
    server = await startTestServer()
    organisation = await makeOrganisation(server)
  })
  afterAll(() => server.stop())

  // docs/spec/events.md#event-keys
  test('a server publishes the keys for events and for access tokens in one JWKS, with the algorithms of both', async () => {
    const { keys } = await document<JSONWebKeySet>('/.well-known/jwks.json')
    expect(keys.map(({ kty, alg, use }) => [kty, alg, use])).toEqual([
      ['RSA', 'RS256', 'sig'],
      ['EC', 'ES256', 'sig'],
    ])
    expect(keys.map((key) => key.d)).toEqual([undefined, undefined])
    const discovery = await document<Record<string, unknown>>('/.well-known/openid-configuration')
    expect(discovery['id_token_signing_alg_values_supported']).toEqual(['RS256', 'ES256'])
  })

  /** A token with the claims of an access token and others, signed by the key of events. It is valid by the JWKS. */
  async function signed(claims: JWTPayload): Promise<string> {
    const { header, privateKey } = server.running.engine.eventKeys.current()
    const token = signEs256(header, { ...decodeJwt(organisation.token), ...claims }, privateKey)
    await jwtVerify(token, createLocalJWKSet(await document<JSONWebKeySet>('/.well-known/jwks.json')))
    return token
  }

  const forged = {
    'a token with the claims of an access token': {},
    'the token of an event': { aud: 'customer', sub: 'webhook:0', use: undefined },
    'a token for the registry host': { use: 'registry', aud: 'localhost' },
  } satisfies Record<string, JWTPayload>

  // docs/spec/tokens.md#token-uses
  test.each(Object.entries(forged))('a server refuses everywhere %s signed with the key for events', async (_, claims) => {
    const { registry } = server.config
    const token = await signed('aud' in claims && claims.aud === 'localhost' ? { ...claims, aud: registry.host } : claims)
    for (const client of [server.rest, server.grpc]) {
      expect((await client.call('ListGroups', {}, { token: organisation.token })).code).toBe(0)
      expect((await client.call('ListGroups', {}, { token })).code).toBe(16)
      expect([7, 16]).toContain((await client.call('SecurityTokenService/Exchange', {}, { token })).code)
    }
    const headers = { authorization: `Bearer ${token}` }
    for (const path of ['/v2/', '/token']) expect([401, 403]).toContain((await fetch(`http://127.0.0.1:${registry.port}${path}`, { headers })).status)
    const basic = { authorization: `Basic ${Buffer.from(`_token:${token}`).toString('base64')}` }
    expect([401, 403]).toContain((await fetch(`http://127.0.0.1:${registry.port}/token`, { headers: basic })).status)
  })
})
