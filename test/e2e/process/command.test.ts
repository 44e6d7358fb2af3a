import { createHash } from 'node:crypto'
import { stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { decodeJwt } from 'jose'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { settings } from '../../../src/config/setting.ts'
import { ok } from '../../support/test-server.ts'
import { makeDevHome, readToken, startDev, type DevHome } from './harness/dev-home.ts'
import { freshDirectory, runProcess, type Ending } from './harness/taproot-process.ts'

async function run(args: readonly string[], options: { env?: Record<string, string>; cwd?: string } = {}): Promise<Ending> {
  return runProcess({ args, env: options.env ?? {}, cwd: options.cwd ?? (await freshDirectory()) })
}

function lines(text: string): string[] {
  return text.trimEnd().split('\n')
}

describe('taproot --help', () => {
  test('taproot --help names every command, how to give settings, and existing variables only', async () => {
    const { code, stdout, stderr } = await run(['--help'])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    for (const command of ['dev', 'api', 'registry', 'token', 'pull-token', 'encryption-key', 'get', 'tree', 'whoami', 'config'])
      expect(stdout).toMatch(new RegExp(`^  ${command} .*\\S`, 'm'))
    expect(stdout).toContain('--config')
    const named = stdout.match(/TAPROOT_[A-Z0-9_]+(?==)/g) ?? []
    expect(named.length).toBeGreaterThan(0)
    const variables = settings.map(({ variable }) => variable)
    for (const variable of named) expect(variables).toContain(variable)
  })

  test.each([
    ['dev', ['--config']],
    ['api', ['--config']],
    ['registry', ['--config']],
    ['token', ['--subject', '--audience', '--claim', '--config']],
    ['config', ['--role', '--config']],
    ['pull-token create', ['--group', '--name', '--ttl', '--url', '--registry', '--token-file', '--json', '--secret', '--config']],
    ['pull-token list', ['--group', '--url', '--registry', '--token-file', '--json', '--config']],
    ['pull-token revoke', ['--url', '--registry', '--token-file', '--json', '--config']],
  ])('%s --help names its options', async (command, options) => {
    const { code, stdout, stderr } = await run([...command.split(' '), '--help'])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    for (const option of options) expect(stdout).toMatch(new RegExp(`^  ${option} .*\\S`, 'm'))
  })
})

describe('a command line with a mistake', () => {
  test.each([
    ['an unknown command', ['serve'], 'serve'],
    ['one argument too many', ['dev', 'now'], 'now'],
    ['an unknown option', ['api', '--port', '1'], '--port'],
    ['a missing option', ['token'], '--subject'],
    ['an option without its value', ['token', '--subject'], '--subject'],
    ['a claim without a value', ['token', '--subject', 's', '--claim', 'branch'], '--claim'],
    ['a claim without a name', ['token', '--subject', 's', '--claim', '=main'], '--claim'],
    ['an unknown role', ['config', '--role', 'root'], 'root'],
    ['a missing list of Secrets', ['init-secrets'], '--wanted'],
    ['a list of Secrets that is not JSON', ['init-secrets', '--wanted', 'all'], '--wanted'],
    ['a missing cluster for Secrets', ['init-secrets', '--wanted', '{"namespace":"a","labels":{},"secrets":[]}'], '--kubeconfig'],
    ['an invalid name of a Secret', ['pull-token', 'create', '--group', 'demo', '--secret', 'Pull_Me'], '--secret'],
    ['an unsupported format of a Secret', ['pull-token', 'create', '--group', 'demo', '--secret', 'pull', '--json'], '--json'],
    ['a registry that does not follow from the address', ['pull-token', 'list', '--url', 'http://127.0.0.1:1'], '--registry'],
    ['a missing file', ['dev', '--config', 'absent.yaml'], 'absent.yaml', 1],
  ])(
    'a command line with a mistake fails with one line that names it, code 2 (1 for settings), and creates nothing: %s',
    async (_, args, named, ending = 2) => {
      const cwd = await freshDirectory()
      const { code, stdout, stderr } = await run(args, { cwd })
      expect({ code, stdout }).toEqual({ code: ending, stdout: '' })
      expect(lines(stderr)).toEqual([expect.stringContaining(named)])
      await expect(stat(join(cwd, '.taproot'))).rejects.toThrow('ENOENT')
    },
  )

  test.each(['dev', 'api', 'config'])('a command with faulty settings fails with one line for each, code 1, and creates nothing: %s', async (command) => {
    const cwd = await freshDirectory()
    await writeFile(join(cwd, 'taproot.yaml'), 'api:\n  prot: 1\nops:\n  port: many\nflavour: sweet\n')
    const { code, stdout, stderr } = await run([command, '--config', 'taproot.yaml'], { cwd, env: { TAPROOT_STORE_KIND: 'paper' } })
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    const errors = lines(stderr)
    expect(errors).toHaveLength(4)
    for (const named of ['api.prot', 'ops.port', 'flavour', 'TAPROOT_STORE_KIND']) expect(errors.filter((line) => line.includes(named))).toHaveLength(1)
    await expect(stat(join(cwd, '.taproot'))).rejects.toThrow('ENOENT')
  })

  test('a command line with a mistake names a missing kubeconfig of the controller outside a pod, without a connection to the store', async () => {
    // With an etcd that does not exist the process would wait.
    const cwd = await freshDirectory()
    await writeFile(join(cwd, 'key'), Buffer.alloc(32).toString('base64'))
    const env = {
      TAPROOT_STORE_KIND: 'etcd',
      TAPROOT_STORE_ETCD_ENDPOINTS: 'http://127.0.0.1:1',
      TAPROOT_ENCRYPTION_KEY_FILE: join(cwd, 'key'),
      TAPROOT_KUBERNETES_ISSUER: 'https://cluster.example',
    }
    const nowhere = await run(['controller'], { cwd, env })
    expect(nowhere).toMatchObject({ code: 1, stdout: '' })
    expect(nowhere.stderr).toBe(
      'taproot: kubernetes.kubeconfig (TAPROOT_KUBERNETES_KUBECONFIG) is missing: expected a file, because this is not a Kubernetes pod\n',
    )
    const absent = await run(['controller'], { cwd, env: { ...env, TAPROOT_KUBERNETES_KUBECONFIG: 'absent' } })
    expect(absent).toMatchObject({ code: 1, stdout: '' })
    expect(absent.stderr).toBe('taproot: kubernetes.kubeconfig (TAPROOT_KUBERNETES_KUBECONFIG): absent: ENOENT: no such file or directory\n')
  })

  test('a command line with a mistake names both missing settings of api on etcd: endpoints and key', async () => {
    const { code, stderr } = await run(['api'], { env: { TAPROOT_STORE_KIND: 'etcd' } })
    expect(code).toBe(1)
    expect(lines(stderr)).toEqual([expect.stringContaining('TAPROOT_STORE_ETCD_ENDPOINTS'), expect.stringContaining('TAPROOT_ENCRYPTION_KEY_FILE')])
  })
})

describe('taproot config', () => {
  test('taproot config prints the settings in effect: those of the file, overridden by variables, with masked credentials', async () => {
    const cwd = await freshDirectory()
    const upstream = 'url: https://robot:hunter2@registry.internal'
    await writeFile(join(cwd, 'taproot.yaml'), `api:\n  port: 8181\nops:\n  port: 9191\nregistry:\n  upstream:\n    ${upstream}\n`)
    const env = { TAPROOT_OPS_PORT: '9292', TAPROOT_STORE_ETCD_ENDPOINTS: 'https://user:swordfish@etcd-0:2379,https://etcd-1:2379' }
    const { code, stdout, stderr } = await run(['config', '--config', 'taproot.yaml'], { cwd, env })
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(parse(stdout)).toMatchObject({
      baseUrl: 'http://localhost:8181',
      api: { port: 8181 },
      ops: { port: 9292 },
      registry: { upstream: { url: 'https://***@registry.internal' } },
      store: { etcd: { endpoints: ['https://***@etcd-0:2379', 'https://etcd-1:2379'] } },
    })
    expect(stdout).not.toMatch(/hunter2|swordfish|robot|user:/)
  })

  test('taproot config prints a valid configuration file', async () => {
    const cwd = await freshDirectory()
    const { stdout } = await run(['config', '--role', 'api'], { cwd })
    await writeFile(join(cwd, 'printed.yaml'), stdout)
    const again = await run(['config', '--role', 'api', '--config', 'printed.yaml'], { cwd })
    expect(parse(again.stdout)).toEqual(parse(stdout))
  })

  test('taproot config reports an unknown variable as a warning only', async () => {
    const { code, stdout, stderr } = await run(['config'], { env: { TAPROOT_API_PROT: '8181' } })
    expect(code).toBe(0)
    expect(parse(stdout)).toMatchObject({ api: { port: 8080 } })
    expect(lines(stderr)).toEqual([expect.stringMatching(/warning: TAPROOT_API_PROT.*TAPROOT_API_PORT/)])
  })
})

describe('taproot token', () => {
  async function mint(home: DevHome, ...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await run(['token', ...args], home)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toMatch(/^\S+\n$/)
    return stdout.trim()
  }

  test('taproot token works before the first start; the server started then accepts the token for an identity with these claims', async () => {
    const home = await makeDevHome()
    const right = await mint(home, '--subject', 'ci-deployer', '--claim', 'branch=main', '--claim', 'digest=a=b')
    const baseUrl = `http://localhost:${home.apiPort}`
    expect(decodeJwt(right)).toMatchObject({ iss: `${baseUrl}/dev/issuer`, sub: 'ci-deployer', aud: baseUrl, branch: 'main', digest: 'a=b' })

    await startDev(home)
    const token = await readToken(home)
    const group = String((ok(await home.rest.call('ListGroups', {}, { token }))['groups'] as { uid: string }[])[0]?.uid)
    const claimMatch = { issuer: `${baseUrl}/dev/issuer`, subject: 'ci-deployer', claims: { branch: 'main', digest: 'a=b' } }
    const identity = String(ok(await home.rest.call('CreateIdentity', { parent: group, identity: { name: 'ci', claimMatch } }, { token }))['uid'])
    // The uid of a built-in role is known in advance (docs/spec/resources.md#fixed-uids).
    const roleUid = createHash('sha256').update('taproot:role:viewer').digest('hex').slice(0, 40)
    ok(await home.rest.call('CreateRoleBinding', { parent: group, roleBinding: { identityUid: identity, roleUid } }, { token }))

    const exchanged = ok(await home.rest.call('SecurityTokenService/Exchange', { identity }, { token: right }))
    expect(ok(await home.rest.call('GetGroup', { uid: group }, { token: String(exchanged['token']) }))).toMatchObject({ name: 'demo' })
    expect(ok(await home.rest.call('GetGroup', { uid: group }, { token: right, identity }))).toMatchObject({ name: 'demo' })
    const wrong = [
      await mint(home, '--subject', 'ci-deployer', '--claim', 'branch=main'),
      await mint(home, '--subject', 'ci-deployer', '--claim', 'branch=side', '--claim', 'digest=a=b'),
      await mint(home, '--subject', 'other', '--claim', 'branch=main', '--claim', 'digest=a=b'),
      await mint(home, '--subject', 'ci-deployer', '--audience', 'https://elsewhere.example', '--claim', 'branch=main', '--claim', 'digest=a=b'),
    ]
    for (const one of wrong) expect((await home.rest.call('SecurityTokenService/Exchange', { identity }, { token: one })).code).toBe(7)
  })
})
