import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { readFile, stat } from 'node:fs/promises'
import { connect as connectHttp2 } from 'node:http2'
import { connect, createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { decodeJwt } from 'jose'
import { describe, expect, onTestFinished, test } from 'vitest'
import { slowness } from '../../budgets.ts'
import { ok } from '../../support/test-server.ts'
import { etcdSettings, shareEtcd } from '../../support/parts/etcd.ts'
import { makeDevHome, readToken, startDev } from './harness/dev-home.ts'
import { runProcess } from './harness/taproot-process.ts'

/** Maximum processor time of a second start on the reference machine, in milliseconds. */
const secondStartMs = 1_200
/** Number of starts of which the cheapest counts. */
const measuredStarts = 3

/** Processor time that a process has used, in milliseconds. */
async function cpuMsOf(pid: number): Promise<number> {
  if (process.platform !== 'linux') {
    const { stdout } = await promisify(execFile)('ps', ['-o', 'cputime=', '-p', String(pid)])
    return (
      stdout
        .trim()
        .split(':')
        .reduce((sum, part) => sum * 60 + Number(part), 0) * 1000
    )
  }
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8')
  // After the name: state and ten more fields, then user and system time in ticks of 10 ms.
  const [user, system] = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .slice(11, 13)
  return (Number(user) + Number(system)) * 10
}

/** Runs a printed command in a shell, and returns its output. */
async function paste(line: string, cwd: string): Promise<string> {
  const { stdout } = await promisify(execFile)('sh', ['-c', line.replace('curl ', 'curl -sS --fail-with-body ')], {
    cwd,
    env: { PATH: process.env['PATH'] ?? '' },
  })
  return stdout
}

describe('taproot dev', () => {
  test('taproot dev prints few lines, a command that works and a token for the owner only; a second start has the same demo group', async () => {
    const home = await makeDevHome()
    const first = await startDev(home)
    expect(first.stdout.trimEnd().split('\n').length).toBeLessThanOrEqual(12)
    const line = first.stdout.split('\n').find((text) => text.includes('curl ')) ?? ''
    const { groups } = JSON.parse(await paste(line, home.cwd)) as { groups: { uid: string; name: string }[] }
    expect(groups.map(({ name }) => name)).toEqual(['demo'])

    const tokenFile = await stat(join(home.cwd, '.taproot', 'token'))
    expect(tokenFile.mode & 0o777).toBe(0o600)
    const claims = decodeJwt(await readToken(home))
    expect(claims).toMatchObject({ iss: `http://localhost:${home.apiPort}`, aud: `http://localhost:${home.apiPort}` })
    expect((claims.exp ?? 0) - (claims.iat ?? 0)).toBe(3600)
    expect(claims.sub?.startsWith(`${groups[0]?.uid}/`)).toBe(true)
    const made = ok(await home.rest.call('CreateGroup', { parent: groups[0]?.uid ?? '', group: { name: 'kept' } }, { token: await readToken(home) }))
    expect((await first.end('SIGINT')).code).toBe(0)

    const second = await startDev(home)
    expect(JSON.parse(await paste(line, home.cwd))).toMatchObject({ totalCount: '2', groups: expect.arrayContaining([groups[0], made]) as unknown })
    expect((await second.end('SIGTERM')).code).toBe(0)
  })

  test('taproot dev starts the second time with little processor time', async () => {
    const home = await makeDevHome()
    await (await startDev(home)).end('SIGINT')
    const takenMs: number[] = []
    for (let starts = 0; starts < measuredStarts; starts += 1) {
      const again = await startDev(home)
      takenMs.push(await cpuMsOf(again.pid))
      await again.end('SIGINT')
    }
    expect(Math.min(...takenMs)).toBeLessThan(secondStartMs * slowness())
  })

  test('taproot dev serves discovery and keys of the development issuer at <baseUrl>/dev/issuer', async () => {
    const home = await makeDevHome()
    await startDev(home)
    const issuer = `http://localhost:${home.apiPort}/dev/issuer`
    const discovery = (await (await fetch(`${issuer}/.well-known/openid-configuration`)).json()) as { issuer: string; jwks_uri: string }
    expect(discovery.issuer).toBe(issuer)
    const { keys } = (await (await fetch(discovery.jwks_uri)).json()) as { keys: object[] }
    expect(keys.length).toBeGreaterThan(0)
    for (const key of keys) expect(key).not.toHaveProperty('d')
  })

  test.each(['SIGINT', 'SIGTERM'] as const)('taproot dev stops on %s within 5 s with code 0, whatever connections clients keep open', async (signal) => {
    const home = await makeDevHome()
    const dev = await startDev(home)
    const half = connect(home.apiPort, '127.0.0.1')
    half.on('error', () => undefined)
    half.write('POST /iam/v2/groups HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"na')
    const silent = connect(home.apiPort, '127.0.0.1').on('error', () => undefined)
    const ops = connect(home.opsPort, '127.0.0.1').on('error', () => undefined)
    const session = connectHttp2(`http://127.0.0.1:${home.apiPort}`).on('error', () => undefined)
    await Promise.all([half, silent, ops, session].map((socket) => once(socket, 'connect')))
    const stream = session.request({
      ':method': 'POST',
      ':path': '/taproot.iam.v2.GroupsService/ListGroups',
      'content-type': 'application/grpc',
      te: 'trailers',
    })
    stream.on('error', () => undefined).write(Buffer.of(0, 0, 0))
    // Earlier requests are read before this one is answered.
    ok(await home.rest.call('ListGroups', {}, { token: await readToken(home) }))
    const startedAt = performance.now()
    const { code, stderr } = await dev.end(signal)
    expect(performance.now() - startedAt).toBeLessThan(5_000)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    for (const socket of [half, silent, ops, session]) socket.destroy()
  })

  test.each([[['api.port', 'registry.port']], [['ops.port', 'api.port', 'registry.port']]])(
    'taproot dev names each of the busy ports %j with its setting in one line',
    async (settings) => {
      const home = await makeDevHome()
      const sentences = await Promise.all(
        settings.map(async (setting) => {
          const variable = `TAPROOT_${setting.replace('.', '_').toUpperCase()}`
          const busy = createServer().listen(Number(home.env[variable]), '127.0.0.1')
          onTestFinished(() => void busy.close())
          await once(busy, 'listening')
          return `port ${home.env[variable]} is in use: set ${setting} (${variable}) to another one`
        }),
      )
      const { code, stderr } = await runProcess({ args: ['dev'], env: home.env, cwd: home.cwd })
      expect(code).toBe(1)
      expect(
        stderr
          .split('; ')
          .map((text) => text.replace('taproot: ', '').trimEnd())
          .toSorted(),
      ).toEqual(sentences.toSorted())
    },
  )

  test.each(['api.port', 'ops.port'])('taproot dev fails on a busy %s with one line that names the setting, and code 1', async (setting) => {
    const home = await makeDevHome()
    const busy = createServer().listen(0, '127.0.0.1')
    onTestFinished(() => void busy.close())
    await once(busy, 'listening')
    // A listening TCP server has an AddressInfo.
    const { port } = busy.address() as AddressInfo
    const variable = `TAPROOT_${setting.replace('.', '_').toUpperCase()}`
    const { code, stdout, stderr } = await runProcess({ args: ['dev'], env: { ...home.env, [variable]: String(port) }, cwd: home.cwd })
    expect(code).toBe(1)
    expect(stdout).toBe('')
    expect(stderr.trimEnd().split('\n')).toEqual([expect.stringContaining(setting)])
    expect(stderr).toContain(variable)
    expect(stderr).toContain(String(port))
  })

  test('taproot dev refuses a second process on the same data in one line; the first continues', async () => {
    const home = await makeDevHome()
    await startDev(home)
    const others = await makeDevHome()
    const { code, stdout, stderr } = await runProcess({ args: ['dev'], env: others.env, cwd: home.cwd })
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr.trimEnd().split('\n')).toEqual([expect.stringMatching(/taproot\.db.*another process/)])
    ok(await home.rest.call('ListGroups', {}, { token: await readToken(home) }))
  })

  test('taproot dev works the same on etcd: the next start finds what the first created', async () => {
    const home = await makeDevHome(etcdSettings(await shareEtcd()))
    const first = await startDev(home)
    const demo = ok(await home.rest.call('ListGroups', {}, { token: await readToken(home) }))
    expect((await first.end('SIGINT')).code).toBe(0)
    await startDev(home)
    expect(ok(await home.rest.call('ListGroups', {}, { token: await readToken(home) }))).toEqual(demo)
  })
})
