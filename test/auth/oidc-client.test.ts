import { createServer, type RequestListener } from 'node:http'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createOidcLogin, type OidcClient, type OidcLogin } from '../../src/auth/oidc/oidc-client.ts'
import { createSafeFetch } from '../../src/auth/safe-fetch.ts'
import { listenOnLoopback } from '../support/parts/loopback.ts'

/** More sign-ins than may wait at once. */
const strangers = 120

/** Starts a server on loopback. Returns its URL. */
async function serve(listener: (issuer: string) => RequestListener): Promise<string> {
  let handler: RequestListener = () => undefined
  const server = createServer((request, response) => void handler(request, response))
  const issuer = `http://127.0.0.1:${await listenOnLoopback(server)}`
  handler = listener(issuer)
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return issuer
}

/** Starts an issuer with a discovery document whose other addresses never answer. `asked` is called for each request to them. */
function documented(asked: () => void = () => undefined): Promise<string> {
  return serve((issuer) => (request, response) => {
    if (request.url !== '/.well-known/openid-configuration') return asked()
    response.end(JSON.stringify({ issuer, authorization_endpoint: `${issuer}/auth`, token_endpoint: `${issuer}/token` }))
  })
}

function loginAt(...issuers: readonly string[]): OidcLogin {
  const fetch = createSafeFetch()
  onTestFinished(() => fetch.close())
  return createOidcLogin(
    fetch,
    issuers.map((issuer) => ({ issuer, allowPrivate: true })),
  )
}

function clientOf(issuer: string, tenant = 'some'): OidcClient {
  return { issuer, tenant, clientId: 'taproot', clientSecret: 'a secret', pkce: false, additionalScopes: [] }
}

const checks = { nonce: 'a nonce' }
const signal = (): AbortSignal => AbortSignal.timeout(20_000)
const begin = (login: OidcLogin, issuer: string, until = signal()): Promise<URL> =>
  login.authorizationUrl(clientOf(issuer), { state: 'a state', redirectUri: 'http://localhost/back', checks }, until)
const comeBack = (login: OidcLogin, issuer: string, until: AbortSignal): Promise<string> =>
  login.idToken(clientOf(issuer), { url: new URL('http://localhost/back?code=x&state=y'), state: 'y', checks }, until)

test('an issuer that does not answer gets one request, and blocks no sign-in at other issuers, even with many sign-ins waiting for it', async () => {
  let asked = 0
  const mute = await serve(() => () => void (asked += 1))
  const other = await documented()
  const login = loginAt(mute, other)
  const leaving = new AbortController()
  const begun = Array.from({ length: strangers }, () => begin(login, mute, leaving.signal).catch((error: unknown) => error))
  expect((await begin(login, other)).href).toContain(`${other}/auth`)
  await vi.waitFor(() => expect(asked).toBe(1))
  leaving.abort('gone')
  expect(new Set(await Promise.all(begun))).toEqual(new Set(['gone']))
  expect(asked).toBe(1)
})

test('a caller that disconnects during a request to the issuer does not end it for the others', async () => {
  const { promise: arrived, resolve: arrive } = Promise.withResolvers<() => void>()
  const slow = await serve((issuer) => (_request, response) => {
    arrive(() => void response.end(JSON.stringify({ issuer, authorization_endpoint: `${issuer}/auth`, token_endpoint: `${issuer}/token` })))
  })
  const login = loginAt(slow)
  const leaving = new AbortController()
  const [gone, waiting] = [begin(login, slow, leaving.signal).catch((error: unknown) => error), begin(login, slow)]
  const answer = await arrived
  leaving.abort('gone')
  expect(await gone).toBe('gone')
  answer()
  expect((await waiting).href).toContain(`${slow}/auth`)
})

test('an issuer that returns no tokens blocks no sign-in at other issuers, even if many people return from it', async () => {
  let waiting = 0
  const stingy = await documented(() => void (waiting += 1))
  const { promise: reached, resolve: reachIssuer } = Promise.withResolvers<string>()
  const other = await documented(() => reachIssuer('reached'))
  const login = loginAt(stingy, other)
  const leaving = new AbortController()
  let refused = 0
  const refuse = ({ code }: { code?: number }): void => void (refused += code === 14 ? 1 : 0)
  const back = Array.from({ length: strangers }, () => comeBack(login, stingy, leaving.signal).catch(refuse))
  await vi.waitFor(() => expect(waiting + refused).toBe(strangers), { timeout: 120_000 })
  const elsewhere = comeBack(login, other, leaving.signal).catch((error: unknown) => error)
  expect(await Promise.race([reached, elsewhere])).toBe('reached')
  leaving.abort('gone')
  expect(await elsewhere).toBe('gone')
  await Promise.all(back)
})

test('very many issuers of one organisation block no sign-in of another, neither at its start nor at its end', async () => {
  const mute = await serve(() => () => undefined)
  let waiting = 0
  const stingy = await Promise.all(Array.from({ length: 12 }, () => documented(() => void (waiting += 1))))
  const { promise: reached, resolve: reachIssuer } = Promise.withResolvers<string>()
  const other = await documented(() => reachIssuer('reached'))
  const hostile = [...Array.from({ length: strangers }, (_, at) => `${mute}/${at}`), ...stingy]
  const login = loginAt(...hostile, other)
  const leaving = new AbortController()
  const request = { state: 'a state', redirectUri: 'http://localhost/back', checks }
  const answer = { url: new URL('http://localhost/back?code=x&state=y'), state: 'y', checks }
  let refused = 0
  const refuse = ({ code }: { code?: number }): void => void (refused += code === 14 ? 1 : 0)
  const back = stingy.flatMap((issuer) => Array.from({ length: 10 }, () => login.idToken(clientOf(issuer, 'hostile'), answer, leaving.signal).catch(refuse)))
  await vi.waitFor(() => expect(waiting + refused).toBe(back.length), { timeout: 120_000 })
  const begun = hostile.map((issuer) => login.authorizationUrl(clientOf(issuer, 'hostile'), request, leaving.signal).catch(refuse))
  const url = await login.authorizationUrl(clientOf(other, 'other'), request, signal()).catch((error: unknown) => error)
  expect(url).toBeInstanceOf(URL)
  const elsewhere = login.idToken(clientOf(other, 'other'), answer, leaving.signal).catch((error: unknown) => error)
  expect(await Promise.race([reached, elsewhere])).toBe('reached')
  leaving.abort('gone')
  await Promise.all([...back, ...begun, elsewhere])
})
