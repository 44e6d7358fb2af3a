import { describe, expect, test } from 'vitest'
import { freshName, ok } from '../../support/test-server.ts'
import { crane } from '../../support/parts/crane.ts'
import { registrySuite } from './registry-suite.ts'
import { basic, bearer, partOf, tampered } from './registry-world.ts'

registrySuite('registry tokens', (suite) => {
  const pull = (path: string): string => `repository:${path}:pull`
  const accessOf = (token: string): unknown => suite.world.claimsOf(token).access

  describe('a request without a token', () => {
    test('a request without a token is 401 with a challenge that names realm, service and scope', async () => {
      const answer = await suite.world.list(suite.mine.path)
      expect(answer).toMatchObject({ status: 401, codes: ['UNAUTHORIZED'] })
      expect(answer.headers['www-authenticate']).toBe(
        `Bearer realm="http://${suite.world.host}/token",service="${suite.world.host}",scope="repository:${suite.mine.path}:pull"`,
      )
    })

    test('a request without a token or with a wrong password is 401, with an explanation of user and password', async () => {
      for (const authorization of [basic('_token', 'secret'), basic(suite.mine.owner, 'secret'), basic('admin', 'secret')]) {
        for (const path of ['/token', '/v2/']) {
          const answer = await suite.world.ask({ path, authorization })
          expect(answer).toMatchObject({ status: 401, codes: ['UNAUTHORIZED'] })
          expect(answer.body).toContain('a token of this platform or a known issuer as password')
        }
      }
    })

    test('a request to /v2/ without a token is 401 with a challenge without a scope', async () => {
      const answer = await suite.world.ask({ path: '/v2/' })
      expect(answer.status).toBe(401)
      expect(answer.headers['www-authenticate']).toBe(`Bearer realm="http://${suite.world.host}/token",service="${suite.world.host}"`)
    })

    test('a request without a token gets the same answer for existing and missing repositories', async () => {
      const bodies = await Promise.all([suite.mine.path, `${suite.mine.name}/none`, 'unknown/none', 'unknown/at/all'].map((path) => suite.world.list(path)))
      expect(new Set(bodies.map(({ status, body }) => `${status} ${body}`)).size).toBe(1)
    })

    test('crane follows the challenge by itself, without a credential in the public organisation', async () => {
      const login = { env: { DOCKER_CONFIG: '/nonexistent' } }
      expect(await crane(['ls', `${suite.world.host}/${suite.free.path}`], login)).toMatchObject({ code: 0 })
      expect((await crane(['ls', `${suite.world.host}/${suite.mine.path}`], login)).stderr).toContain('UNAUTHORIZED')
    })
  })

  describe('the answer of /token', () => {
    test('the answer of /token is the same for a request with an absolute URL, as some proxies send', async () => {
      const asked = `http://${suite.world.host}/token?scope=${pull(suite.mine.path)}`
      const answer = await suite.world.ask({ path: asked, authorization: suite.mine.authorization })
      expect(answer.status).toBe(200)
      const { token } = JSON.parse(answer.body) as { token: string } // a cast: an answer has one
      expect(accessOf(token)).toMatchObject([{ name: suite.mine.path, actions: ['pull'] }])
      expect(await suite.world.ask({ path: `http://${suite.world.host}/healthz` })).toMatchObject({ status: 200, body: 'ok\n' })
    })

    test('the answer of /token has token, access_token, expires_in and issued_at, and is not cacheable', async () => {
      const answer = await suite.world.requestToken([pull(suite.mine.path)], suite.mine.authorization)
      expect(answer.headers).toMatchObject({ 'content-type': 'application/json', 'cache-control': 'no-store' })
      const body = JSON.parse(answer.body) as Record<string, unknown>
      expect(body).toEqual({
        token: answer.token,
        access_token: answer.token,
        expires_in: 600,
        issued_at: expect.stringMatching(/^\d{4}-.*\.\d{3}Z$/) as unknown,
      })
    })

    test('the answer of /token is a JWT with x5c, its own use, the access claim and the uid of the repo', async () => {
      const token = await suite.world.tokenFor(`repository:${suite.mine.path}:pull,push,delete`, suite.mine.authorization)
      expect(partOf(token, 0)).toMatchObject({ alg: 'ES256', typ: 'JWT', x5c: [expect.any(String)] })
      const claims = suite.world.claimsOf(token)
      expect(claims).toMatchObject({ use: 'registry', aud: suite.world.host, sub: suite.mine.owner })
      expect(claims.exp - claims.iat).toBe(600)
      expect(claims.access).toEqual([{ type: 'repository', name: suite.mine.path, actions: ['pull', 'push', 'delete'], uid: suite.mine.repo }])
    })

    test('the answer of /token names the parent of a repo that does not exist yet', async () => {
      const path = `${suite.mine.name}/new`
      expect(accessOf(await suite.world.tokenFor(`repository:${path}:push,pull`, suite.mine.authorization))).toEqual([
        { type: 'repository', name: path, actions: ['pull', 'push'], parent: suite.mine.group },
      ])
    })

    test('the answer of /token is 400 if the token would be too long to be used', async () => {
      const scopes = (count: number): string[] => Array.from({ length: count }, (_, at) => `repository:${suite.mine.name}/${'a'.repeat(180)}${at}:pull,push`)
      const most = await suite.world.requestToken(scopes(25), suite.mine.authorization)
      expect(most.status).toBe(200)
      expect(await suite.world.list(suite.mine.path, bearer(most.token))).toMatchObject({ status: 403 })
      expect(await suite.world.requestToken(scopes(60), suite.mine.authorization)).toMatchObject({ status: 400 })
    })

    test('the answer of /token grants all requested scopes, in one parameter or in several', async () => {
      const other = await suite.world.repo(suite.mine.group, freshName('other'))
      const otherPath = `${suite.mine.name}/${String(ok(await suite.world.server.rest.call('GetRepo', { uid: other }, { token: suite.mine.token }))['name'])}`
      const scopes = [pull(suite.mine.path), `repository:${otherPath}:push`]
      const one = suite.world.claimsOf((await suite.world.requestToken([scopes.join(' ')], suite.mine.authorization)).token).access
      const several = suite.world.claimsOf((await suite.world.requestToken(scopes, suite.mine.authorization)).token).access
      expect(one).toEqual(several)
      expect(one.map(({ name, actions }) => [name, actions])).toEqual([
        [suite.mine.path, ['pull']],
        [otherPath, ['push']],
      ])
    })
  })

  describe('credentials at /token', () => {
    test('credentials at /token are equal as Bearer, as Basic with _token, and in both forms of POST', async () => {
      const access = suite.mine.authorization.slice('Bearer '.length)
      const post = (form: Record<string, string>): Promise<{ status: number; body: string }> =>
        suite.world.ask({
          method: 'POST',
          path: '/token',
          headers: { 'content-type': 'application/x-www-form-urlencoded' },
          body: new URLSearchParams({ service: suite.world.host, client_id: 'test', scope: pull(suite.mine.path), ...form }).toString(),
        })
      const answers = [
        await suite.world.requestToken([pull(suite.mine.path)], bearer(access)),
        await suite.world.requestToken([pull(suite.mine.path)], basic('_token', access)),
        await post({ grant_type: 'password', username: '_token', password: access }),
        await post({ grant_type: 'refresh_token', refresh_token: access }),
      ]
      for (const answer of answers) {
        expect(answer.status).toBe(200)
        expect(accessOf((JSON.parse(answer.body) as { access_token: string }).access_token)).toMatchObject([{ name: suite.mine.path, uid: suite.mine.repo }])
      }
    })

    test.for([
      ['another grant type', { grant_type: 'client_credentials' }],
      ['no grant type', {}],
      ['an empty refresh token', { grant_type: 'refresh_token' }],
    ] as const)('credentials at /token in a POST with %s are 400', async ([, form]) => {
      const headers = { 'content-type': 'application/x-www-form-urlencoded' }
      expect(await suite.world.ask({ method: 'POST', path: '/token', headers, body: new URLSearchParams(form).toString() })).toMatchObject({ status: 400 })
    })

    test('credentials at /token in another POST body are 400, in too large a body 413; other methods are 405', async () => {
      expect(await suite.world.ask({ method: 'POST', path: '/token', headers: { 'content-type': 'application/json' }, body: '{}' })).toMatchObject({
        status: 400,
      })
      const headers = { 'content-type': 'application/x-www-form-urlencoded' }
      expect(await suite.world.ask({ method: 'POST', path: '/token', headers, body: 'a'.repeat(70_000) })).toMatchObject({ status: 413 })
      const put = await suite.world.ask({ method: 'PUT', path: '/token' })
      expect(put).toMatchObject({ status: 405, headers: { allow: 'GET, POST' } })
    })

    test('credentials at /token without a scope are checked and grant nothing', async () => {
      const answer = await suite.world.requestToken([], suite.mine.authorization)
      expect(answer.status).toBe(200)
      expect(accessOf(answer.token)).toEqual([])
      expect(await suite.world.ask({ path: '/v2/', authorization: bearer(answer.token) })).toMatchObject({ status: 200 })
      expect(await suite.world.list(suite.mine.path, bearer(answer.token))).toMatchObject({ status: 403, codes: ['DENIED'] })
      expect(await suite.world.requestToken([])).toMatchObject({ status: 401 })
      expect(await suite.world.requestToken([], bearer('nonsense'))).toMatchObject({ status: 401 })
      expect(await suite.world.requestToken([], basic('_token', 'nonsense'))).toMatchObject({ status: 401 })
      expect(await suite.world.requestToken([], basic('foreign-name', 'nonsense'))).toMatchObject({ status: 401 })
    })
  })

  describe('a credential for another audience', () => {
    test('a credential for another audience is 403 at /token and at the host, as an access token and as an external one', async () => {
      const api = bearer(await suite.world.accessToken(suite.mine.owner, { audiences: [suite.world.server.config.baseUrl] }))
      const { devIssuer } = suite.world.server
      const outside = basic(suite.mine.owner, await devIssuer.mintDevToken({ subject: 'x', audience: suite.world.server.config.baseUrl }))
      for (const authorization of [api, outside]) {
        expect(await suite.world.requestToken([pull(suite.mine.path)], authorization)).toMatchObject({ status: 403, codes: ['DENIED'] })
        expect(await suite.world.list(suite.mine.path, authorization)).toMatchObject({ status: 403, codes: ['DENIED'] })
        expect(await suite.world.ask({ path: '/v2/', authorization })).toMatchObject({ status: 403 })
      }
    })

    test('a credential for another audience of the registry host is accepted at the host itself', async () => {
      expect(await suite.world.list(suite.mine.path, suite.mine.authorization)).toMatchObject({ status: 200 })
      expect(await suite.world.ask({ path: '/v2/', authorization: suite.mine.authorization })).toMatchObject({ status: 200 })
      expect(await suite.world.list(suite.theirs.path, suite.mine.authorization)).toMatchObject({ status: 403, codes: ['DENIED'] })
    })

    test('a credential for another audience as a registry token is refused at the API, the exchange and /token', async () => {
      const token = await suite.world.tokenFor(pull(suite.mine.path), suite.mine.authorization)
      for (const apiClient of [suite.world.server.rest, suite.world.server.grpc])
        expect(await apiClient.call('ListGroups', {}, { token })).toMatchObject({ code: 16 })
      const exchange = await fetch(`http://127.0.0.1:${suite.world.server.config.api.port}/sts/exchange?aud=${suite.world.host}`, {
        headers: { authorization: bearer(token) },
      })
      expect([401, 403]).toContain(exchange.status)
      expect(await suite.world.requestToken([pull(suite.mine.path)], bearer(token))).toMatchObject({ status: 401 })
    })
  })

  describe('a registry token', () => {
    test('a registry token for another image is 403', async () => {
      await suite.world.repo(suite.mine.group, 'second')
      const token = bearer(await suite.world.tokenFor(pull(suite.mine.path), suite.mine.authorization))
      expect(await suite.world.list(suite.mine.path, token)).toMatchObject({ status: 200 })
      expect(await suite.world.list(`${suite.mine.name}/second`, token)).toMatchObject({ status: 403, codes: ['DENIED'] })
      const foreign = await suite.world.list(suite.theirs.path, token)
      expect(foreign).toMatchObject({ status: 403, codes: ['DENIED'] })
      // A caller without rights gets a token without access, with the same answers for missing repos.
      for (const path of [suite.theirs.path, 'unknown/none']) {
        const empty = bearer(await suite.world.tokenFor(pull(path), suite.mine.authorization))
        expect((await suite.world.list(path, empty)).body).toBe(foreign.body)
      }
      expect(foreign.body).toContain('grants no access to this image')
      expect(await suite.world.list(`${suite.mine.group}/app`, token)).toMatchObject({ status: 403, codes: ['DENIED'] })
    })

    test('a registry token for other actions is 401 with a challenge for them, if the caller may have them', async () => {
      const token = bearer(await suite.world.tokenFor(pull(suite.mine.path), suite.mine.authorization))
      const answer = await suite.world.upload(suite.mine.path, token)
      expect(answer.status).toBe(401)
      expect(answer.headers['www-authenticate']).toContain(`scope="repository:${suite.mine.path}:push",error="insufficient_scope"`)
      const viewer = await suite.world.member(suite.mine.group, { role: 'registry.pull' })
      const theirToken = bearer(await suite.world.tokenFor(`repository:${suite.mine.path}:pull,push`, viewer.authorization))
      expect(await suite.world.list(suite.mine.path, theirToken)).toMatchObject({ status: 200 })
      expect(await suite.world.upload(suite.mine.path, theirToken)).toMatchObject({ status: 403, codes: ['DENIED'] })
    })

    test('a registry token is 401 after ten minutes', async () => {
      const token = bearer(await suite.world.tokenFor(pull(suite.mine.path), suite.mine.authorization))
      suite.clock.advance(650_000)
      expect(await suite.world.list(suite.mine.path, token)).toMatchObject({ status: 200 })
      suite.clock.advance(20_000)
      const answer = await suite.world.list(suite.mine.path, token)
      expect(answer).toMatchObject({ status: 401, codes: ['UNAUTHORIZED'] })
      expect(answer.headers['www-authenticate']).toContain('error="invalid_token"')
      await suite.renew()
    })

    test('a registry token that was changed is 401', async () => {
      const token = await suite.world.tokenFor(pull(suite.mine.path), suite.mine.authorization)
      const [header = '', payload = '', signature = ''] = token.split('.')
      const none = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${payload}.`
      const access = [{ type: 'repository', name: suite.theirs.path, actions: ['pull'], uid: suite.theirs.repo }]
      const changed = [
        tampered(token, (claims) => ({ ...claims, access })),
        tampered(token, (claims) => ({ ...claims, sub: suite.theirs.owner })),
        tampered(token, (claims) => ({ ...claims, exp: Number(claims['exp']) + 3600 })),
        `${header}.${payload}.${signature.slice(0, -4)}AAAA`,
        `${header}.${payload}.`,
        none,
      ]
      for (const one of changed) {
        expect(await suite.world.list(suite.mine.path, bearer(one))).toMatchObject({ status: 401 })
        expect(await suite.world.list(suite.theirs.path, bearer(one))).toMatchObject({ status: 401 })
      }
    })
  })
})
