import type { Locator, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { startBrowser } from '../../support/parts/browser.ts'
import { makeOrganisation, startTestServer, type TestServer } from '../../support/test-server.ts'

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(() => server.stop())

const address = (path: string): string => `${server.config.baseUrl}${path}`

// docs/api.md#descriptions-of-the-api
describe('the root of the API', () => {
  const browserAccept = 'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8'

  test('is a page for browsers, and every link of it works without a token', async () => {
    const answer = await fetch(address('/'), { headers: { accept: browserAccept } })
    const page = await answer.text()
    expect(answer.headers.get('content-type')).toBe('text/html; charset=utf-8')
    expect(answer.headers.get('vary')).toContain('Accept')
    const links = [...page.matchAll(/href="([^"]+)"/g)].map(([, path = '']) => path)
    expect(links).toEqual(expect.arrayContaining(['/docs', '/openapi.json', '/ping/v2/ping']))
    expect(await Promise.all(links.map(async (path) => [path, (await fetch(address(path))).status]))).toEqual(links.map((path) => [path, 200]))
  })

  test.each([['*/*'], ['application/json'], ['image/png'], ['application/json, text/html;q=0.5']])('is an index in JSON for Accept: %s', async (accept) => {
    const answer = await fetch(address('/'), { headers: { accept } })
    expect(answer.headers.get('content-type')).toBe('application/json')
    expect(await answer.json()).toMatchObject({ docs: '/docs', openapi: '/openapi.json', openapiV1: '/openapi-v1.json', health: '/ping/v2/ping' })
  })

  test('has a tag of its own for each form', async () => {
    const tagOf = async (accept: string): Promise<string> => (await fetch(address('/'), { headers: { accept } })).headers.get('etag') ?? ''
    const page = await tagOf(browserAccept)
    expect(page).not.toBe(await tagOf('*/*'))
    expect((await fetch(address('/'), { headers: { accept: browserAccept, 'if-none-match': page } })).status).toBe(304)
    expect((await fetch(address('/'), { headers: { accept: '*/*', 'if-none-match': page } })).status).toBe(200)
  })
})

describe('the API reference', () => {
  let browser: Awaited<ReturnType<typeof startBrowser>>
  beforeAll(async () => {
    browser = await startBrowser()
  })
  afterAll(() => browser.close())

  /** Opens a page. Complaints of the browser, such as blocked scripts and styles, and requests to other hosts fail the test. */
  async function opened(path: string): Promise<Page> {
    const context = await browser.newContext()
    const page = await context.newPage()
    const complaints: string[] = []
    const hosts = new Set<string>()
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) complaints.push(message.text())
    })
    page.on('pageerror', (error) => complaints.push(String(error)))
    page.on('request', (request) => hosts.add(new URL(request.url()).host))
    onTestFinished(async () => {
      await context.close()
      expect(complaints).toEqual([])
      // The URLs of icons in the style sheet, `data:`, have no host.
      expect([...hosts].filter((host) => host !== '')).toEqual([new URL(server.config.baseUrl).host])
    })
    // A slow machine may take half a minute to show the page.
    page.setDefaultTimeout(120_000)
    await page.goto(address(path))
    await page.waitForSelector('.opblock')
    return page
  }

  /** Opens the page of an operation. Expects the title of its document, and what the document says about the operation. */
  async function shown(path: string, operation: string, expected: { title: string; route: string }): Promise<{ page: Page; block: Locator }> {
    const page = await opened(`${path}#/Groups/${operation}`)
    const block = page.locator(`#operations-Groups-${operation}`)
    await block.locator('.responses-table').waitFor()
    expect(await page.locator('.info .title').textContent()).toMatch(new RegExp(`^${expected.title} *0`))
    expect(await block.locator('.opblock-summary-path').textContent()).toContain(expected.route)
    expect(await page.locator('.opblock-tag').count()).toBeGreaterThan(10)
    return { page, block }
  }

  test('shows the methods of version 1', async () => {
    await shown('/docs/v1', 'groupsList', { title: 'Taproot, version 1', route: '/iam/v1/groups' })
  })

  test('calls a method with the token that a person enters, and forgets it with the page', async () => {
    const { token, group } = await makeOrganisation(server)
    const { page, block } = await shown('/docs', 'getGroup', { title: 'Taproot', route: '/iam/v2/groups/{uid}' })
    await page.click('.btn.authorize')
    await page.fill('.auth-container input', token)
    await page.click('.auth-btn-wrapper .authorize')
    await page.click('.btn-done')
    await block.locator('.try-out__btn').click()
    await block.locator('tr[data-param-name=uid] input').fill(group)
    await block.locator('.execute').click()
    const answer = block.locator('.live-responses-table')
    expect(await answer.locator('.response-col_status').last().textContent()).toContain('200')
    expect(await answer.locator('.microlight').first().textContent()).toContain(group)
    await page.reload()
    await page.waitForSelector('.btn.authorize.unlocked')
    expect(await page.evaluate(() => [localStorage.length, sessionStorage.length])).toEqual([0, 0])
  })

  test('has files that browsers keep for a year, under addresses that change with their content', async () => {
    for (const path of ['/docs', '/docs/v1']) {
      const page = await (await fetch(address(path))).text()
      const files = [...page.matchAll(/ (?:src|href)="(\/docs\/[^"]+\?v=[^"]+)"/g)].map(([, file = '']) => file)
      expect(files.map((file) => file.split('?')[0])).toEqual(['/docs/swagger-ui.css', '/docs/swagger-ui-bundle.js', '/docs/start.js'])
      for (const file of files) {
        const { headers } = await fetch(address(file), { method: 'HEAD' })
        expect(headers.get('cache-control')).toBe('public, max-age=31536000, immutable')
        expect(headers.get('etag')).toContain(new URL(file, address('/')).searchParams.get('v'))
      }
    }
  })

  test('runs scripts of this server only, and sends requests to no other', async () => {
    const { headers } = await fetch(address('/docs'))
    const policy = headers.get('content-security-policy') ?? ''
    expect(policy.split('; ')).toEqual(expect.arrayContaining(["default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"]))
    expect(policy).not.toContain('unsafe')
  })
})
