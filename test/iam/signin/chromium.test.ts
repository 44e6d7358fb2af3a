import { createServer, type Server } from 'node:http'
import { decodeJwt } from 'jose'
import type { BrowserContext, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { personUid } from '../../../src/auth/oidc/issuer-name.ts'
import { contextToken } from '../../../src/cli/sign-in/context-token.ts'
import { login } from '../../../src/cli/sign-in/login.ts'
import { expireTokens, newAccount, storedContext } from '../../cli/sign-in/sign-in-world.ts'
import { startBrowser } from '../../support/parts/browser.ts'
import { startLoginProvider } from '../../support/parts/sign-in/login-provider.ts'
import { freshName, makeOrganisation, ok, roleUid, startTestServer, type Organisation, type TestServer } from '../../support/test-server.ts'
import { listenOnLoopback } from '../../support/parts/loopback.ts'

const idp = await startLoginProvider()
const browser = await startBrowser()
let server: TestServer
let org: Organisation & { readonly provider: string }

beforeAll(async () => {
  server = await startTestServer({ env: { TAPROOT_ISSUERS: JSON.stringify([{ issuer: idp.issuer, allowPrivate: true }]) } })
  const { baseUrl } = server.config
  const organisation = await makeOrganisation(server)
  const oidc = { issuer: idp.issuer, clientId: 'taproot', pkceEnabled: true, clientSecret: 'a secret' }
  const identityProvider = { name: freshName('login'), defaultRole: roleUid('viewer'), oidc }
  const made = ok(await server.rest.call('CreateIdentityProvider', { parent: organisation.group, identityProvider }, { token: organisation.token }))
  org = { ...organisation, provider: String(made['uid']) }
  idp.serve([{ id: 'taproot', secret: 'a secret', redirectUris: [`${baseUrl}/oauth/callback/${org.provider}`] }])
})
afterAll(async () => {
  await browser.close()
  await server.stop()
  await idp.stop()
})

/** A server on a free port of loopback; stopped with the test. */
async function listening(server: Server): Promise<number> {
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return listenOnLoopback(server)
}

/** Creates a person with a new browser without cookies. Complaints of the browser about the pages fail the test. */
async function person(): Promise<Page> {
  const context: BrowserContext = await browser.newContext()
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('console', (message) => {
    if (message.type() === 'error' && message.location().url.startsWith(server.config.baseUrl)) complaints.push(message.text())
  })
  page.on('pageerror', (error) => complaints.push(String(error)))
  onTestFinished(async () => {
    await context.close()
    expect(complaints).toEqual([])
  })
  return page
}

/** Types name and password at the provider, and consents. */
async function signInAt(page: Page, name: string): Promise<void> {
  await page.fill('input[name=login]', name)
  await page.fill('input[name=password]', 'any password')
  await page.click('button[type=submit]')
  await page.waitForSelector('text=/authorize/i')
  await page.click('button[type=submit]')
}

const oauth = (query: Readonly<Record<string, string>>): string => `${server.config.baseUrl}/oauth?${new URLSearchParams(query).toString()}`

// docs/spec/tokens.md#browser-sign-in
test('a command that waits on a local port gets the tokens of the person who signs in with Chromium', async () => {
  const answers: URL[] = []
  const port = await listening(
    createServer((request, response) => {
      if (request.url?.startsWith('/callback') === true) answers.push(new URL(request.url, 'http://localhost'))
      response.setHeader('Content-Type', 'text/html').end('<p id="end">Back at the command</p>')
    }),
  )
  const page = await person()
  const name = freshName('person')
  await page.goto(
    oauth({ exit: 'redirect', redirect: `http://localhost:${port}/callback?token=true&error=true`, idp_id: org.provider, create_refresh_token: 'true' }),
  )
  await signInAt(page, name)
  await page.waitForSelector('#end')
  const [answer] = answers
  expect([answers.length, answer?.searchParams.get('error')]).toEqual([1, null])
  const token = answer?.searchParams.get('token') ?? ''
  expect(decodeJwt(token)).toMatchObject({ sub: personUid(idp.issuer, name), act: { iss: idp.issuer, sub: name } })
  expect(ok(await server.rest.call('GetGroup', { uid: org.group }, { token }))).toMatchObject({ uid: org.group })
  expect(answer?.searchParams.get('refresh_token')).toMatch(/./)
  // The cookie of the sign-in was removed.
  expect((await page.context().cookies(server.config.baseUrl)).filter(({ name: cookie }) => cookie.startsWith('taproot'))).toEqual([])
})

test('taproot login opens the browser, takes its tokens, and leaves a page without tokens', async () => {
  const account = await newAccount({ env: { BROWSER: 'true' } })
  const signedIn = login(account, server.config.baseUrl, { organisation: org.provider })
  await expect.poll(() => account.notes[0] ?? '').toMatch(/http\S+$/)
  const page = await person()
  const name = freshName('person')
  await page.goto(/http\S+$/.exec(account.notes[0] ?? '')?.[0] ?? '')
  await signInAt(page, name)
  await page.waitForSelector('text=You are signed in. You can close this page.')
  await signedIn
  expect(page.url()).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/signed-in$/)
  const context = await storedContext(account)
  expect(context).toMatchObject({ server: server.config.baseUrl, organisation: org.provider, refreshToken: expect.stringMatching(/./) as unknown })
  expect(decodeJwt(context.accessTokens[0]?.token ?? '')).toMatchObject({ sub: personUid(idp.issuer, name) })
  await expireTokens(account)
  const place = { ...account, name: context.name }
  expect(decodeJwt(await contextToken(place, ({ registry }) => registry))).toMatchObject({ aud: server.config.registry.host })
})

test('RFC 8628 a person types the code of a device into the page, confirms that it is theirs, and signs in', async () => {
  const { baseUrl } = server.config
  const post = async (path: string, form: Readonly<Record<string, string>>): Promise<Record<string, string>> =>
    (await (await fetch(`${baseUrl}${path}`, { method: 'POST', body: new URLSearchParams(form) })).json()) as Record<string, string>
  const { device_code = '', user_code = '', verification_uri = '' } = await post('/oauth/device_authorization', { client_id: baseUrl })
  const page = await person()
  const name = freshName('person')
  await page.goto(verification_uri)
  await page.fill('input[name=user_code]', user_code)
  await page.fill('input[name=idp_id]', org.provider)
  await page.click('button')
  await page.waitForSelector(`strong:has-text("${user_code}")`)
  await page.click('button[value=yes]')
  await signInAt(page, name)
  await page.waitForSelector('text=You are signed in on the other device.')
  const { access_token = '' } = await post('/oauth/token', { grant_type: 'urn:ietf:params:oauth:grant-type:device_code', client_id: baseUrl, device_code })
  expect(decodeJwt(access_token)).toMatchObject({ sub: personUid(idp.issuer, name) })
})

test('another site can neither frame the confirmation page nor submit its form, although the person has it open', async () => {
  const { baseUrl } = server.config
  const link = oauth({ headless_code: Buffer.alloc(32, 9).toString('base64url'), idp_id: org.provider })
  let request = ''
  const port = await listening(
    createServer((asked, response) => {
      const form = `<form id="f" method="post" action="${baseUrl}/oauth/confirm"><input name="request" value="${request}"><input name="answer" value="yes"></form><script>f.submit()</script>`
      response.setHeader('Content-Type', 'text/html').end(asked.url === '/frame' ? `<iframe src="${link.replaceAll('&', '&amp;')}"></iframe>` : form)
    }),
  )
  const context = await browser.newContext()
  onTestFinished(() => context.close())
  const page = await context.newPage()
  await page.goto(`http://127.0.0.1:${port}/frame`, { waitUntil: 'load' })
  expect(await page.frames()[1]?.locator('button').count()).toBe(0)
  // Even the fields of the page and the browser's own cookie have no effect from another site.
  await page.goto(link)
  request = (await page.locator('input[name=request]').getAttribute('value')) ?? ''
  expect((await context.cookies(baseUrl)).map(({ sameSite }) => sameSite)).toEqual(['Strict'])
  await page.goto(`http://127.0.0.1:${port}/`)
  await page.waitForSelector('text=was started in another browser')
  expect([request.length > 100, page.url()]).toEqual([true, `${baseUrl}/oauth/confirm`])
})
