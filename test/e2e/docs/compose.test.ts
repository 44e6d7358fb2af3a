import { randomBytes } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { parse } from 'yaml'
import { startEtcd } from '../../support/parts/etcd.ts'
import { freePorts } from '../../support/parts/free-port.ts'
import { startRegistry } from '../../support/parts/registry.ts'
import { requirePart } from '../../support/parts/require-part.ts'
import { run } from '../cluster/harness/command.ts'
import { freshDirectory, isReady, runProcess, startProcess } from '../process/harness/taproot-process.ts'

const root = join(import.meta.dirname, '..', '..', '..')

/** A Compose file as the real parser reads it. */
interface Project {
  readonly services: Readonly<Record<string, Service>>
}

interface Service {
  readonly image: string
  readonly command: readonly string[] | null
  readonly environment?: Readonly<Record<string, string>>
  readonly ports?: readonly { readonly published: string; readonly target: number; readonly host_ip?: string }[]
}

async function projectOf(path: string): Promise<Project> {
  return JSON.parse(await run(requirePart('compose-config'), [join(root, path)])) as Project // a cast: the parser's form
}

/** Settings that give a process of this test its own folder and ports. */
async function ownPlace(): Promise<{ env: Record<string, string>; cwd: string; opsPort: number; registryPort: number }> {
  const cwd = await freshDirectory()
  const [apiPort = 0, opsPort = 0, registryPort = 0] = await freePorts(3)
  const ports = { TAPROOT_API_PORT: apiPort, TAPROOT_OPS_PORT: opsPort, TAPROOT_REGISTRY_PORT: registryPort }
  const env = Object.fromEntries(Object.entries(ports).map(([name, port]) => [name, String(port)]))
  return { env: { ...env, TAPROOT_DATA_DIR: join(cwd, '.taproot') }, cwd, opsPort, registryPort }
}

// docs/install.md#compose
test('compose.yaml starts a development server whose ports only this machine reaches', async () => {
  const { services } = await projectOf('compose.yaml')
  const { taproot } = services
  expect(taproot?.ports?.map(({ host_ip: address, published, target }) => [address, published, target])).toEqual([
    ['127.0.0.1', '8080', 8080],
    ['127.0.0.1', '5000', 5000],
  ])
  const place = await ownPlace()
  const env = { ...taproot?.environment, ...place.env }
  const started = startProcess({ args: taproot?.command ?? [], env, cwd: place.cwd })
  await started.until(() => isReady(place.opsPort))
  const tree = await runProcess({ args: ['tree'], env, cwd: place.cwd })
  expect(tree).toMatchObject({ code: 0, stdout: expect.stringMatching(/^demo /) as unknown })
})

// docs/install.md#compose
test('deploy/compose starts an API server, a registry host and a worker on etcd and a registry, with the images of the chart', async () => {
  const { services } = await projectOf('deploy/compose/compose.yaml')
  const values = parse(await readFile(join(root, 'charts/taproot/values.yaml'), 'utf8')) as Record<string, { image: { repository: string; tag: string } }> // a cast: our own file
  for (const [service, part] of [
    ['etcd', 'etcd'],
    ['content', 'upstream'],
  ] as const)
    expect(services[service]?.image).toBe(`${values[part]?.image.repository}:${values[part]?.image.tag}`)

  const flags = services['etcd']?.command?.filter((flag) => !/^--(data-dir|.*-client-urls)|^\//.test(flag)) ?? []
  const [etcd, content, folder] = [await startEtcd({ flags }), await startRegistry(), await freshDirectory()]
  onTestFinished(() => etcd.stop())
  onTestFinished(() => content.stop())
  const keyFile = join(folder, 'encryption.key')
  await writeFile(keyFile, randomBytes(32).toString('base64'))
  const here = (text: string): string =>
    text
      .replace('http://etcd:2379', etcd.endpoints[0] ?? '')
      .replace('http://content:5000', content.url)
      .replace('/run/secrets/encryption-key', keyFile)
      .replace('/etc/taproot/taproot.yaml', join(root, 'deploy/compose/taproot.yaml'))
  const places = new Map<string, Awaited<ReturnType<typeof ownPlace>>>()
  for (const [name, { command, environment = {}, image }] of Object.entries(services)) {
    if (image !== 'taproot') continue
    const place = await ownPlace()
    places.set(name, place)
    const env = Object.fromEntries(Object.entries(environment).map(([key, value]) => [key, here(value)]))
    const started = startProcess({ args: (command ?? []).map(here), env: { ...env, ...place.env }, cwd: place.cwd })
    await started.until(() => isReady(place.opsPort))
  }
  expect([...places.keys()].toSorted()).toEqual(['api', 'registry', 'worker'])
  const answer = await fetch(`http://127.0.0.1:${places.get('registry')?.registryPort}/v2/`)
  expect([answer.status, answer.headers.get('www-authenticate')]).toEqual([401, expect.stringContaining('realm="https://registry.example.com/')])
})
