import { afterAll, beforeAll, expect, test } from 'vitest'
import { readmeError } from '../../src/registry/readme/readme-error.ts'
import { ReadmeThread } from '../../src/registry/readme/readme-thread.ts'
import { slowness } from '../budgets.ts'
import { leastCpuMs } from '../support/cpu-time.ts'
import { freshName, makeOrganisation, ok, startTestServer, type TestServer } from '../support/test-server.ts'

/** A table of the maximum size, which takes over a second of work. */
const expensive = `|a|b|c|\n|:-|:-:|-:|\n${'|1|2|3|\n'.repeat(65_000)}`.slice(0, 524_288)

/** A page that expands far beyond its text: each paragraph reopens all open elements. */
const amplified = `<p>${Array.from({ length: 8 }, (_, at) => `<b id=${at}>`).join('')}${'<p>x'.repeat(100_000)}`

let server: TestServer

beforeAll(async () => {
  server = await startTestServer()
})

afterAll(async () => {
  await server.stop()
})

async function makeRepo(): Promise<{ uid: string; token: string }> {
  const { group, token } = await makeOrganisation(server)
  const created = ok(await server.rest.call('CreateRepo', { parent: group, repo: { name: freshName('repo') } }, { token }))
  return { uid: String(created['uid']), token }
}

/** A dry run of a readme, which the caller can cancel. Resolves to the status, or undefined if it was cancelled. */
async function dryRun(repo: { uid: string; token: string }, content: string, signal: AbortSignal): Promise<Response | undefined> {
  const url = `${server.config.baseUrl}/registry/v2/repos/${repo.uid}/readme?validateOnly=true`
  const headers = { authorization: `Bearer ${repo.token}`, 'content-type': 'application/json' }
  return await fetch(url, { method: 'PATCH', headers, body: JSON.stringify({ content }), signal }).catch((error: unknown) => {
    if (signal.aborted) return undefined
    throw error
  })
}

test('expensive readmes of one organisation delay those of another by at most one document', async () => {
  const [hostile, other] = [await makeRepo(), await makeRepo()]
  const end = new AbortController()
  const first = dryRun(hostile, expensive, end.signal)
  let answered = 0
  const rest = [first, ...Array.from({ length: 5 }, () => dryRun(hostile, expensive, end.signal))].map(async (answer) => {
    if ((await answer) !== undefined) answered += 1
  })
  // A later request of the hostile organisation is refused or waits: the dry runs are in the queue by now.
  await server.rest.call('GetRepo', { uid: hostile.uid }, { token: hostile.token })
  const innocent = await dryRun(other, '# hello', AbortSignal.timeout(100_000))
  expect(innocent?.status).toBe(200)
  expect(answered).toBeLessThanOrEqual(1)
  end.abort()
  await Promise.all(rest)
})

test('an organisation with too many waiting readmes is asked to retry later, and no other one', async () => {
  const [hostile, other] = [await makeRepo(), await makeRepo()]
  const end = new AbortController()
  const line = Array.from({ length: 24 }, () => dryRun(hostile, expensive, end.signal))
  const refused = await Promise.race(line)
  expect(refused?.status).toBe(429)
  expect(refused?.headers.get('retry-after')).toBe('1')
  expect(await refused?.json()).toMatchObject({ code: 8, details: [{ reason: 'TOO_MANY_WAITING' }, { retryDelay: '1.000s' }] })
  expect((await dryRun(other, '# hello', AbortSignal.timeout(100_000)))?.status).toBe(200)
  end.abort()
  await Promise.all(line)
})

test('a readme that uses too much processor time ends its worker thread, and the next readme gets a new thread', async () => {
  // A new thread compiles its code with the first readme, which takes most of this.
  const thread = new ReadmeThread(200)
  const { error, cpuMs } = await thread.render(expensive)
  expect(error).toMatch(/takes too long/)
  expect(cpuMs).toBeGreaterThanOrEqual(200)
  expect(cpuMs).toBeLessThan(600 * slowness())
  expect(await thread.render('# hello')).toMatchObject({ error: undefined })
})

test('a readme that creates far more elements than it has characters is refused at once', async () => {
  expect(leastCpuMs(() => expect(readmeError(amplified)).toMatch(/too many elements/))).toBeLessThan(900 * slowness())
})
