import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { text } from 'node:stream/consumers'
import { decodeJwt } from 'jose'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { personUid } from '../../../src/auth/oidc/issuer-name.ts'
import { openConnection } from '../../../src/cli/client/connection.ts'
import { authStatus, configureDocker, type StatusFormat } from '../../../src/cli/sign-in/auth-command.ts'
import { listContexts, removeContext, useContext } from '../../../src/cli/sign-in/context-command.ts'
import { answerHelper } from '../../../src/cli/sign-in/docker-credential.ts'
import { logout } from '../../../src/cli/sign-in/login.ts'
import { freshDirectory, runProcess, type Ending } from '../../e2e/process/harness/taproot-process.ts'
import { crane } from '../../support/parts/crane.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { programEnvironment } from '../../support/parts/own-program.ts'
import { editContexts, expireTokens, newAccount, signIn, startSignInWorld, storedContext, type Account, type SignInWorld } from './sign-in-world.ts'

const helper = resolve(import.meta.dirname, '../../../bin/docker-credential-taproot.js')

/** Runs the credential helper by its file, as registry clients do. */
async function runHelper(account: Account, action: string, input = ''): Promise<Ending> {
  const { HOME = '', XDG_CONFIG_HOME = '' } = account.env
  const child = spawn(helper, [action], { env: { ...programEnvironment(), HOME, XDG_CONFIG_HOME }, stdio: 'pipe' })
  child.stdin.end(input)
  const [stdout, stderr] = [text(child.stdout), text(child.stderr)]
  const [code] = (await once(child, 'close')) as [number | null] // a cast of the event's arguments
  return { code, stdout: await stdout, stderr: await stderr }
}

describe('commands with a sign-in', () => {
  let world: SignInWorld
  let home: string
  let account: Account
  let person: string
  let registry: string
  let baseUrl: string

  beforeAll(async () => {
    world = await startSignInWorld()
    home = await mkdtemp(join(tmpdir(), 'taproot-account-'))
    account = await newAccount({ env: { HOME: home } })
    person = await signIn(world, account)
    registry = world.server.config.registry.host
    ;({ baseUrl } = world.server.config)
  })
  afterAll(async () => {
    await world.stop()
    await rm(home, { recursive: true, force: true })
  })

  const run = async (args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Ending> => {
    const { HOME = '', XDG_CONFIG_HOME = '' } = account.env
    return runProcess({ args, env: { HOME, XDG_CONFIG_HOME, ...env }, cwd: await freshDirectory() })
  }

  test('commands at the same time use the sign-in and renew its expired token once; options and variables come first', async () => {
    await expireTokens(account)
    const { refreshToken } = await storedContext(account)
    const listed = { code: 0, stdout: `${world.org.group}\n`, stderr: '' }
    expect(await Promise.all([run(['get', 'groups', '-o', 'name']), run(['get', 'groups', '-o', 'name', '--context', new URL(baseUrl).host])])).toEqual([
      listed,
      listed,
    ])
    const after = await storedContext(account)
    expect(after.refreshToken).not.toBe(refreshToken)
    const owner = await run(['whoami', '-o', 'json'], { TAPROOT_TOKEN: world.org.token })
    expect(JSON.parse(owner.stdout)).toMatchObject({ identity: { uid: world.org.owner } })
    const elsewhere = await run(['get', 'groups'], { TAPROOT_SERVER: 'http://127.0.0.1:1' })
    expect(elsewhere).toMatchObject({ code: 2, stderr: expect.stringContaining('run "taproot login http://127.0.0.1:1"') as unknown })
  })

  test('pull-token uses the sign-in and the registry host of its server', async () => {
    await expireTokens(account)
    const { code, stdout, stderr } = await run(['pull-token', 'create', '--group', world.org.group, '--json'])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(JSON.parse(stdout)).toMatchObject({ registry, password: expect.stringMatching(/./) as unknown })
  })

  test('auth status shows the server, the person and both ends, and no token', async () => {
    const status = async (format: StatusFormat): Promise<string> => {
      const own = await newAccount({ env: { ...account.env, TAPROOT_DATA_DIR: home } })
      await authStatus({ ...own, ...(await openConnection({}, own.env)), program: 'taproot' }, format)
      return own.printed()
    }
    const stdout = await status('json')
    expect(JSON.parse(stdout)).toMatchObject({
      context: new URL(baseUrl).host,
      server: baseUrl,
      credential: 'context',
      signedInUntil: expect.stringMatching(/Z$/) as unknown,
      expirationTime: expect.stringMatching(/Z$/) as unknown,
      identity: { uid: personUid(world.idp.issuer, person) },
      signedInAs: { issuer: world.idp.issuer, subject: person },
      roles: [{ role: 'owner', group: world.org.name }],
    })
    const { refreshToken, accessTokens } = await storedContext(account)
    for (const secret of [refreshToken, ...accessTokens.map(({ token }) => token)]) expect(stdout).not.toContain(secret)
    const lines = (await status('table')).split('\n')
    expect(lines.slice(0, 3)).toEqual([`context       ${new URL(baseUrl).host}`, `server        ${baseUrl}`, 'credential    context'])
  })

  test('the credential helper gives a token for the registry host only, also after it expired', async () => {
    for (const asked of [registry, `https://${registry}/v2/\n`]) {
      await expireTokens(account)
      const { code, stdout } = await runHelper(account, 'get', asked)
      const { ServerURL, Username, Secret } = JSON.parse(stdout) as Record<string, string>
      expect([code, ServerURL, Username]).toEqual([0, asked.trim(), '_token'])
      expect(decodeJwt(Secret ?? '')).toMatchObject({ sub: personUid(world.idp.issuer, person), aud: registry })
    }
    expect(await runHelper(account, 'list')).toEqual({ code: 0, stdout: `{"${registry}":"_token"}\n`, stderr: '' })
  })

  test.for([
    ['get', 'registry.example.com', 'credentials not found in native keychain'],
    ['get', '', 'no credentials server URL'],
    ['store', '{"ServerURL":"x","Username":"y","Secret":"z"}', expect.stringContaining('taproot login') as unknown],
    ['erase', 'registry.example.com', expect.stringContaining('taproot logout') as unknown],
    ['toString', '', expect.stringContaining('usage:') as unknown],
  ] as const)('the credential helper answers %s of "%s" with an error', async ([action, input, text]) => {
    expect(await answerHelper(account, action, input)).toEqual({ text, done: false })
  })

  test('the credential helper says how to sign in again after a logout', async () => {
    const other = await newAccount()
    await signIn(world, other)
    await logout(other, {})
    const { code, stdout, stderr } = await runHelper(other, 'get', registry)
    expect({ code, stdout, stderr }).toEqual({ code: 1, stdout: expect.stringContaining(`taproot login ${baseUrl}`) as unknown, stderr: '' })
  })

  test('configure-docker adds the helper and keeps all other settings', async () => {
    const folder = await freshDirectory()
    const docker = await newAccount({ env: { ...account.env, DOCKER_CONFIG: join(folder, 'new') } })
    const path = join(folder, 'new', 'config.json')
    await configureDocker(docker, {})
    expect([JSON.parse(await readFile(path, 'utf8')), (await stat(path)).mode & 0o777]).toEqual([{ credHelpers: { [registry]: 'taproot' } }, 0o600])
    await writeFile(path, '{"auths": {"quay.io": {"auth": "eDp5"}}, "credHelpers": {"gcr.io": "gcr"}, "credsStore": "pass"}')
    await configureDocker(docker, { registry: 'registry.example.com' })
    expect(JSON.parse(await readFile(path, 'utf8'))).toEqual({
      auths: { 'quay.io': { auth: 'eDp5' } },
      credHelpers: { 'gcr.io': 'gcr', 'registry.example.com': 'taproot' },
      credsStore: 'pass',
    })
    for (const broken of ['{"auths": {"secret"', '[]', '{"credHelpers": []}']) {
      await writeFile(path, broken)
      await expect(configureDocker(docker, {})).rejects.toMatchObject({ name: 'UsageError' })
      expect(await readFile(path, 'utf8')).toBe(broken)
    }
  })

  test('context list, use and remove show and change the sign-ins of the machine', async () => {
    const own = await newAccount()
    await signIn(world, own)
    const { name, refreshToken } = await storedContext(own)
    await editContexts(own, (file) => `${file}  - name: other\n    server: https://other.example\n    refreshToken: ${refreshToken}\n`)
    await useContext(own, 'other')
    await listContexts(own, 'table')
    expect(own.printed()).toMatch(new RegExp(`^\\* +other +https://other\\.example`, 'm'))
    expect(own.printed()).not.toContain(refreshToken)
    await expect(useContext(own, 'absent')).rejects.toThrow('there is no context absent')
    await removeContext(own, 'other', { local: true })
    await removeContext(own, name, {})
    await expect(storedContext(own)).rejects.toThrow('there is no context')
    expect(await world.server.rest.call('ExchangeRefreshToken', {}, { token: refreshToken })).toMatchObject({ code: 16 })
  })

  describeWithPart('crane', 'crane with the credential helper', () => {
    test('crane pushes and pulls after configure-docker, without docker login', async () => {
      const folder = await freshDirectory()
      const env = { ...account.env, DOCKER_CONFIG: folder, PATH: `${folder}:${process.env['PATH'] ?? ''}` } as Record<string, string>
      await symlink(helper, join(folder, 'docker-credential-taproot'))
      await configureDocker(await newAccount({ env }), {})
      await expireTokens(account)
      await writeFile(join(folder, 'layer.tar'), Buffer.alloc(1024))
      const image = `${registry}/${world.org.name}/app:1.0`
      const pushed = await crane(['append', '--new_layer', join(folder, 'layer.tar'), '--new_tag', image], { env })
      expect(pushed).toMatchObject({ code: 0 })
      expect(await crane(['digest', image], { env })).toMatchObject({ code: 0, stdout: expect.stringMatching(/^sha256:/) as unknown })
    })
  })
})
