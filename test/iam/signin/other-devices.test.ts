import { createDecipheriv, createPublicKey, diffieHellman, generateKeyPairSync, type KeyObject } from 'node:crypto'
import type { JsonObject } from '@bufbuild/protobuf'
import { decodeJwt } from 'jose'
import * as oauth from 'openid-client'
import { afterAll, expect, test } from 'vitest'
import { personUid } from '../../../src/auth/oidc/issuer-name.ts'
import { pendingLoginPrefix } from '../../../src/iam/signin/pending-logins.ts'
import { StoreError } from '../../../src/store/store.ts'
import { failNext, misleading, type Fault } from '../../support/fail-next.ts'
import { PersonWithBrowser, startLoginProvider, type Arrival } from '../../support/parts/sign-in/login-provider.ts'
import { freshName, makeOrganisation, roleUid, type Organisation } from '../../support/test-server.ts'
import { specSuite, uidOf } from '../../conformance/spec/spec-suite.ts'

const idp = await startLoginProvider()
afterAll(() => idp.stop())

const nowhere = 'http://localhost:39999/'

/** A key pair of a headless client, and its code. */
function headlessKey(): { code: string; privateKey: KeyObject } {
  const { publicKey, privateKey } = generateKeyPairSync('x25519')
  return { code: publicKey.export({ format: 'jwk' }).x ?? '', privateKey }
}

/** Decrypts a session like its client. */
function decrypted({ ecdhPublicKey, encryptedIdtoken }: JsonObject, privateKey: KeyObject): string {
  const x = Buffer.from(String(ecdhPublicKey), 'base64').toString()
  const secret = diffieHellman({ privateKey, publicKey: createPublicKey({ key: { kty: 'OKP', crv: 'X25519', x }, format: 'jwk' }) })
  const bytes = Buffer.from(String(encryptedIdtoken), 'base64')
  const decipher = createDecipheriv('aes-256-gcm', secret, bytes.subarray(0, 12))
  decipher.setAuthTag(bytes.subarray(-16))
  return decipher.update(bytes.subarray(12, -16)).toString() + decipher.final().toString()
}

specSuite(
  'the sign-in of other devices',
  (spec) => {
    const redirectUris: string[] = []
    const baseUrl = (): string => spec.server.config.baseUrl

    async function withProvider(): Promise<Organisation & { provider: string }> {
      const org = await makeOrganisation(spec.server)
      const oidc = { issuer: idp.issuer, clientId: 'taproot', clientSecret: 'a secret' }
      const identityProvider = { name: freshName('login'), defaultRole: roleUid('viewer'), oidc }
      const provider = uidOf(await spec.ok('CreateIdentityProvider', { parent: org.group, identityProvider }, { token: org.token }))
      redirectUris.push(`${baseUrl()}/oauth/callback/${provider}`)
      idp.serve([{ id: 'taproot', secret: 'a secret', redirectUris }])
      return { ...org, provider }
    }

    function oauthUrl(query: Readonly<Record<string, string>>): string {
      return `${baseUrl()}/oauth?${new URLSearchParams(query).toString()}`
    }

    async function post(path: string, form: Readonly<Record<string, string>>): Promise<{ status: number; body: JsonObject; headers: Headers }> {
      const answer = await fetch(new URL(path, baseUrl()), { method: 'POST', body: new URLSearchParams(form) })
      return { status: answer.status, body: (await answer.json()) as JsonObject, headers: answer.headers }
    }

    async function beginDevice(): Promise<{ device: string; user: string }> {
      const { body } = await post('/oauth/device_authorization', { client_id: baseUrl(), scope: 'openid' })
      return { device: String(body['device_code']), user: String(body['user_code']) }
    }

    async function poll(device: string, more: Readonly<Record<string, string>> = {}): Promise<{ status: number; body: JsonObject }> {
      return post('/oauth/token', { grant_type: 'urn:ietf:params:oauth:grant-type:device_code', client_id: baseUrl(), device_code: device, ...more })
    }

    const signIn = (name: string, query: Readonly<Record<string, string>>): Promise<Arrival> => new PersonWithBrowser(name).open(oauthUrl(query), nowhere)

    // docs/spec/tokens.md#device-sign-in
    test('an OAuth client finds the endpoints by discovery, shows a code, and gets its own tokens after the person signs in', async () => {
      const org = await withProvider()
      const client = await oauth.discovery(new URL(baseUrl()), baseUrl(), undefined, oauth.None(), { execute: [oauth.allowInsecureRequests] })
      const started = await oauth.initiateDeviceAuthorization(client, { scope: `openid offline_access ${org.group}` })
      expect(started).toMatchObject({ verification_uri: `${baseUrl()}/oauth/device`, expires_in: 600, interval: 5 })
      const name = freshName('person')
      const page = await signIn(name, { user_code: started.user_code, idp_id: org.provider })
      expect([page.status, page.text]).toEqual([200, expect.stringContaining('You are signed in on the other device.')])
      const tokens = await oauth.pollDeviceAuthorizationGrant(client, { ...started, interval: 0.1 }, undefined, { signal: AbortSignal.timeout(20_000) })
      expect(tokens.claims()).toMatchObject({ sub: personUid(idp.issuer, name), aud: baseUrl() })
      expect(decodeJwt(tokens.access_token)).toMatchObject({ scp: [org.group] })
      expect(await spec.ok('GetGroup', { uid: org.group }, { token: tokens.access_token })).toMatchObject({ uid: org.group })
      const next = await oauth.refreshTokenGrant(client, tokens.refresh_token ?? '')
      expect(decodeJwt(next.access_token)).toMatchObject({ sub: personUid(idp.issuer, name), scp: [org.group] })
      expect(await spec.ok('ExchangeRefreshToken', {}, { token: next.refresh_token ?? '' })).toMatchObject({ token: { token: expect.any(String) as string } })
    })

    test('RFC 6749 6, RFC 8707 2 a client refreshes for the resources of its sign-in; asking for more is refused, and its token stays valid', async () => {
      const org = await withProvider()
      const team = uidOf(await spec.ok('CreateGroup', { parent: org.group, group: { name: 'team' } }, { token: org.token }))
      const { body } = await post('/oauth/device_authorization', { client_id: baseUrl(), scope: `offline_access ${team}` })
      const name = freshName('person')
      await signIn(name, { user_code: String(body['user_code']), idp_id: org.provider })
      const { refresh_token } = (await poll(String(body['device_code']))).body
      const refresh = (token: unknown, more: Readonly<Record<string, string>> = {}) =>
        post('/oauth/token', { grant_type: 'refresh_token', refresh_token: String(token), ...more })
      const { host } = spec.server.config.registry
      for (const [more, error] of [
        [{ client_id: host }, 'invalid_target'],
        [{ client_id: 'https://elsewhere.example' }, 'invalid_client'],
        [{ scope: org.group }, 'invalid_scope'],
        [{ scope: `${team} ${org.group}` }, 'invalid_scope'],
      ] as const)
        expect(await refresh(refresh_token, more)).toMatchObject({ status: 400, body: { error, error_description: expect.any(String) as string } })
      const first = await refresh(refresh_token)
      expect(decodeJwt(String(first.body['access_token']))).toMatchObject({ sub: personUid(idp.issuer, name), aud: baseUrl(), scp: [team] })
      const second = await refresh(first.body['refresh_token'], { client_id: baseUrl(), scope: `openid ${team}` })
      expect(decodeJwt(String(second.body['access_token']))).toMatchObject({ aud: baseUrl(), scp: [team] })
      expect(await refresh(first.body['refresh_token'])).toMatchObject({ status: 400, body: { error: 'invalid_grant' } })
    })

    test('RFC 7009 a client signs out: all successors of its refresh token end, and an unknown token is not an error', async () => {
      const org = await withProvider()
      const client = await oauth.discovery(new URL(baseUrl()), baseUrl(), undefined, oauth.None(), { execute: [oauth.allowInsecureRequests] })
      const started = await oauth.initiateDeviceAuthorization(client, { scope: 'offline_access' })
      const name = freshName('person')
      await signIn(name, { user_code: started.user_code, idp_id: org.provider })
      const tokens = await oauth.pollDeviceAuthorizationGrant(client, { ...started, interval: 0.1 }, undefined, { signal: AbortSignal.timeout(20_000) })
      const used = tokens.refresh_token ?? ''
      const { refresh_token: last = '' } = await oauth.refreshTokenGrant(client, used)
      const revoke = async (form: Readonly<Record<string, string>>): Promise<[number, string]> => {
        const answer = await fetch(new URL('/oauth/revoke', baseUrl()), { method: 'POST', body: new URLSearchParams(form) })
        const text = await answer.text()
        return [answer.status, answer.ok ? text : String((JSON.parse(text) as JsonObject)['error'])]
      }
      expect(await revoke({ token: tokens.access_token, token_type_hint: 'refresh_token' })).toEqual([400, 'unsupported_token_type'])
      expect(await revoke({})).toEqual([400, 'invalid_request'])
      for (const token of ['no-token-at-all', Buffer.from('{"exp":1}').toString('base64'), `${last.slice(0, -8)}AAAAAAA=`])
        expect(await revoke({ token })).toEqual([200, ''])
      expect(await spec.ok('ExchangeRefreshToken', {}, { token: last })).toBeDefined()
      // The kind of token in the hint does not matter.
      await oauth.tokenRevocation(client, used, { token_type_hint: 'access_token' })
      expect(await revoke({ token: last })).toEqual([200, ''])
      expect((await spec.call('ExchangeRefreshToken', {}, { token: last })).code).toBe(16)
      const lines = spec.server.logs.filter(({ fields }) => fields['method'] === 'login/revoke' && fields['identity'] === personUid(idp.issuer, name))
      expect(lines.map(({ fields }) => [fields['audit'], fields['outcome']])).toEqual([[true, 'done']])
    })

    test('RFC 8628 5.4 a person who opens the link must confirm on a page with the code, which no other page can submit', async () => {
      const org = await withProvider()
      const { user, device } = await beginDevice()
      const page = await fetch(oauthUrl({ user_code: user, idp_id: org.provider }), { redirect: 'manual' })
      const text = await page.text()
      expect([page.status, text]).toEqual([200, expect.stringContaining(`<strong>${user}</strong>`)])
      expect(page.headers.get('content-security-policy')).toContain("frame-ancestors 'none'")
      expect(page.headers.get('set-cookie')).toMatch(/^taproot_login_[0-9a-f]{16}=[0-9a-f]{64}; Path=\/; Max-Age=600; HttpOnly; SameSite=Strict$/)
      const request = /name="request" value="([^"]+)"/.exec(text)?.[1] ?? ''
      // A form of another page has no cookie, or that of another sign-in.
      for (const cookie of ['', 'taproot_login_0000000000000000=0', (page.headers.get('set-cookie') ?? '').replace(/=[^;]*.*/, `=${'0'.repeat(64)}`)]) {
        const body = new URLSearchParams({ request, answer: 'yes' })
        const answer = await fetch(`${baseUrl()}/oauth/confirm`, { method: 'POST', body, headers: { cookie }, redirect: 'manual' })
        expect([answer.status, await answer.text()]).toEqual([400, expect.stringContaining('was started in another browser')])
      }
      expect((await poll(device)).body).toMatchObject({ error: 'authorization_pending', code: 9, details: [{ reason: 'AUTHORIZATION_PENDING' }] })
    })

    test('RFC 8628 3.5 a device that polls too often is slowed down; a refused one is informed, and its code expires', async () => {
      const org = await withProvider()
      const { user, device } = await beginDevice()
      // Some clients poll twice each time, in two formats.
      for (const _time of [1, 2]) expect((await poll(device)).body['error']).toBe('authorization_pending')
      expect(await poll(device)).toMatchObject({ status: 400, body: { error: 'slow_down', code: 8, details: [{}, { retryDelay: '5.000s' }] } })
      const page = await fetch(oauthUrl({ user_code: user.toLowerCase().replace('-', ' '), idp_id: org.provider }))
      const request = /name="request" value="([^"]+)"/.exec(await page.text())?.[1] ?? ''
      const cookie = (page.headers.get('set-cookie') ?? '').split(';')[0] ?? ''
      const refusing = { method: 'POST', body: new URLSearchParams({ request, answer: 'no' }), headers: { cookie } }
      expect(await (await fetch(`${baseUrl()}/oauth/confirm`, refusing)).text()).toContain('No one was signed in')
      for (const _time of [1, 2]) expect(await poll(device)).toMatchObject({ status: 400, body: { error: 'access_denied', code: 7 } })
      expect(await (await fetch(`${baseUrl()}/oauth/confirm`, refusing)).text()).toContain('was used before, or it expired')
      expect(await signIn(freshName('person'), { user_code: user, idp_id: org.provider })).toMatchObject({ status: 404 })
    })

    test('a code expires after ten minutes, for the device and for the person', async () => {
      const org = await withProvider()
      const { user, device } = await beginDevice()
      spec.clock.advance(10 * 60_000)
      expect((await poll(device)).body['error']).toBe('expired_token')
      expect(await signIn(freshName('person'), { user_code: user, idp_id: org.provider })).toMatchObject({ status: 404 })
    })

    test('a request by another client, or with an unknown code, gets nothing', async () => {
      const { device } = await beginDevice()
      expect((await poll(device, { client_id: 'https://elsewhere.example' })).body['error']).toBe('expired_token')
      expect((await poll('0'.repeat(64))).body['error']).toBe('expired_token')
      expect((await poll('%00')).body['error']).toBe('invalid_grant')
      expect((await poll(device, { grant_type: 'authorization_code' })).body['error']).toBe('unsupported_grant_type')
      expect((await poll(device)).body['error']).toBe('authorization_pending')
    })

    test.for<[string, Record<string, string>, string]>([
      ['no client id', {}, 'invalid_client'],
      ['the audience of another platform', { client_id: 'https://elsewhere.example' }, 'invalid_client'],
      ['an audience of another platform', { client_id: 'ours', audience: 'https://elsewhere.example' }, 'invalid_target'],
      ['a scope that is neither of OpenID Connect nor a uid', { client_id: 'ours', scope: 'everything' }, 'invalid_scope'],
    ])('a device that asks with %s gets an error in the formats of OAuth and of the API', async ([, form, error]) => {
      const asked = form['client_id'] === 'ours' ? { ...form, client_id: baseUrl() } : form
      const { status, body } = await post('/oauth/device_authorization', asked)
      expect([status, body]).toEqual([
        400,
        expect.objectContaining({ error, error_description: body['message'], code: 3, details: expect.any(Array) as unknown[] }),
      ])
    })

    // docs/spec/tokens.md#device-sign-in
    test('a device gets a token for the registry host too, as the page shows, and refreshes for each audience', async () => {
      const org = await withProvider()
      const discovery = (await (await fetch(`${baseUrl()}/.well-known/openid-configuration`)).json()) as Record<string, string>
      const { registry_host: host = '' } = discovery
      expect(host).toBe(spec.server.config.registry.host)
      const { body } = await post('/oauth/device_authorization', { client_id: baseUrl(), audience: `${host}, ${baseUrl()}`, scope: 'offline_access' })
      const link = { user_code: String(body['user_code']), idp_id: org.provider }
      expect(await (await fetch(oauthUrl(link))).text()).toContain(`<dd>${baseUrl()}, ${host}</dd>`)
      await signIn(freshName('person'), link)
      const { access_token, refresh_token } = (await poll(String(body['device_code']))).body
      expect(decodeJwt(String(access_token))).toMatchObject({ aud: [baseUrl(), host] })
      const next = await post('/oauth/token', { grant_type: 'refresh_token', refresh_token: String(refresh_token), client_id: host })
      expect(decodeJwt(String(next.body['access_token']))).toMatchObject({ aud: host })
    })

    test('the page shows in advance what a device gets: what the device requested, whatever the link contains', async () => {
      const org = await withProvider()
      const { body } = await post('/oauth/device_authorization', { client_id: baseUrl(), scope: `offline_access ${org.group}` })
      const link = {
        user_code: String(body['user_code']),
        idp_id: org.provider,
        identity: org.owner,
        invite: 'an-invite',
        audience: 'https://elsewhere.example',
      }
      const text = await (await fetch(oauthUrl(link))).text()
      for (const fact of [`<dd>${baseUrl()}</dd>`, `<dd>${org.group}</dd>`, '<dd>until signed out, with a refresh token</dd>', '<dd>127.0.0.1</dd>'])
        expect(text).toContain(fact)
      for (const linked of [org.owner, 'an-invite', 'elsewhere']) expect(text).not.toContain(linked)
      const name = freshName('person')
      expect((await signIn(name, link)).status).toBe(200)
      expect(decodeJwt(String((await poll(String(body['device_code']))).body['access_token']))).toMatchObject({ sub: personUid(idp.issuer, name) })
    })

    test('a device gets its tokens once, for any number of concurrent polls; with two browsers, one signs it in', async () => {
      const org = await withProvider()
      const { user, device } = await beginDevice()
      const pages = await Promise.all(['one', 'other'].map((name) => signIn(freshName(name), { user_code: user, idp_id: org.provider })))
      expect(pages.map(({ status }) => status).filter((status) => status === 200)).toHaveLength(1)
      const polls = await Promise.all(Array.from({ length: 5 }, () => poll(device)))
      expect(polls.filter(({ status }) => status === 200)).toHaveLength(1)
      expect(polls.filter(({ body }) => body['error'] === 'expired_token')).toHaveLength(4)
      expect((await poll(device)).body['error']).toBe('expired_token')
    })

    test.each(misleading)('with a transaction %s at each step, a device gets its tokens once', async (_what, fault) => {
      const org = await withProvider()
      const name = freshName('person')
      failNext(spec.server, fault, pendingLoginPrefix)
      const { user, device } = await beginDevice()
      failNext(spec.server, fault, pendingLoginPrefix)
      expect(await signIn(name, { user_code: user, idp_id: org.provider })).toMatchObject({ status: 200 })
      failNext(spec.server, fault, pendingLoginPrefix)
      expect(decodeJwt(String((await poll(device)).body['access_token']))).toMatchObject({ sub: personUid(idp.issuer, name) })
      expect((await poll(device)).body['error']).toBe('expired_token')
      expect(await signIn(name, { user_code: user, idp_id: org.provider })).toMatchObject({ status: 404 })
    })

    test('the person sees that the device is signed in, even if the device takes its tokens before the answer arrives', async () => {
      const org = await withProvider()
      const { user, device } = await beginDevice()
      let taken: JsonObject = {}
      const lost: Fault = async (real, call) => {
        await real.transact(...call)
        taken = (await poll(device)).body
        throw new StoreError('indeterminate', 'no answer')
      }
      failNext(spec.server, lost, pendingLoginPrefix)
      expect(await signIn(freshName('person'), { user_code: user, idp_id: org.provider })).toMatchObject({ status: 200 })
      expect(taken['access_token']).toBeDefined()
    })

    test.each(misleading)('with a transaction %s, a headless client finds its token', async (_what, fault) => {
      const org = await withProvider()
      const { code, privateKey } = headlessKey()
      const name = freshName('person')
      failNext(spec.server, fault, pendingLoginPrefix)
      expect(await signIn(name, { headless_code: code, idp_id: org.provider })).toMatchObject({ status: 200 })
      const session = await spec.ok('GetHeadlessSession', { code }, {})
      expect(decodeJwt(decrypted(session, privateKey))).toMatchObject({ sub: personUid(idp.issuer, name) })
    })

    test("one address can't fill the store with sign-ins, and is asked to retry later", async () => {
      const begun = () => post('/oauth/device_authorization', { client_id: baseUrl() })
      spec.clock.advance(60_000)
      const answers = await spec.clock.hold(() => Promise.all(Array.from({ length: 40 }, begun)))
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(30)
      expect(answers.find(({ status }) => status === 429)).toMatchObject({ body: { error: 'slow_down', code: 8 } })
      expect(answers.find(({ status }) => status === 429)?.headers.get('retry-after')).toBe('2')
      spec.clock.advance(60_000)
    })

    test('the page for codes is filled with the code of its link, and shows nothing else of the link', async () => {
      const { user } = await beginDevice()
      const text = async (query: string): Promise<string> => (await fetch(`${baseUrl()}/oauth/device${query}`)).text()
      expect(await text(`?user_code=${user}`)).toContain(`value="${user}"`)
      expect(await text('?user_code=%22%3E%3Cscript%3E')).toContain('name="user_code" value required')
      expect(await text('')).toContain('name="idp_id"')
    })

    // docs/spec/tokens.md#device-sign-in
    test('a headless client gets a token that only this client can decrypt', async () => {
      const org = await withProvider()
      const { code, privateKey } = headlessKey()
      expect((await spec.call('GetHeadlessSession', { code }, {})).code).toBe(5)
      const name = freshName('person')
      const page = await signIn(name, { headless_code: code, idp_id: org.provider })
      expect([page.status, page.text]).toEqual([200, expect.stringContaining('You are signed in on the other device.')])
      const session = await spec.ok('GetHeadlessSession', { code }, {})
      expect(decodeJwt(decrypted(session, privateKey))).toMatchObject({ sub: personUid(idp.issuer, name), aud: baseUrl() })
      expect(() => decrypted(session, headlessKey().privateKey)).toThrow()
      // Another person with the link can't replace the sign-in by their own.
      expect(await signIn(freshName('other'), { headless_code: code, idp_id: org.provider })).toMatchObject({ status: 400 })
      expect(await spec.ok('GetHeadlessSession', { code }, {})).toEqual(session)
      spec.clock.advance(10 * 60_000)
      expect((await spec.call('GetHeadlessSession', { code }, {})).code).toBe(5)
    })

    test.for([
      ['no key', { headless_code: 'AAAA' }, 'headless_code'],
      ['a key of which no shared secret can be derived', { headless_code: Buffer.alloc(32).toString('base64url') }, 'headless_code'],
      ['two kinds of return', { headless_code: headlessKey().code, redirect: nowhere }, 'headless_code'],
      ['no code of a device', { user_code: 'AEIOU' }, 'user_code'],
    ] as const)('a link with %s is refused on a page, without a redirect', async ([, query, field]) => {
      const org = await withProvider()
      const page = await signIn(freshName('person'), { ...query, idp_id: org.provider })
      expect([page.status, page.text]).toEqual([400, expect.stringContaining(`Invalid argument: ${field}: `)])
    })

    test('a refusal by the provider is shown on the page, and the device keeps waiting', async () => {
      const org = await withProvider()
      const { user, device } = await beginDevice()
      await spec.ok(
        'UpdateIdentityProvider',
        { identityProvider: { uid: org.provider, oidc: { clientSecret: 'a wrong one' } }, updateMask: 'oidc.client_secret' },
        { token: org.token },
      )
      const page = await signIn(freshName('person'), { user_code: user, idp_id: org.provider })
      expect([page.status, page.text]).toEqual([403, expect.stringContaining('You are not signed in: the identity provider refused')])
      expect((await poll(device)).body['error']).toBe('authorization_pending')
    })

    // docs/audit.md#what-leaves-an-event
    test('a refused device code and a refused refresh token leave a denial each, and a code that still waits leaves none', async () => {
      const eventsOf = (name: string): object[] => spec.server.logs.map(({ fields }) => fields).filter(({ method }) => method === name)
      const before = [eventsOf('login/device-token').length, eventsOf('login/refresh-token').length]
      const { device } = await beginDevice()
      expect((await poll(device)).body['error']).toBe('authorization_pending')
      expect(eventsOf('login/device-token')).toHaveLength(before[0] ?? 0)
      const code = `${'e'.repeat(63)}1`
      expect((await poll(code)).body['error']).toBe('expired_token')
      expect(eventsOf('login/device-token').slice(before[0])).toMatchObject([
        { outcome: 'denied', code: 9, reason: 'LOGIN_EXPIRED', remoteAddress: '127.0.0.1' },
      ])
      const text = `planted-${freshName('refresh')}`
      expect((await post('/oauth/token', { grant_type: 'refresh_token', refresh_token: text })).status).toBe(400)
      expect(eventsOf('login/refresh-token').slice(before[1])).toMatchObject([{ outcome: 'denied', code: 16, remoteAddress: '127.0.0.1' }])
      for (const secret of [device, code, text]) expect(JSON.stringify(spec.server.logs)).not.toContain(secret)
    })

    test('the audit log names the person who signed in a device, and no log contains a token or code', async () => {
      const org = await withProvider()
      const { user, device } = await beginDevice()
      const name = freshName('person')
      await signIn(name, { user_code: user, idp_id: org.provider })
      const { body } = await poll(device)
      const lines = spec.server.logs.map(({ fields }) => fields).filter(({ method }) => method === 'login/device')
      expect(lines.at(-1)).toMatchObject({ outcome: 'done', identity: personUid(idp.issuer, name), subject: org.provider })
      const taken = spec.server.logs.map(({ fields }) => fields).filter(({ method }) => method === 'login/device-token')
      expect(taken.at(-1)).toMatchObject({ outcome: 'done', identity: personUid(idp.issuer, name), remoteAddress: '127.0.0.1' })
      const logged = JSON.stringify(spec.server.logs)
      for (const secret of [device, user, user.replace('-', ''), String(body['access_token'])]) expect(logged).not.toContain(secret)
    })
  },
  { transports: ['rest'], env: { TAPROOT_ISSUERS: JSON.stringify([{ issuer: idp.issuer, allowPrivate: true }]) } },
)
