import { createServer, request as forward, type RequestListener } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { apply } from '../../src/cli/apply/apply.ts'
import { ClientError, type Json } from '../../src/cli/client/client-error.ts'
import { findKind } from '../../src/cli/client/kinds.ts'
import { createPlatformClient, type PlatformClient } from '../../src/cli/client/platform-client.ts'
import { findRecord } from '../../src/cli/get.ts'
import { RegistryWorld, type Tenant } from '../registry/tokens/registry-world.ts'
import { freshName, ok, roleUid, startTestServer } from '../support/test-server.ts'
import { contextOf, type TestContext } from './client-world.ts'

let world: RegistryWorld
let mine: Tenant
let context: TestContext

beforeAll(async () => {
  world = new RegistryWorld(await startTestServer({ keepsContent: false }))
  mine = await world.tenant(freshName('mine'))
})
afterAll(() => world.server.stop())

/** Applies a text. Resolves with false if a part failed. */
async function applied(text: string, { dryRun = false, by = contextOf(world.server, mine.token) } = {}): Promise<boolean> {
  context = by
  const request = { paths: ['-'], recursive: false, dryRun, diff: true, format: undefined, clusterIssuer: undefined }
  return await apply(context, { ...request, readStdin: () => Promise.resolve(text) })
}

const record = (kind: string, path: string): Promise<Json> =>
  findRecord(contextOf(world.server, mine.token).client, findKind(kind, 'taproot'), { record: path, filter: [] })

test('an identity provider is changed to a default role that the same input creates', async () => {
  const provider = `kind: identityprovider\npath: ${mine.name}/idp\n`
  const made = { name: 'idp', defaultRole: roleUid('viewer'), oidc: { issuer: 'https://idp.example', clientId: 'x', clientSecret: 'y' } }
  ok(await world.server.rest.call('CreateIdentityProvider', { parent: mine.group, identityProvider: made }, { token: mine.token }))
  const text = `${provider}defaultRole: ${mine.name}/starter\n---\nkind: role\npath: ${mine.name}/starter\ncapabilities: [CAP_IAM_GROUPS_LIST]\n`
  expect(await applied(text, { dryRun: true })).toBe(true)
  expect(context.printed()).toContain(`identityprovider/${mine.name}/idp would be configured\n`)
  expect(context.printed()).toContain(`  + defaultRole: ${mine.name}/starter\n`)
  expect(await applied(text)).toBe(true)
  expect(context.printed()).toContain(`identityprovider/${mine.name}/idp configured\n`)
  expect((await record('identityprovider', `${mine.name}/idp`))['defaultRole']).toBe((await record('role', `${mine.name}/starter`))['uid'])
})

test('two documents about one record are refused, however they name its group', async () => {
  const document = (group: string): string => `kind: identity\npath: ${group}/twice\nclaimMatch: { issuer: "https://i.example", subject: twice }\n`
  await expect(applied(`${document(mine.name)}---\n${document(mine.group)}`)).rejects.toThrow(/nothing was changed$/)
  expect(context.notes).toEqual([expect.stringMatching(/document 2: .*describes the same identity as standard input, document 1$/)])
})

test('secrets of new records are printed once', async () => {
  const text = `kind: subscription\npath: ${mine.name}\nsink: https://hooks.example/signed\nsigning: STANDARD_WEBHOOKS\nsuspend: true\n`
  expect(await applied(text)).toBe(true)
  expect(context.printed()).toMatch(/ created\n(?: .*\n)+secret: whsec_\S+\n$/)
  expect(context.notes).toEqual(['Keep the secret: it is shown only now.'])
  expect(await applied(text)).toBe(true)
  expect(context.printed()).toMatch(/ unchanged\n$/)
  expect(context.notes).toEqual([])
})

test('a secret is printed before the pause that fails', async () => {
  const text = `kind: subscription\npath: ${mine.name}\nsink: https://hooks.example/unpaused\nsigning: STANDARD_WEBHOOKS\nsuspend: true\n`
  const own = contextOf(world.server, mine.token)
  const call: PlatformClient['call'] = (one) =>
    one.path.endsWith(':pause') ? Promise.reject(new ClientError('needs subscriptions.update', { code: 7 })) : own.client.call(one)
  expect(await applied(text, { by: { ...own, client: { ...own.client, call } } })).toBe(false)
  expect(context.printed()).toMatch(/ created\n(?: .*\n)+secret: whsec_\S+\n$/)
  expect(context.notes.join('\n')).toMatch(/subscriptions\.update/)
})

test('a change without an answer is not taken for none', async () => {
  const own = contextOf(world.server, mine.token)
  const call: PlatformClient['call'] = async (one) => {
    const answer = await own.client.call(one)
    if (one.method === 'POST' && one.query?.['validateOnly'] !== 'true') throw new ClientError('the server did not answer. The change may have happened')
    return answer
  }
  expect(await applied(`kind: group\npath: ${mine.name}/perhaps\n`, { by: { ...own, client: { ...own.client, call } } })).toBe(false)
  expect(context.notes.join('\n')).not.toContain('nothing was changed')
})

/** Applies three documents through a proxy, which must fail with this message. */
async function expectRefused(proxy: RequestListener, message: RegExp | string): Promise<void> {
  const server = createServer(proxy).listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const client = createPlatformClient({ baseUrl, token: mine.token, wait: () => Promise.resolve() })
    const text = ['one', 'two', 'three'].map((name) => `kind: group\npath: ${mine.name}/${name}\n`).join('---\n')
    await expect(applied(text, { by: { ...contextOf(world.server, mine.token), client } })).rejects.toThrow(message)
  } finally {
    server.close()
  }
}

test.each([
  ['the HTML of a proxy', 502, '<html><h1>502 Bad Gateway</h1></html>', / answered 502, but is not a platform API: check the URL$/],
  ['a server that is not available', 503, JSON.stringify({ code: 14, message: 'no store', details: [] }), /^no store$/],
])('%s is reported once, not for each document', async (_title, status, body, message) => {
  let requests = 0
  const proxy: RequestListener = (_request, response) => {
    requests += 1
    response.writeHead(status, { 'content-type': 'text/html' }).end(body)
  }
  await expectRefused(proxy, message)
  expect(context.notes).toEqual([])
  expect(requests).toBeGreaterThan(0)
})

test('a proxy that refuses one document is an error of that document, and the others are checked', async () => {
  const { port } = new URL(world.server.config.baseUrl)
  const proxy: RequestListener = (request, response) => {
    const refused = (request.url ?? '').includes('two')
    if (refused) return void response.writeHead(403, { 'content-type': 'text/html' }).end('<html>blocked</html>')
    const passed = forward({ host: '127.0.0.1', port, path: request.url, method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers)
      answer.pipe(response)
    })
    request.pipe(passed)
  }
  await expectRefused(proxy, 'one document has an error: nothing was changed')
  expect(context.notes).toEqual([expect.stringMatching(/two.* answered 403, but is not a platform API/)])
})
