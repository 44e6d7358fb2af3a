import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
import { ok } from '../../support/test-server.ts'
import { makeDevHome, readToken, startDev, type DevHome } from '../process/harness/dev-home.ts'
import { OciClient } from '../../registry/oci/oci-client.ts'
import { basic } from '../../registry/tokens/registry-world.ts'
import { programEnvironment } from '../../support/parts/own-program.ts'

const root = join(import.meta.dirname, '..', '..', '..')
const page = await readFile(join(root, 'docs', 'registry.md'), 'utf8')
const taproot = `taproot() { "${process.execPath}" --disable-warning=ExperimentalWarning "${join(root, 'src', 'cli', 'taproot.ts')}" "$@"; }`

/** The shell commands of a section, as printed. */
function commandsOf(heading: string): string {
  const section = page.split(`# ${heading}\n`)[1]?.split('\n#')[0] ?? ''
  const commands = [...section.matchAll(/```sh\n([\s\S]*?)```/g)].map((match) => match[1]).join('')
  if (commands === '') throw new Error(`docs/registry.md has no commands below ${heading}`)
  return commands
}

/** Starts a development server, a client of its registry host as the owner, and a shell with the variables of the page. */
async function makeReader(): Promise<{ home: DevHome; client: OciClient; run: (commands: string, env?: Record<string, string>) => Promise<string> }> {
  const home = await makeDevHome()
  await startDev(home)
  const client = new OciClient(Number(home.env['TAPROOT_REGISTRY_PORT']), (await readFile(join(home.cwd, '.taproot', 'registry-token'), 'utf8')).trim())
  onTestFinished(() => client.close())
  const variables = {
    AUTH: `authorization: Bearer ${await readToken(home)}`,
    JSON: 'content-type: application/json',
    API: `http://localhost:${home.apiPort}`,
  }
  const run = async (commands: string, env: Record<string, string> = {}): Promise<string> => {
    const options = { cwd: home.cwd, env: { ...programEnvironment(), ...home.env, ...variables, ...env } }
    return (await promisify(execFile)('bash', ['-ec', `${taproot}\n${commands}`], options)).stdout
  }
  return { home, client, run }
}

async function repoUid(home: DevHome): Promise<string> {
  const { repos } = ok(await home.rest.call('ListRepos', {}, { token: await readToken(home) })) as unknown as { repos: { uid: string }[] }
  return repos[0]?.uid ?? ''
}

test('restore: a tag returns to its digest at a given time', async () => {
  const { home, client, run } = await makeReader()
  const { digest } = await client.pushImage('demo/app', 'latest')
  const pushed = new Date().toISOString()
  await expect.poll(() => Date.now()).toBeGreaterThan(Date.parse(pushed))
  expect((await client.pushImage('demo/app', 'latest')).digest).not.toBe(digest)
  const printed = commandsOf('History and restore')
  expect(printed).toContain('2026-11-14T09:00:00Z')
  const answer = await run(printed.replace('2026-11-14T09:00:00Z', pushed), { REPO: await repoUid(home) })
  expect(JSON.parse(answer)).toMatchObject({ name: 'latest', digest })
  expect((await client.send('HEAD', '/v2/demo/app/manifests/latest')).headers['docker-content-digest']).toBe(digest)
})

test('deprecation: a pull of the tag shows a warning', async () => {
  const { home, client, run } = await makeReader()
  const { digest } = await client.pushImage('demo/app', '1.26')
  expect((await client.send('GET', '/v2/demo/app/manifests/1.26')).headers['warning']).toBeUndefined()
  const answer = await run(commandsOf('Deprecation'), { REPO: await repoUid(home), DIGEST: digest })
  expect(JSON.parse(answer)).toMatchObject({ name: '1.26', digest, deprecated: true })
  expect((await client.send('GET', '/v2/demo/app/manifests/1.26')).headers['warning']).toContain('deprecated')
})

test('pull tokens are created, listed and revoked', async () => {
  const { client, run } = await makeReader()
  await client.pushImage('demo/web/app', '1')
  const [create = '', list = '', revoke = ''] = commandsOf('Pull tokens').replace('acme/web', 'demo/web').trim().split('\n')
  const made = await run(create)
  const [user, password] = [/user name {2}(\S+)/.exec(made)?.[1] ?? '', /password {3}(\S+)/.exec(made)?.[1] ?? '']
  const host = `localhost:${client.port}`
  const status = async (): Promise<number> => {
    const url = `http://127.0.0.1:${client.port}/token?service=${host}&scope=repository:demo/web/app:pull`
    const response = await fetch(url, { headers: { authorization: basic(user, password) } })
    await response.body?.cancel()
    return response.status
  }
  expect(await status()).toBe(200)
  expect(await run(list)).toContain(user)
  expect(revoke).toContain('<user name>')
  await run(revoke.replace('<user name>', user))
  expect(await status()).toBe(401)
  expect(await run(list)).not.toContain(user)
})
