import { gzipSync } from 'node:zlib'
import { expect, test } from 'vitest'
import { reinstate, suspend } from '../../support/suspend.ts'
import { freshName, ok } from '../../support/test-server.ts'
import { specSuite, type Spec } from '../../conformance/spec/spec-suite.ts'
import { askScim, expectScimError, makeDirectory, patchOf } from './directory.ts'

/** Returns an answer without the parts that name its request. */
function shown({ status, headers, text }: { status: number; headers: Headers; text: string }): unknown {
  return [status, text, [...headers].filter(([name]) => !['date', 'x-request-id'].includes(name))]
}

function auditLines(spec: Spec): Readonly<Record<string, unknown>>[] {
  return spec.server.logs.filter(({ message }) => message === 'audit').map(({ fields }) => fields)
}

specSuite(
  'SCIM security',
  (spec) => {
    // docs/spec/scim.md#scim-server
    test('the SCIM endpoint answers the same 401 to an invalid token, SCIM that is off, a foreign or missing provider, and no token', async () => {
      const [mine, theirs, off, revoked] = [
        await makeDirectory(spec.server),
        await makeDirectory(spec.server),
        await makeDirectory(spec.server),
        await makeDirectory(spec.server),
      ]
      const id = await mine.add()
      await off.setEnabled(false)
      await revoked.verb('RevokeScimToken')
      const gone = await makeDirectory(spec.server)
      ok(await spec.server.rest.call('DeleteIdentityProvider', { uid: gone.provider }, { token: gone.token }))
      const base = `${spec.server.config.baseUrl}/scim/v2`
      const never = `cgscim_${'0'.repeat(64)}`
      const cases: readonly (readonly [what: string, url: string, token: string])[] = [
        ['a foreign provider', theirs.endpoint, mine.scimToken],
        ['another one of the organisation', `${base}/${mine.group}/${'0'.repeat(16)}`, mine.scimToken],
        ['the organisation', `${base}/${mine.group}`, mine.scimToken],
        ['a missing organisation', `${base}/${'f'.repeat(40)}/${'0'.repeat(16)}`, mine.scimToken],
        ['no uid', `${base}/acme/idp`, mine.scimToken],
        ['a wrong token', mine.endpoint, never],
        ['half a token', mine.endpoint, mine.scimToken.slice(0, -1)],
        ['a token in capitals', mine.endpoint, mine.scimToken.toUpperCase()],
        ['no token', mine.endpoint, ''],
        ['SCIM that is off', off.endpoint, off.scimToken],
        ['SCIM that is off, a wrong token', off.endpoint, never],
        ['a revoked token', revoked.endpoint, revoked.scimToken],
        ['a deleted provider', gone.endpoint, gone.scimToken],
      ]
      const expected = shown(await askScim(`${mine.endpoint}/Users`, 'GET', { token: never }))
      for (const [what, url, token] of cases) {
        for (const [method, path] of [
          ['GET', 'Users'],
          ['GET', `Users/${id}`],
          ['GET', 'ServiceProviderConfig'],
          ['GET', 'nosuch'],
          ['PUT', `Users/${id}`],
          ['DELETE', `Users/${id}`],
          ['POST', 'Users'],
        ] as const) {
          expect([what, method, path, shown(await askScim(`${url}/${path}`, method, { token }))]).toEqual([what, method, path, expected])
        }
      }
      const reply = await askScim(`${mine.endpoint}/Users`, 'GET', { token: never })
      expectScimError(reply, 401)
      expect(reply.headers.get('www-authenticate')).toBe('Bearer')
      expect((await mine.ask('GET', `Users/${id}`)).status).toBe(200)
    })

    // docs/spec/scim.md#scim-server
    test('the SCIM endpoint accepts the token as a bearer only: not as a Basic password, in the query, bare, or followed by more', async () => {
      const { endpoint, scimToken, provider } = await makeDirectory(spec.server)
      const basic = (user: string): string => `Basic ${Buffer.from(`${user}:${scimToken}`).toString('base64')}`
      for (const authorization of [
        scimToken,
        basic('_token'),
        basic(provider),
        `Bearer ${scimToken} x`,
        `Bearer ${scimToken},${scimToken}`,
        `Token ${scimToken}`,
      ]) {
        expect((await askScim(`${endpoint}/Users`, 'GET', { token: '', headers: { authorization } })).status).toBe(401)
      }
      expect((await askScim(`${endpoint}/Users?access_token=${scimToken}`, 'GET', { token: '' })).status).toBe(401)
      expect((await askScim(`${endpoint}/Users`, 'GET', { token: '', headers: { authorization: `bearer  ${scimToken}` } })).status).toBe(200)
    })

    // docs/spec/tokens.md#token-uses
    test('the SCIM endpoint refuses access tokens, and SCIM tokens are refused by the API, the exchange and the registry host', async () => {
      const { endpoint, scimToken, token, group, provider } = await makeDirectory(spec.server)
      for (const bearer of [token, await spec.server.operatorToken()]) {
        expectScimError(await askScim(`${endpoint}/Users`, 'GET', { token: bearer }), 401)
      }
      for (const [rpc, request] of [
        ['ListGroups', {}],
        ['GetIdentityProvider', { uid: provider }],
        ['Exchange', {}],
        ['ExchangeRefreshToken', {}],
        ['Register', {}],
      ] as const) {
        const reply = await spec.call(rpc, request, { token: scimToken })
        expect([rpc, [7, 16].includes(reply.code)]).toEqual([rpc, true])
      }
      const { registry } = spec.server.config
      const answer = await fetch(`http://127.0.0.1:${registry.port}/token?scope=repository:${group}/x:pull`, {
        headers: { authorization: `Bearer ${scimToken}` },
      })
      expect([401, 403]).toContain(answer.status)
    })

    // docs/spec/scim.md#token-rotation
    test('the SCIM endpoint refuses a token from the moment of its rotation or revocation', async () => {
      const directory = await makeDirectory(spec.server)
      const { scim } = ok(await spec.server.rest.call('GetIdentityProvider', { uid: directory.provider }, { token: directory.token }))
      const next = await directory.verb('RegenerateScimToken', { etag: (scim as { etag: string }).etag, overlap: '0s' })
      expect((await directory.ask('GET', 'Users')).status).toBe(401)
      expect((await directory.ask('GET', 'Users', { token: String(next['token']) })).status).toBe(200)
      await directory.verb('RevokeScimToken')
      expect((await directory.ask('GET', 'Users', { token: String(next['token']) })).status).toBe(401)
    })

    // docs/spec/iam.md#suspended-organisations
    test('the SCIM endpoint is closed for a suspended organisation, and only its own directory learns of the suspension', async () => {
      const directory = await makeDirectory(spec.server)
      const id = await directory.add()
      const before = await directory.expecting(200, 'GET', `Users/${id}`)
      const requests = [
        ['GET', 'Users', {}],
        ['GET', `Users/${id}`, {}],
        ['POST', 'Users/.search', { body: {} }],
        ['GET', 'ServiceProviderConfig', {}],
        ['POST', 'Users', { body: { userName: freshName('user') } }],
        ['PUT', `Users/${id}`, { body: { userName: 'changed' } }],
        ['PATCH', `Users/${id}`, patchOf({ op: 'replace', path: 'active', value: false })],
        ['DELETE', `Users/${id}`, {}],
      ] as const
      await suspend(spec.server, directory.group)
      const from = auditLines(spec).length
      for (const [method, path, more] of requests) {
        const reply = await directory.ask(method, path, more)
        expectScimError(reply, 403)
        expect(reply.body['detail']).toContain('suspended')
      }
      const lines = auditLines(spec).slice(from)
      expect(lines.map(({ method, outcome, identity, subject, code, reason }) => [method, outcome, identity, subject, code, reason])).toEqual(
        requests.map(() => ['scim/Enter', 'denied', directory.provider, directory.provider, 7, 'ORGANIZATION_SUSPENDED']),
      )
      const never = `cgscim_${'0'.repeat(64)}`
      for (const [method, path, more] of requests) expectScimError(await directory.ask(method, path, { ...more, token: never }), 401)
      await reinstate(spec.server, directory.group)
      expect(await directory.expecting(200, 'GET', `Users/${id}`)).toEqual(before)
      expect(await directory.expecting(200, 'GET', 'Users')).toMatchObject({ totalResults: 1 })
    })

    // docs/spec/scim.md#scim-users
    test('the SCIM endpoint refuses a body over 256 KiB with 413 and changes nothing, however it is sent', async () => {
      const { ask, add, expecting, endpoint, scimToken } = await makeDirectory(spec.server)
      const id = await add()
      const before = await expecting(200, 'GET', `Users/${id}`)
      const large = JSON.stringify({ userName: 'large', title: 'x'.repeat(256 * 1024) })
      expectScimError(await ask('POST', 'Users', { text: large }), 413)
      expectScimError(await ask('PUT', `Users/${id}`, { text: large }), 413)
      expectScimError(await ask('PATCH', `Users/${id}`, { text: large }), 413)
      expectScimError(await ask('POST', 'Users/.search', { text: large }), 413)
      const headers = { authorization: `Bearer ${scimToken}`, 'content-type': 'application/scim+json', 'content-encoding': 'gzip' }
      expect((await fetch(`${endpoint}/Users`, { method: 'POST', headers, body: gzipSync(large) })).status).toBe(413)
      expect(await expecting(200, 'GET', 'Users?filter=userName%20eq%20%22large%22')).toMatchObject({ totalResults: 0 })
      expect(await expecting(200, 'GET', `Users/${id}`)).toEqual(before)
    })

    test('the SCIM endpoint writes an audit line for each change and each refusal, never with a token', async () => {
      const directory = await makeDirectory(spec.server)
      const from = auditLines(spec).length
      const id = await directory.add({ userName: 'audited' })
      const user = `${directory.provider}/${id}`
      await directory.expecting(200, 'PATCH', `Users/${id}`, patchOf({ op: 'add', path: 'title', value: 'T' }))
      await directory.ask('POST', 'Users', { body: { userName: 'audited' } })
      await directory.ask('DELETE', `Users/${id}`)
      await directory.ask('GET', 'Users', { token: `cgscim_${'0'.repeat(64)}` })
      const lines = auditLines(spec).slice(from)
      expect(lines.map(({ method, outcome, subject, identity, code }) => [method, outcome, subject, identity, code])).toEqual([
        ['scim/CreateUser', 'done', user, directory.provider, undefined],
        ['scim/PatchUser', 'done', user, directory.provider, undefined],
        ['scim/CreateUser', 'failed', directory.provider, directory.provider, 6],
        ['scim/DeleteUser', 'done', user, directory.provider, undefined],
        ['scim/Enter', 'denied', directory.provider, undefined, 16],
      ])
      expect(lines.every(({ remoteAddress, requestId }) => typeof remoteAddress === 'string' && typeof requestId === 'string')).toBe(true)
      expect(JSON.stringify(spec.server.logs)).not.toContain(directory.scimToken.slice(7))
    })

    test('the SCIM endpoint hides the users of one provider everywhere else: from ids, lists and filters of other providers, and from the API', async () => {
      const [mine, theirs] = [await makeDirectory(spec.server), await makeDirectory(spec.server)]
      const name = freshName('secret')
      const id = await mine.add({ userName: name, externalId: name })
      for (const [method, more] of [
        ['GET', {}],
        ['PUT', { body: { userName: 'x' } }],
        ['PATCH', patchOf({ op: 'add', path: 'title', value: 'x' })],
        ['DELETE', {}],
      ] as const) {
        const [foreign, missing] = [await theirs.ask(method, `Users/${id}`, more), await theirs.ask(method, `Users/${'0'.repeat(16)}`, more)]
        expect(shown(foreign)).toEqual(shown(missing))
        expectScimError(foreign, 404)
      }
      for (const filter of [`userName eq "${name}"`, `externalId eq "${name}"`, `id eq "${id}"`, `userName co "${name}"`]) {
        expect(await theirs.expecting(200, 'GET', `Users?filter=${encodeURIComponent(filter)}`)).toMatchObject({ totalResults: 0 })
      }
      const operator = await spec.server.operatorToken()
      expect(JSON.stringify((await spec.call('ListIdentities', {}, { token: operator })).body)).not.toContain(name)
      const explained = { identity: mine.owner, capability: 'groups.list', resource: `${mine.provider}/${id}` }
      expect((await spec.call('Explain', explained, { token: operator })).code).toBe(5)
    })
  },
  { transports: ['rest'] },
)

specSuite(
  'SCIM limits',
  (spec) => {
    // docs/spec/scim.md#scim-write-limits
    test('SCIM limits apply to writes by organisation and address: 429 with Retry-After; reads and other organisations are not affected', async () => {
      const [mine, theirs] = [await makeDirectory(spec.server), await makeDirectory(spec.server)]
      const from = auditLines(spec).length
      const refused = await spec.clock.hold(async () => {
        for (let at = 0; at < 3; at++) await mine.add()
        return mine.ask('POST', 'Users', { body: { userName: 'one too many' } })
      })
      expectScimError(refused, 429)
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
      const reported = auditLines(spec).slice(from).at(-1)
      expect([reported?.['method'], reported?.['outcome'], reported?.['code'], reported?.['identity']]).toEqual(['scim/CreateUser', 'failed', 8, mine.provider])
      expect(await mine.expecting(200, 'GET', 'Users?filter=userName%20sw%20%22one%22')).toMatchObject({ totalResults: 0 })
      await theirs.add()
      spec.clock.advance(60_000)
      await mine.add()
    })

    test('SCIM limits apply to refused tokens by address', async () => {
      const { endpoint } = await makeDirectory(spec.server)
      const statuses: number[] = []
      await spec.clock.hold(async () => {
        for (let at = 0; at < 6; at++) statuses.push((await askScim(`${endpoint}/Users`, 'GET', { token: `cgscim_${'0'.repeat(64)}` })).status)
      })
      expect(new Set(statuses)).toEqual(new Set([401, 429]))
    })
  },
  {
    transports: ['rest'],
    env: {
      TAPROOT_RATE_LIMIT_ENABLED: 'true',
      TAPROOT_RATE_LIMIT_REQUESTS_PER_SECOND: '1000000',
      TAPROOT_RATE_LIMIT_BURST: '1000000',
      TAPROOT_RATE_LIMIT_SCIM_REQUESTS_PER_SECOND: '1',
      TAPROOT_RATE_LIMIT_SCIM_BURST: '3',
      TAPROOT_RATE_LIMIT_ADDRESS_REQUESTS_PER_SECOND: '1',
      TAPROOT_RATE_LIMIT_ADDRESS_BURST: '3',
    },
  },
)
