import { createServer } from 'node:http'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { decodeJwt } from 'jose'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { contextToken } from '../../../src/cli/sign-in/context-token.ts'
import { login } from '../../../src/cli/sign-in/login.ts'
import { closeNow, listenOnLoopback } from '../../support/parts/loopback.ts'
import { freshName, makeOrganisation, ok, startTestServer, type TestServer } from '../../support/test-server.ts'
import { expireTokens, newAccount, storedContext, type Account } from './sign-in-world.ts'

describe('taproot login with a token of another issuer', () => {
  let server: TestServer
  let baseUrl: string
  let identity: string
  const subject = freshName('job')

  beforeAll(async () => {
    server = await startTestServer()
    ;({ baseUrl } = server.config)
    const { group, token } = await makeOrganisation(server)
    const claimMatch = { issuer: server.devIssuer.issuer, subject }
    identity = String(ok(await server.rest.call('CreateIdentity', { parent: group, identity: { name: 'ci', claimMatch } }, { token }))['uid'])
  })
  afterAll(() => server.stop())

  const issued = (audience = baseUrl): Promise<string> => server.devIssuer.mintDevToken({ subject, audience })

  /** Returns the subject and audience of an access token of the account for an audience. */
  async function renewed(account: Account, audience: 'server' | 'registry'): Promise<unknown[]> {
    const { name } = await storedContext(account)
    const { sub, aud } = decodeJwt(await contextToken({ ...account, name }, (context) => context[audience]))
    return [sub, aud]
  }

  test('--token-file exchanges the token in the file, again when the access token expired, and for the registry host', async () => {
    const account = await newAccount()
    const tokenFile = join(account.folder, '..', 'token')
    await writeFile(tokenFile, `${await issued()}\n`)
    await login(account, baseUrl, { identity, tokenFile })
    expect(await storedContext(account)).toMatchObject({ identity, source: { tokenFile }, refreshToken: '' })
    expect(await renewed(account, 'server')).toEqual([identity, baseUrl])
    await expireTokens(account)
    expect(await renewed(account, 'server')).toEqual([identity, baseUrl])
    expect(await renewed(account, 'registry')).toEqual([identity, server.config.registry.host])
    await expireTokens(account)
    await writeFile(tokenFile, 'no token')
    await expect(renewed(account, 'server')).rejects.toThrow('contains no token')
  })

  test('--token-env exchanges the token in a variable, as in a job of GitLab', async () => {
    const account = await newAccount({ env: { TAPROOT_ID_TOKEN: await issued() } })
    await login(account, baseUrl, { identity, tokenEnv: 'TAPROOT_ID_TOKEN' })
    await expireTokens(account)
    expect(await renewed(account, 'server')).toEqual([identity, baseUrl])
    await expect(login(account, baseUrl, { identity, tokenEnv: 'ABSENT' })).rejects.toThrow('ABSENT contains no token')
  })

  test('--github gets a token for the server from the runner of GitHub Actions', async () => {
    const runner = createServer((request, response) => {
      const url = new URL(request.url ?? '/', 'http://runner')
      const isKnown = request.headers.authorization === 'Bearer runner-token' && url.searchParams.get('api-version') === '2.0'
      if (!isKnown) return void response.writeHead(401).end('{}')
      void issued(url.searchParams.get('audience') ?? '').then((value) => response.end(JSON.stringify({ count: 1, value })))
    })
    const port = await listenOnLoopback(runner)
    onTestFinished(() => closeNow(runner))
    const env = { ACTIONS_ID_TOKEN_REQUEST_URL: `http://127.0.0.1:${port}/token?api-version=2.0`, ACTIONS_ID_TOKEN_REQUEST_TOKEN: 'runner-token' }
    const account = await newAccount({ env })
    await login(account, baseUrl, { identity, github: true })
    expect(await renewed(account, 'server')).toEqual([identity, baseUrl])
    const wrong = await newAccount({ env: { ...env, ACTIONS_ID_TOKEN_REQUEST_TOKEN: 'another' } })
    await expect(login(wrong, baseUrl, { identity, github: true })).rejects.toThrow(/^GitHub Actions issued no token: .* answered 401$/)
    await expect(login(await newAccount(), baseUrl, { identity, github: true })).rejects.toThrow('id-token: write')
  })

  test('a token that the identity does not accept signs no one in', async () => {
    const account = await newAccount()
    const tokenFile = join(account.folder, '..', 'token')
    await writeFile(tokenFile, await server.devIssuer.mintDevToken({ subject: 'another', audience: baseUrl }))
    await expect(login(account, baseUrl, { identity, tokenFile })).rejects.toMatchObject({ name: 'ClientError', code: 7 })
    await expect(storedContext(account)).rejects.toThrow('there is no context')
  })

  test.for([
    ['an identity without a token', { identity: '0'.repeat(40) }, '--identity needs --token-file'],
    ['an identity that is not a uid', { identity: 'ci', tokenEnv: 'X' }, 'not "ci"'],
    ['a browser without an organisation', {}, 'needs --organisation'],
  ] as const)('login is refused before any sign-in: %s', async ([, options, message]) => {
    const account = await newAccount({ env: { BROWSER: 'false' } })
    await expect(login(account, baseUrl, options)).rejects.toMatchObject({ name: 'UsageError', message: expect.stringContaining(message) as unknown })
  })

  test('a server that calls itself by another URL is refused', async () => {
    const other = `http://127.0.0.1:${server.config.api.port}`
    await expect(login(await newAccount(), other, { device: true })).rejects.toThrow(`the server at ${other} calls itself ${baseUrl}`)
  })
})
