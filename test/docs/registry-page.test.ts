import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { trustedUid } from '../../src/core/uid.ts'
import { loadConfig } from '../../src/cmd/config/load-config.ts'
import { selfSigned } from '../authn/certificate.ts'
import { makeOrganisation, startTestServer } from '../harness/test-server.ts'
import { registryAccount, startRegistry } from '../parts/registry.ts'
import { describeWithPart } from '../parts/require-part.ts'
import { OciClient } from '../registry/oci/oci-client.ts'

const page = await readFile(join(import.meta.dirname, '..', '..', 'docs', 'registry.md'), 'utf8')

/** The blocks of the page of this sort whose first line says what file they are. */
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

describeWithPart('registry', 'docs/registry.md', () => {
  test('the configuration of distribution is one that it starts with, and that Taproot pushes to and deletes from', { timeout: 60_000 }, async () => {
    const directory = await folder()
    const { certificate, key } = selfSigned('upstream.internal')
    const files = { 'upstream.crt': certificate, 'upstream.key': key, password: registryAccount.password }
    for (const [name, text] of Object.entries(files)) await writeFile(join(directory, name), text, { mode: 0o600 })
    // The account of the tests' registries, as `htpasswd -nB` prints it.
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
    const { group, owner } = await makeOrganisation(server)
    const { host, port } = server.config.registry
    const act = { issuer: 'https://issuer.example', subject: 'test', audience: host }
    const { token } = await server.running.signIn.tokens.mint({ identityUid: trustedUid(owner), audiences: [host], act, narrowing: {} })
    const client = new OciClient(port, token)
    onTestFinished(() => client.close())
    const { digest, bytes } = await client.pushImage(`${group}/app`, '1.0')
    expect((await client.send('GET', `/v2/${group}/app/manifests/1.0`)).body).toEqual(bytes)
    expect((await client.send('DELETE', `/v2/${group}/app/manifests/${digest}`)).status).toBe(202)
  })
})

test.each(filesNamed('taproot.yaml').map((text, at) => ({ at: at + 1, text })))(
  'block $at of taproot.yaml in docs/registry.md is a valid configuration',
  async ({ text }) => {
    const file = join(await folder(), 'taproot.yaml')
    await writeFile(file, text)
    for (const role of ['api', 'registry'] as const) {
      const { config } = loadConfig({ file, env: {}, role })
      expect(config.registry.upstream?.url).toMatch(/^https:/)
    }
  },
)
