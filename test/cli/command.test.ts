import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:https'
import { symlink, writeFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { join, resolve } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { selfSigned } from '../auth/certificate.ts'
import { freshName, makeMember, startTestServer, type TestServer } from '../support/test-server.ts'
import { makeDevHome, readToken, startDev } from '../e2e/process/harness/dev-home.ts'
import { describeWithPart, requirePart } from '../support/parts/require-part.ts'
import { freshDirectory, runProcess, type Ending } from '../e2e/process/harness/taproot-process.ts'
import { RegistryWorld, type Tenant } from '../registry/tokens/registry-world.ts'
import { makeGroups } from './client-world.ts'
import { programEnvironment } from '../support/parts/own-program.ts'

const plugin = resolve(import.meta.dirname, '../../bin/kubectl-taproot.js')

/** Runs the kubectl plugin by its file, as kubectl does, with no other command on the PATH. */
async function runPlugin(args: readonly string[], env: Readonly<Record<string, string>>): Promise<Ending> {
  const child = spawn(plugin, args, { cwd: await freshDirectory(), env: { ...programEnvironment(), ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  const [stdout, stderr] = [text(child.stdout), text(child.stderr)]
  const [code] = (await once(child, 'close')) as [number | null] // a cast of the event's arguments
  return { code, stdout: await stdout, stderr: await stderr }
}

function lines(printed: string): string[] {
  return printed.trimEnd().split('\n')
}

describe('the client commands against a server', () => {
  let server: TestServer
  let mine: Tenant
  let env: Record<string, string>

  beforeAll(async () => {
    const world = new RegistryWorld(await startTestServer())
    server = world.server
    mine = await world.tenant(freshName('mine'))
    env = { TAPROOT_SERVER: server.config.baseUrl, TAPROOT_TOKEN: mine.token }
  })
  afterAll(() => server.stop())

  const run = async (args: readonly string[], variables: Readonly<Record<string, string>> = env): Promise<Ending> =>
    runProcess({ args, env: variables, cwd: await freshDirectory() })

  test('client commands take server and token from the environment, and exit with code 0', async () => {
    const { code, stdout, stderr } = await run(['get', 'groups'])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(lines(stdout)).toEqual([expect.stringMatching(/^PATH +AGE/), expect.stringContaining(mine.name)])
  })

  test('client commands prefer options to environment variables', async () => {
    const directory = await freshDirectory()
    await writeFile(join(directory, 'token'), `${mine.token}\n`)
    const args = ['get', 'groups', '-o', 'name', '--server', `${server.config.baseUrl}/`, '--token-file', join(directory, 'token')]
    expect(await run(args, { TAPROOT_SERVER: 'http://127.0.0.1:1', TAPROOT_TOKEN: 'old' })).toEqual({ code: 0, stdout: `${mine.group}\n`, stderr: '' })
    const file = { TAPROOT_SERVER: server.config.baseUrl, TAPROOT_TOKEN_FILE: join(directory, 'token') }
    expect(await run(['tree', '--depth', '1'], file)).toMatchObject({ code: 0, stdout: expect.stringContaining(mine.name) as unknown })
  })

  test.for([
    ['not found', ['get', 'group', 'nowhere'], /^taproot: there is no group nowhere .*\(code 5 NOT_FOUND\)$/],
    ['not found by uid', ['get', 'group', '0'.repeat(40)], /^taproot: .*\(code 5 NOT_FOUND, request [\w-]+\)$/],
    [
      'a value that the API refuses',
      ['get', 'tags', '--filter', 'updated_since=soon'],
      /^taproot: .*updated_since.*\(code 3 INVALID_ARGUMENT, request [\w-]+\)$/,
    ],
    ['a server that does not answer', ['whoami', '--server', 'http://127.0.0.1:1'], /cannot be reached/],
    ['an invalid token', ['whoami', '--token', 'x'], /\(code 16 UNAUTHENTICATED, request [\w-]+\)$/],
  ] as const)('client commands fail with one line, code 1 and no output: %s', async ([, args, line]) => {
    const { code, stdout, stderr } = await run(args)
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(lines(stderr)).toEqual([expect.stringMatching(line)])
  })

  test('client commands print the missing capability, code, reason and request id if denied, and exit with code 1', async () => {
    const puller = await makeMember(server, mine.group, { role: 'registry.pull' })
    const { code, stderr } = await run(['get', 'identity', mine.owner, '--token', puller.token])
    expect([code, lines(stderr)]).toEqual([1, [expect.stringMatching(/identity\.list.*\(code 7 PERMISSION_DENIED, request [\w-]+\)$/)]])
  })

  test.for([
    ['an unknown option', ['get', 'groups', '--colour'], '--colour'],
    ['an unknown kind', ['get', 'grops'], 'did you mean groups'],
    ['no kind', ['get'], 'kind'],
    ['one argument too many', ['whoami', 'you'], 'you'],
    ['an unknown output format', ['tree', '-o', 'xml'], 'xml'],
    ['an output format that the command lacks', ['whoami', '-o', 'name'], 'name'],
    ['a limit that is not a number', ['get', 'groups', '--limit', '0'], '--limit'],
    ['a limit over one page', ['tree', '--limit', '201'], '200'],
    ['a limit for a stream', ['events', '--follow', '--limit', '3'], "'-f, --follow'"],
    ['a filter without a value', ['get', 'groups', '--filter', 'name'], 'field=value'],
    ['two tokens', ['whoami', '--token', 'a', '--token-file', 'b'], 'cannot be combined'],
    ['a token file that does not exist', ['whoami', '--token-file', 'absent'], 'absent'],
    ['a server that is not a URL', ['whoami', '--server', 'taproot.example'], 'URL'],
    ['an identity that is not a uid', ['whoami', '--identity', 'me'], 'uid'],
    ['a certificate file that does not exist', ['whoami', '--ca-file', 'absent'], 'absent'],
  ] as const)('client commands fail with one line that names the fault, and code 2: %s', async ([, args, named]) => {
    const { code, stdout, stderr } = await run(args)
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(lines(stderr)).toEqual([expect.stringMatching(/^taproot: /)])
    expect(stderr).toContain(named)
  })

  test.for([
    ['no server', {}, 'TAPROOT_SERVER'],
    ['no token', { TAPROOT_SERVER: 'http://127.0.0.1:1' }, 'TAPROOT_TOKEN'],
    ['a token that is not a token', { TAPROOT_SERVER: 'http://127.0.0.1:1', TAPROOT_TOKEN: 'a b' }, 'no token'],
  ] as const)('client commands fail with one line that names the missing setting, and code 2: %s', async ([, variables, named]) => {
    const { code, stdout, stderr } = await run(['whoami'], variables)
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(lines(stderr)).toEqual([expect.stringContaining(named)])
  })

  test.for(['get', 'tree', 'whoami'])('client commands list every option and variable in %s --help', async (command) => {
    const { code, stdout, stderr } = await run([command, '--help'])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toContain(`Usage: taproot ${command}`)
    for (const option of ['--server', '--token', '--token-file', '--identity', '--ca-file', '-o, --output']) expect(stdout).toContain(option)
    for (const variable of ['SERVER', 'TOKEN', 'TOKEN_FILE', 'IDENTITY', 'CA_FILE']) expect(stdout).toContain(`(TAPROOT_${variable})`)
  })

  test('client commands use variables that a server does not read as its settings', async () => {
    expect(await run(['config'])).toMatchObject({ code: 0, stderr: '' })
  })

  /** Runs a line of a shell in which `taproot` is the command. */
  const runShell = async (line: string): Promise<[stdout: string, stderr: string]> => {
    const program = resolve(import.meta.dirname, '../../src/cli/taproot.ts')
    const child = spawn('sh', ['-c', `taproot() { "$node" --disable-warning=ExperimentalWarning "$program" "$@"; }; ${line}`], {
      env: { ...programEnvironment(), ...env, node: process.execPath, program },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const [stdout, stderr] = [text(child.stdout), text(child.stderr)]
    await once(child, 'close')
    return [await stdout, await stderr]
  }

  test('client commands end silently if the reader of their output closes the pipe', async () => {
    await makeGroups(server, mine.group, 1_000)
    expect(await runShell('taproot get groups -o json | head -1; echo "ended"')).toEqual(['[\nended\n', ''])
  })

  test('a command that changes records finishes if the reader of its output closes the pipe', async () => {
    const paths = ['one', 'two', 'three'].map((name) => `${mine.name}/piped-${name}`)
    const documents = paths.map((path) => `{kind: group, path: ${path}}`).join()
    const shown = async (): Promise<string[]> => (await run(['get', 'groups', '-o', 'wide', '--in', mine.group], env)).stdout.match(/\S+\/piped-\w+/g) ?? []
    expect(await runShell(`echo '[${documents}]' | taproot apply -f - | true`)).toEqual(['', ''])
    expect((await shown()).toSorted()).toEqual(paths.toSorted())
    expect(await runShell(`taproot delete groups --yes ${paths.join(' ')} | true`)).toEqual(['', ''])
    expect(await shown()).toEqual([])
  })

  describeWithPart('kubectl', 'kubectl', () => {
    test('client commands are found as a kubectl plugin, with the same arguments and exit codes', async () => {
      const directory = await freshDirectory()
      await symlink(plugin, join(directory, 'kubectl-taproot'))
      const run = (...args: string[]): ReturnType<typeof spawnSync> =>
        spawnSync(requirePart('kubectl'), ['taproot', ...args], { env: { ...env, PATH: `${directory}:${process.env['PATH'] ?? ''}` }, encoding: 'utf8' })
      expect(run('--help')).toMatchObject({ status: 0, stderr: '', stdout: expect.stringContaining('Usage: kubectl taproot') as unknown })
      expect(run('get', 'groups', '--nope')).toMatchObject({ status: 2, stdout: '', stderr: expect.stringContaining('--nope') as unknown })
    })
  })

  describe('kubectl taproot', () => {
    test('kubectl taproot runs the same commands', async () => {
      const listed = await runPlugin(['get', 'groups', '--in', mine.group, '--limit', '2', '-o', 'json'], env)
      expect(listed).toEqual(await run(['get', 'groups', '--in', mine.group, '--limit', '2', '-o', 'json']))
      expect(listed).toMatchObject({ code: 0, stderr: '' })
      expect(await runPlugin(['whoami', '-o', 'yaml'], env)).toEqual(await run(['whoami', '-o', 'yaml']))
      expect(await runPlugin(['tree', mine.name, '--limit', '3'], env)).toEqual(await run(['tree', mine.name, '--limit', '3']))
    })

    test('kubectl taproot shows its own name in help and errors, with the same codes', async () => {
      const help = await runPlugin(['--help'], {})
      expect(help).toMatchObject({ code: 0, stderr: '' })
      expect(help.stdout).toContain('Usage: kubectl taproot')
      for (const command of ['get', 'tree', 'whoami']) expect(help.stdout).toMatch(new RegExp(`^  ${command} `, 'm'))
      expect((await runPlugin(['get', '--help'], {})).stdout).toMatch(/Usage: kubectl taproot get[\s\S]*kubectl taproot get groups/)
      expect(await runPlugin(['get', 'group', 'nowhere'], env)).toMatchObject({ code: 1, stderr: expect.stringMatching(/^kubectl taproot: /) as unknown })
      for (const args of [['whoami', '--nope'], ['nope'], ['--nope'], ['get', 'grops']])
        expect(await runPlugin(args, env)).toMatchObject({ code: 2, stdout: '' })
    })
  })
})

test('without a server option, the development server of this folder is used, and its token is sent to no other server', async () => {
  const home = await makeDevHome()
  await startDev(home)
  const run = (...args: string[]): Promise<Ending> => runProcess({ args, env: home.env, cwd: home.cwd })
  expect(await run('get', 'group', 'demo', '-o', 'name')).toMatchObject({ code: 0, stderr: '' })
  expect(await run('whoami', '--token', await readToken(home))).toMatchObject({ code: 0, stdout: expect.stringContaining('demo-owner') as unknown })
  expect(await run('whoami', '--server', `http://127.0.0.1:${home.apiPort}`)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('no access token') as unknown,
  })
})

test('a server with a certificate of a private authority is reached with --ca-file and not without', async () => {
  const { certificate, key } = selfSigned('taproot.internal')
  const cwd = await freshDirectory()
  await writeFile(join(cwd, 'ca.crt'), certificate)
  const server = createServer({ cert: certificate, key }, (_request, response) => response.end(JSON.stringify({ groups: [], totalCount: '0' }))).listen(
    0,
    '127.0.0.1',
  )
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo // a cast: it listens on a port
  const env = { TAPROOT_SERVER: `https://127.0.0.1:${port}`, TAPROOT_TOKEN: 'x' }
  const args = ['get', 'groups', '-o', 'json']
  expect(await runProcess({ args: [...args, '--ca-file', 'ca.crt'], env, cwd })).toEqual({ code: 0, stdout: '[]\n', stderr: '' })
  expect(await runProcess({ args, env, cwd })).toMatchObject({ code: 1, stderr: expect.stringContaining('cannot be reached') as unknown })
  await writeFile(join(cwd, 'none.crt'), 'nothing')
  expect(await runProcess({ args: [...args, '--ca-file', 'none.crt'], env, cwd })).toMatchObject({ code: 2 })
})
