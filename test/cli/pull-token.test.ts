import { createServer, type Server } from 'node:http'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { createPlatformClient, type PlatformClient } from '../../src/cli/client/platform-client.ts'
import { createPullToken, listPullTokens, parseTtl, revokePullToken, type PullToken, type PullTokensOptions } from '../../src/cli/pull-token.ts'
import { systemClock, systemRandom } from '../../src/server/runtime.ts'
import { freshName, makeMember, startTestServer } from '../support/test-server.ts'
import { freePorts } from '../support/parts/free-port.ts'
import { makeDevHome, readToken, startDev } from '../e2e/process/harness/dev-home.ts'
import { runProcess } from '../e2e/process/harness/taproot-process.ts'
import { basic, RegistryWorld, type Tenant } from '../registry/tokens/registry-world.ts'
import { listenOnLoopback } from '../support/parts/loopback.ts'

const hourMs = 3_600_000

/** The base URL of a server, which is closed after the test. */
async function listening(server: Server): Promise<string> {
  const port = await listenOnLoopback(server)
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${port}`
}

describe('pull tokens', () => {
  let world: RegistryWorld
  let mine: Tenant

  beforeAll(async () => {
    world = new RegistryWorld(await startTestServer())
    mine = await world.tenant()
  })
  afterAll(() => world.server.stop())

  const clientOf = (token: string): PlatformClient => createPlatformClient({ baseUrl: world.server.config.baseUrl, token })
  const optionsOf = (token = mine.token): PullTokensOptions => ({ client: clientOf(token), registry: world.host, clock: systemClock, random: systemRandom })
  const create = (options = optionsOf(), request: Partial<Parameters<typeof createPullToken>[1]> = {}): ReturnType<typeof createPullToken> =>
    createPullToken(options, { group: mine.group, name: undefined, ttlMs: 720 * hourMs, ...request })

  test('pull tokens can pull, and nothing else, in the group and below', async () => {
    const made = await create()
    expect(Math.abs(Date.parse(made.expirationTime) - Date.now() - 720 * hourMs)).toBeLessThan(60_000)
    const authorization = basic(made.uid, made.password)
    const token = await world.tokenFor(`repository:${mine.path}:pull,push,delete`, authorization)
    expect(world.claimsOf(token).access).toMatchObject([{ name: mine.path, actions: ['pull'], uid: mine.repo }])
    expect(await world.list(mine.path, authorization)).toMatchObject({ status: 200 })
    expect(await world.upload(mine.path, authorization)).toMatchObject({ status: 403 })
  })

  test('pull tokens are created for a subgroup given by its path', async () => {
    const team = await world.group(mine.group, 'team')
    await world.repo(team, 'tool')
    const made = await create(optionsOf(), { group: `${mine.name}/team`, name: 'for the cluster' })
    expect(made.name).toBe('for the cluster')
    expect(made.uid.startsWith(`${team}/`)).toBe(true)
    const authorization = basic(made.uid, made.password)
    expect(await world.list(`${mine.name}/team/tool`, authorization)).toMatchObject({ status: 200 })
    expect(await world.list(mine.path, authorization)).toMatchObject({ status: 403 })
  })

  test('pull tokens are listed, and revoked by deleting the identity', async () => {
    const made = await create()
    const { password: _password, ...shown } = made
    expect(await listPullTokens(optionsOf(), mine.group)).toContainEqual(shown)
    expect(await listPullTokens(optionsOf(), undefined)).toContainEqual(shown)
    await revokePullToken(optionsOf(), made.uid)
    expect(await listPullTokens(optionsOf(), mine.group)).not.toContainEqual(shown)
    expect(await world.requestToken([`repository:${mine.path}:pull`], basic(made.uid, made.password))).toMatchObject({ status: 401 })
  })

  test('pull tokens are the only identities that revoke deletes', async () => {
    const member = await makeMember(world.server, mine.group, { role: 'viewer' })
    await expect(revokePullToken(optionsOf(), member.uid)).rejects.toThrow('not a pull token')
    await expect(revokePullToken(optionsOf(), `${mine.group}/0123456789abcdef`)).rejects.toMatchObject({ code: 5 })
  })

  test("pull tokens can't be listed by a caller with only the create capability", async () => {
    const creator = await makeMember(world.server, mine.group, { role: 'registry.pull_token_creator' })
    const made = await create(optionsOf(creator.token))
    expect(await world.list(mine.path, basic(made.uid, made.password))).toMatchObject({ status: 200 })
    expect(await listPullTokens(optionsOf(creator.token), mine.group)).toEqual([])
  })

  test('pull tokens leave nothing behind if the caller may not create bindings', async () => {
    const before = await listPullTokens(optionsOf(), mine.group)
    const viewer = await makeMember(world.server, mine.group, { role: 'viewer' })
    await expect(create(optionsOf(viewer.token))).rejects.toMatchObject({ code: 7 })
    expect(await listPullTokens(optionsOf(), mine.group)).toEqual(before)
  })

  test.for([
    ['a group that does not exist', { group: 'nowhere/at-all' }, 5],
    ['an invalid name', { name: 'UPPER' }, 3],
    ['a lifetime longer than a year', { ttlMs: 9_000 * hourMs }, 3],
  ] as const)('pull tokens with %s are refused by the API', async ([, request, code]) => {
    await expect(create(optionsOf(), request)).rejects.toMatchObject({ code })
  })

  test('pull tokens are listed in full beyond one page', async () => {
    const busy = await world.tenant(freshName('busy'))
    const options = optionsOf(busy.token)
    for (let at = 0; at < 205; at += 5) await Promise.all([0, 1, 2, 3, 4].map(() => create(options, { group: busy.group })))
    expect(await listPullTokens(options, busy.group)).toHaveLength(205)
  })
})

describe('--ttl', () => {
  test.for([
    ['90m', 1.5 * hourMs],
    ['720h', 720 * hourMs],
    ['30d', 720 * hourMs],
    ['8760h', 8760 * hourMs],
    ['365d', 8760 * hourMs],
  ] as const)('%s', ([text, ms]) => {
    expect(parseTtl(text)).toBe(ms)
  })

  test.for(['', '0h', '720', '-1h', '1.5h', '8761h', '366d', '1y', 'h', '1h30m', '999999999h'])('%j is refused', (text) => {
    expect(() => parseTtl(text)).toThrow('8760h at most')
  })
})

describe('the client of pull-token', () => {
  test.for([
    ['no answer', 'http://127.0.0.1:1', 'cannot be reached'],
    ['a malformed host', 'http://nowhere.invalid', 'cannot be reached'],
  ] as const)('the client of pull-token reports %s in one line', async ([, baseUrl, part]) => {
    const client = createPlatformClient({ baseUrl, token: 'x' })
    await expect(client.call({ method: 'GET', path: '/iam/v2/groups' })).rejects.toThrow(part)
  })

  test('the client of pull-token says that the connection was refused', async () => {
    const [port = 0] = await freePorts(1)
    const client = createPlatformClient({ baseUrl: `http://127.0.0.1:${port}`, token: 'x' })
    await expect(client.call({ method: 'GET', path: '/iam/v2/groups' })).rejects.toThrow('ECONNREFUSED')
  })

  test('the client of pull-token sends its token to no other server that an answer names', async () => {
    const other = createServer((_, response) => response.end('{}'))
    const asked: unknown[] = []
    other.on('request', ({ headers }) => asked.push(headers.authorization))
    const named = await listening(other)
    const redirecting = await listening(createServer((_, response) => response.writeHead(307, { location: `${named}/iam/v2/groups` }).end()))
    const client = createPlatformClient({ baseUrl: redirecting, token: 'x' })
    await expect(client.call({ method: 'GET', path: '/iam/v2/groups' })).rejects.toThrow('307')
    expect(asked).toEqual([])
  })
})

describe('taproot pull-token', () => {
  test("taproot pull-token without a caller's token names the file that it looked for, and how to give another", async () => {
    const { env, cwd } = await makeDevHome()
    const run = (...args: string[]): ReturnType<typeof runProcess> => runProcess({ args: ['pull-token', 'list', ...args], env, cwd })
    for (const [args, file] of [
      [[], '.taproot/token'],
      [['--token-file', 'no/such-file'], 'no/such-file'],
    ] as const) {
      const { code, stdout, stderr } = await run(...args)
      expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
      expect(stderr.trimEnd().split('\n')).toHaveLength(1)
      expect(stderr).toContain(file)
      expect(stderr).toContain('--token-file')
    }
  })

  test('taproot pull-token creates, lists and revokes against a running server, and prints a login command to paste', async () => {
    const home = await makeDevHome()
    await startDev(home)
    const run = (...args: string[]): ReturnType<typeof runProcess> => runProcess({ args: ['pull-token', ...args], env: home.env, cwd: home.cwd })
    expect(await readToken(home)).not.toBe('')
    const made = await run('create', '--group', 'demo', '--ttl', '2h')
    expect(made).toMatchObject({ code: 0, stderr: '' })
    const uid = /user name {2}(\S+)/.exec(made.stdout)?.[1] ?? ''
    const password = /password {3}(\S+)/.exec(made.stdout)?.[1] ?? ''
    expect(made.stdout).toMatch(new RegExp(`^ {2}echo ${password} \\| docker login localhost:\\d+ --username ${uid} --password-stdin$`, 'm'))
    const listed = await run('list')
    expect(listed.stdout).toContain(uid)
    expect(listed.stdout).not.toContain(password)
    expect(JSON.parse((await run('list', '--group', 'demo', '--json')).stdout)).toMatchObject([{ uid }])
    expect(await run('revoke', uid)).toMatchObject({ code: 0, stdout: `revoked ${uid}\n` })
    expect(JSON.parse((await run('list', '--json')).stdout)).toEqual([])
    const again = await run('revoke', uid)
    expect(again).toMatchObject({ code: 1, stdout: '' })
    expect(again.stderr.trimEnd().split('\n')).toHaveLength(1)
    const printed = await run('create', '--group', 'demo', '--secret', 'cluster.pull')
    expect(printed).toMatchObject({ code: 0, stderr: '' })
    const [one] = JSON.parse((await run('list', '--json')).stdout) as PullToken[]
    const metadata = { name: 'cluster.pull', annotations: { 'taproot.dev/expires': one?.expirationTime } }
    const secret = JSON.parse(printed.stdout) as { data: Record<string, string> }
    expect(secret).toEqual({
      apiVersion: 'v1',
      kind: 'Secret',
      metadata,
      type: 'kubernetes.io/dockerconfigjson',
      data: { '.dockerconfigjson': expect.any(String) },
    })
    const { auths } = JSON.parse(Buffer.from(secret.data['.dockerconfigjson'] ?? '', 'base64').toString()) as { auths: Record<string, Record<string, string>> }
    const [[host = '', login = {}] = []] = Object.entries(auths)
    expect(login).toEqual({ username: one?.uid, password: expect.any(String), auth: Buffer.from(`${one?.uid}:${login['password']}`).toString('base64') })
    expect((await fetch(`http://${host}/token?service=${host}`, { headers: { authorization: `Basic ${login['auth']}` } })).status).toBe(200)

    expect(await run('create', '--group', 'demo', '--url', 'http://127.0.0.1:1')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--registry') as unknown,
    })
  })
})
