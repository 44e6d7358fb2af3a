import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, onTestFinished, test } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import { loadConfig } from '../../../src/config/load-config.ts'
import { registryErrorStatus } from '../../../src/registry/registry-error.ts'
import { selfSigned } from '../../auth/certificate.ts'
import { makeOrganisation, makePerson, ok, roleUid, startTestServer, type TestServer } from '../../support/test-server.ts'
import { registryAccount, startRegistry } from '../../support/parts/registry.ts'
import { describeWithPart, requirePart } from '../../support/parts/require-part.ts'
import { indexType, manifestOf, OciClient } from '../../registry/oci/oci-client.ts'

const page = await readFile(join(import.meta.dirname, '..', '..', '..', 'docs', 'registry.md'), 'utf8')

/** Returns the code blocks of the page whose first line names this file. */
function filesNamed(name: string): string[] {
  const blocks = [...page.matchAll(/^```yaml\n([\s\S]*?)^```$/gm)].map((match) => match[1] ?? '')
  const found = blocks.filter((block) => block.startsWith(`# ${name}`))
  if (found.length === 0) throw new Error(`docs/registry.md has no ${name}`)
  return found
}

async function folder(): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), 'taproot-page-'))
  onTestFinished(() => rm(made, { recursive: true, force: true }))
  return made
}

/** Creates an organisation and a token of its owner for the registry host. */
async function organisationNamed(server: TestServer, name?: string): Promise<{ group: string; token: string }> {
  const { group, owner } = await makeOrganisation(server, name)
  const { host } = server.config.registry
  const act = { issuer: 'https://issuer.example', subject: 'test', audience: host }
  const { token } = await server.running.signIn.tokens.mint({ identityUid: trustedUid(owner), audiences: [host], act, restrictions: {} })
  return { group, token }
}

/** Returns the preconditions of the page: the API, and an issuer's token of an owner of the group. */
async function externalOwner(server: TestServer, group: string): Promise<{ API: string; OIDC: string }> {
  const { issuer } = server.devIssuer
  const person = await makePerson(server, { issuer, subject: 'mover' })
  const token = await server.operatorToken()
  ok(await server.rest.call('CreateRoleBinding', { parent: group, roleBinding: { identityUid: person.uid, roleUid: roleUid('owner') } }, { token }))
  const OIDC = await server.devIssuer.mintDevToken({ subject: 'mover', audience: server.config.baseUrl, lifeSeconds: 600 })
  return { API: `http://127.0.0.1:${server.config.api.port}`, OIDC }
}

describeWithPart('registry', 'docs/registry.md', () => {
  test('the shown configuration starts a distribution registry, and Taproot can push to it and delete from it', async () => {
    const directory = await folder()
    const { certificate, key } = selfSigned('upstream.internal')
    const files = { 'upstream.crt': certificate, 'upstream.key': key, password: registryAccount.password }
    for (const [name, content] of Object.entries(files)) await writeFile(join(directory, name), content, { mode: 0o600 })
    // The account of the test registries, in the format of `htpasswd -nB`.
    await writeFile(join(directory, 'htpasswd'), `${registryAccount.username}:$2a$04$iXbL6ZrOzBodMYgHeWUDAOD0JsFBEaOaEcwTLzGCvVPW.TELdcRPm\n`)
    const configurationFile = join(directory, 'distribution.yml')
    await writeFile(configurationFile, (filesNamed('distribution.yml')[0] ?? '').replaceAll('/etc/distribution/', `${directory}/`))
    const registry = await startRegistry({ configurationFile, tls: { certFile: join(directory, 'upstream.crt'), keyFile: join(directory, 'upstream.key') } })
    onTestFinished(() => registry.stop())

    const server = await startTestServer({
      store: 'sqlite',
      env: {
        TAPROOT_REGISTRY_UPSTREAM_URL: registry.url,
        TAPROOT_REGISTRY_UPSTREAM_USERNAME: registryAccount.username,
        TAPROOT_REGISTRY_UPSTREAM_PASSWORD_FILE: join(directory, 'password'),
        TAPROOT_REGISTRY_UPSTREAM_CA_FILE: join(directory, 'upstream.crt'),
      },
    })
    onTestFinished(() => server.stop())
    const { group, token } = await organisationNamed(server)
    const client = new OciClient(server.config.registry.port, token)
    onTestFinished(() => client.close())
    const { digest, bytes } = await client.pushImage(`${group}/app`, '1.0')
    expect((await client.send('GET', `/v2/${group}/app/manifests/1.0`)).body).toEqual(bytes)
    expect((await client.send('DELETE', `/v2/${group}/app/manifests/${digest}`)).status).toBe(202)
    const blob = { mediaType: 'application/vnd.buildkit.cacheconfig.v0', digest: await client.putBlob(`${group}/app`, Buffer.from('{}')), size: 2 }
    const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [blob] })
    expect((await client.putManifest(`${group}/app`, 'cache', index)).status).toBe(201)
  })
})

describeWithPart('crane', 'moving a registry in', () => {
  describeWithPart('registry', 'docs/registry.md', () => {
    test('the shown crane cp commands copy every tag of every image with the same digests', async () => {
      const script = [/```sh\n(TOKEN=[\s\S]*?)```/, /```sh\n(crane auth login old[\s\S]*?)```/].map((block) => block.exec(page)?.[1] ?? 'false').join('\n')
      const old = await startRegistry()
      onTestFinished(() => old.stop())
      const server = await startTestServer({ store: 'sqlite' })
      onTestFinished(() => server.stop())
      const { token, group } = await organisationNamed(server, 'acme')
      const [oldHost, newHost] = [`127.0.0.1:${old.port}`, server.config.registry.host]
      const credential = await externalOwner(server, group)
      const directory = await folder()
      const client = new OciClient(old.port, undefined)
      onTestFinished(() => client.close())
      const pushed: string[] = []
      for (const path of ['nginx', 'redis']) for (const tag of ['1', '2']) pushed.push(`${path}:${tag} ${(await client.pushImage(path, tag)).digest}`)
      const env = { ...process.env, PATH: `${dirname(requirePart('crane'))}:${process.env['PATH'] ?? ''}`, DOCKER_CONFIG: directory, ...credential }
      // jq is not installed on every machine.
      const jq = `jq() { node -pe 'JSON.parse(fs.readFileSync(0)).token'; }\n`
      const commands = jq + script.replaceAll('old.example.com', oldHost).replaceAll('registry.example.com', newHost)
      // The server runs in this process, so it must not be blocked.
      const shell = spawn('bash', ['-ec', commands], { env, stdio: ['ignore', 'ignore', 'pipe'] })
      const said = text(shell.stderr)
      const [status] = (await once(shell, 'exit')) as [number | null] // a cast of the event's arguments
      expect(status, await said).toBe(0)
      const there = new OciClient(server.config.registry.port, token)
      onTestFinished(() => there.close())
      const found: string[] = []
      for (const path of ['nginx', 'redis']) {
        for (const tag of ['1', '2']) {
          const answer = await there.send('HEAD', `/v2/acme/${path}/manifests/${tag}`)
          found.push(`${path}:${tag} ${String(answer.headers['docker-content-digest'])}`)
        }
      }
      expect(found).toEqual(pushed)
      expect([...server.running.engine.cache.tables.table('Repo').matching('parent', group)]).toHaveLength(2)
    })
  })
})

test.each(filesNamed('taproot.yaml').map((content, at) => ({ at: at + 1, content })))(
  'block $at of taproot.yaml in docs/registry.md is a valid configuration',
  async ({ content }) => {
    const file = join(await folder(), 'taproot.yaml')
    await writeFile(file, content)
    for (const role of ['api', 'registry'] as const) {
      const { config } = loadConfig({ file, env: {}, role })
      expect(config.registry.upstream?.url).toMatch(/^https:/)
    }
  },
)

test('the table of refusals has every status and code of the registry host, and no other', async () => {
  const directory = join(import.meta.dirname, '..', '..', '..', 'src', 'registry')
  // The answers of an upstream are not checked here.
  const files = (await readdir(directory, { recursive: true })).filter((path) => path.endsWith('.ts') && !path.startsWith('upstream'))
  const sources = (await Promise.all(files.map((path) => readFile(join(directory, path), 'utf8')))).join('\n')
  const special = [...sources.matchAll(/(?:RegistryError\(|\bcode: )'([A-Z_]+)'[^\n]*?\bstatus: (\d{3})\b/g)].map(
    ([, code = '', status = '']) => `${status} ${code}`,
  )
  expect(special).toHaveLength([...sources.matchAll(/\bstatus: \d{3}\b/g)].length)
  const usual = Object.entries(registryErrorStatus).map(([code, status]) => `${status} ${code}`)
  const section = page.split('\n## What refusals mean\n')[1]?.split('\n## ')[0] ?? ''
  const rows = [...section.matchAll(/^\| (\d{3}) +\| `([A-Z_]+)` +\|/gm)].map(([, status = '', code = '']) => `${status} ${code}`)
  expect(rows.toSorted()).toEqual([...new Set([...usual, ...special])].toSorted())
})
