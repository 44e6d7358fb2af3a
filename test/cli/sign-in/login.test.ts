import { chmod, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { personUid } from '../../../src/auth/oidc/issuer-name.ts'
import { browserLogin } from '../../../src/cli/sign-in/browser-login.ts'
import { contextToken } from '../../../src/cli/sign-in/context-token.ts'
import { readContexts } from '../../../src/cli/sign-in/contexts.ts'
import { deviceLogin } from '../../../src/cli/sign-in/device-login.ts'
import { logout } from '../../../src/cli/sign-in/login.ts'
import { systemClock, systemRandom } from '../../../src/server/runtime.ts'
import { decodeJwt } from 'jose'
import { PersonWithBrowser } from '../../support/parts/sign-in/login-provider.ts'
import { freshName } from '../../support/test-server.ts'
import { editContexts, expireTokens, newAccount, shownCode, signIn, startSignInWorld, storedContext, type Account, type SignInWorld } from './sign-in-world.ts'

describe('taproot login', () => {
  let world: SignInWorld
  let baseUrl: string

  beforeAll(async () => {
    world = await startSignInWorld()
    ;({ baseUrl } = world.server.config)
  })
  afterAll(() => world.stop())

  const apiToken = ({ folder, env, clock }: Account): Promise<string> =>
    contextToken({ folder, name: new URL(baseUrl).host, env, clock }, ({ server }) => server)

  test('a person signs in with a code, and the command stores the sign-in for itself only', async () => {
    const account = await newAccount()
    const person = await signIn(world, account)
    const context = await storedContext(account)
    expect(context).toMatchObject({ name: new URL(baseUrl).host, server: baseUrl, registry: world.server.config.registry.host })
    expect(decodeJwt(await apiToken(account))).toMatchObject({ sub: personUid(world.idp.issuer, person) })
    expect((await readContexts(account.folder)).current).toBe(context.name)
    const modes = await Promise.all([account.folder, join(account.folder, 'config.yaml')].map(async (path) => (await stat(path)).mode & 0o777))
    expect(modes).toEqual([0o700, 0o600])
    const said = account.printed() + account.notes.join('\n')
    expect(said).not.toContain(context.refreshToken)
    expect(said).not.toContain(context.accessTokens[0]?.token)
  })

  test('a browser brings the tokens to a port of this machine, and only with the state of the command', async () => {
    const person = freshName('person')
    const pages: Promise<string>[] = []
    const strangers: Promise<number>[] = []
    const { accessToken, refreshToken } = await browserLogin({
      server: baseUrl,
      organisation: world.org.provider,
      audiences: [baseUrl, world.server.config.registry.host],
      random: systemRandom,
      openUrl(url) {
        const redirect = new URL(new URL(url).searchParams.get('redirect') ?? '')
        redirect.searchParams.set('state', '0'.repeat(64))
        redirect.searchParams.set('token', 'of another person')
        strangers.push(fetch(redirect).then(({ status }) => status))
        pages.push(
          strangers[0]
            ?.then(() => new PersonWithBrowser(person).open(url, 'http://nowhere.invalid'))
            .then(({ url: end, text }) => `${end.pathname}${end.search} ${text}`) ?? Promise.reject(new Error('no stranger')),
        )
      },
    })
    expect(await strangers[0]).toBe(404)
    expect(await pages[0]).toMatch(/^\/signed-in .*You are signed in/s)
    expect(decodeJwt(accessToken)).toMatchObject({ sub: personUid(world.idp.issuer, person), aud: [baseUrl, world.server.config.registry.host] })
    expect(refreshToken).not.toBe('')
  })

  test('a browser that returns with an error ends the command with it', async () => {
    const opened: Promise<unknown>[] = []
    const ended = browserLogin({
      server: baseUrl,
      organisation: 'unknown.example',
      audiences: [baseUrl],
      random: systemRandom,
      openUrl: (url) => void opened.push(new PersonWithBrowser('anyone').open(url, 'http://nowhere.invalid')),
    })
    await expect(ended).rejects.toMatchObject({ name: 'ClientError', message: expect.stringMatching(/refused: no such identity provider/) as unknown })
    expect(await opened[0]).toMatchObject({ text: expect.stringContaining('You are not signed in') as unknown })
  })

  test('a person who refuses the code ends the command', async () => {
    const notes: string[] = []
    const ended = deviceLogin({ server: baseUrl, organisation: '', audiences: [baseUrl], clock: systemClock, note: (text) => notes.push(text), wait: refuse })
    async function refuse(): Promise<void> {
      const code = shownCode(notes)
      const link = `${baseUrl}/oauth?${new URLSearchParams({ user_code: code, idp_id: world.org.provider }).toString()}`
      const page = await fetch(link)
      const request = /name="request" value="([^"]+)"/.exec(await page.text())?.[1] ?? ''
      const cookie = page.headers
        .getSetCookie()
        .map((line) => line.split(';')[0])
        .join('; ')
      await fetch(`${baseUrl}/oauth/confirm`, { method: 'POST', headers: { cookie }, body: new URLSearchParams({ request, answer: 'no' }) })
    }
    await expect(ended).rejects.toMatchObject({ reason: 'LOGIN_REFUSED' })
  })

  test('an expired access token is renewed once for commands at the same time, and the sign-in goes on', async () => {
    const account = await newAccount()
    await signIn(world, account)
    const [before] = (await storedContext(account)).accessTokens
    for (let round = 0; round < 2; round += 1) {
      await expireTokens(account)
      const tokens = await Promise.all(Array.from({ length: 5 }, () => apiToken(account)))
      expect(new Set(tokens).size).toBe(1)
      expect(tokens[0]).not.toBe(before?.token)
      expect(decodeJwt(tokens[0] ?? '')).toMatchObject({ aud: baseUrl })
    }
  })

  test('logout revokes the sign-in, and a command then says how to sign in again', async () => {
    const account = await newAccount()
    await signIn(world, account)
    const stolen = (await storedContext(account)).refreshToken
    await logout(account, {})
    expect(await storedContext(account)).toMatchObject({ refreshToken: '', accessTokens: [] })
    await expect(apiToken(account)).rejects.toThrow(`run "taproot login ${baseUrl}"`)
    expect(await world.server.rest.call('ExchangeRefreshToken', {}, { token: stolen })).toMatchObject({ code: 16 })
  })

  test('a sign-in that was revoked elsewhere is removed, and the error says how to sign in again', async () => {
    const account = await newAccount()
    await signIn(world, account)
    await expireTokens(account)
    const { refreshToken } = await storedContext(account)
    await fetch(`${baseUrl}/oauth/revoke`, { method: 'POST', body: new URLSearchParams({ token: refreshToken }) })
    const ended = { name: 'ClientError', message: expect.stringContaining(`run "taproot login ${baseUrl}"`) as unknown }
    await expect(apiToken(account)).rejects.toMatchObject({ ...ended, reason: 'REFRESH_TOKEN_ENDED' })
    expect(await storedContext(account)).toMatchObject({ refreshToken: '', accessTokens: [] })
    await expect(apiToken(account)).rejects.toMatchObject(ended)
  })

  test('a server that is away leaves the sign-in as it is', async () => {
    const account = await newAccount()
    await signIn(world, account)
    await expireTokens(account)
    const before = await storedContext(account)
    await editContexts(account, (text) => text.replaceAll(baseUrl, 'http://127.0.0.1:1'))
    await expect(apiToken(account)).rejects.toThrow('cannot be reached')
    await expect(logout(account, {})).rejects.toThrow('--local')
    await editContexts(account, (text) => text.replaceAll('http://127.0.0.1:1', baseUrl))
    expect(await storedContext(account)).toEqual(before)
    expect(decodeJwt(await apiToken(account))).toMatchObject({ aud: baseUrl })
  })

  test('a new sign-in at the same server revokes the one before', async () => {
    const account = await newAccount()
    await signIn(world, account)
    const { refreshToken } = await storedContext(account)
    await signIn(world, account)
    expect((await readContexts(account.folder)).contexts).toHaveLength(1)
    expect(await world.server.rest.call('ExchangeRefreshToken', {}, { token: refreshToken })).toMatchObject({ code: 16 })
    await expireTokens(account)
    expect(decodeJwt(await apiToken(account))).toMatchObject({ aud: baseUrl })
  })

  test.for([
    ['the file', 'config.yaml', 0o640, /other users can read .*config\.yaml.*chmod 600/],
    ['the folder', '', 0o770, /other users can write to .*chmod go-w/],
  ] as const)('%s is refused if others have access', async ([, name, mode, message]) => {
    const account = await newAccount()
    await signIn(world, account)
    await chmod(join(account.folder, name), mode)
    await expect(apiToken(account)).rejects.toMatchObject({ name: 'UsageError', message: expect.stringMatching(message) as unknown })
  })

  test('a file that is not valid is refused without its content', async () => {
    const account = await newAccount()
    await signIn(world, account)
    const file = join(account.folder, 'config.yaml')
    for (const [text, fault] of [
      ['contexts: [secret', 'line 1: this is not YAML'],
      ['contexts: {secret: 1}', 'needs a list'],
      ['contexts: [{name: secret}]', 'the context at 1 needs'],
    ] as const) {
      await writeFile(file, text)
      await expect(apiToken(account)).rejects.toThrow(fault)
      await expect(apiToken(account)).rejects.not.toThrow('secret')
    }
    expect(await readFile(file, 'utf8')).toBe('contexts: [{name: secret}]')
  })
})
