import { randomBytes } from 'node:crypto'
import { chown, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { requirePart } from '../../../support/parts/require-part.ts'
import { composedServices, type ComposedService } from './compose-services.ts'
import type { ContainerMount } from './container.ts'
import { ContainerEngine, describeWithContainers, type RunningContainer } from './engine.ts'
import type { StandIn } from './images.ts'

/** The configuration in the image docker.io/library/registry. */
const distributionSettings = 'version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: /var/lib/registry\nhttp:\n  addr: :5000\n'

async function startAll(engine: ContainerEngine, services: readonly ComposedService[]): Promise<RunningContainer[]> {
  const started: RunningContainer[] = []
  for (const { container, healthcheck } of services) {
    const running = await engine.run(container)
    if (healthcheck !== undefined) await running.untilHealthy(healthcheck)
    started.push(running)
  }
  return started
}

// docs/install.md#compose
describeWithContainers('containers of compose.yaml', () => {
  let engine: ContainerEngine
  let services: readonly ComposedService[]
  let containers: readonly RunningContainer[]
  beforeAll(async () => {
    engine = await ContainerEngine.start()
    services = await composedServices('compose.yaml')
    containers = await startAll(engine, services)
  })
  afterAll(() => engine?.stop())

  test('containers of compose.yaml take a push, and keep it when they start again', async () => {
    await engine.shell(`
      docker compose exec taproot cat .taproot/registry-token | docker login --username _token --password-stdin localhost:5000
      docker tag taproot localhost:5000/demo/taproot
      docker push localhost:5000/demo/taproot`)
    const tree = (): Promise<string> => engine.shell('docker compose exec taproot taproot tree')
    expect(await tree()).toMatch(/repo +taproot +1 tag/)
    const [container] = containers
    expect(await container?.stop()).toBe(0)
    container?.start()
    await container?.untilHealthy(services[0]?.healthcheck ?? [])
    expect(await tree()).toMatch(/repo +taproot +1 tag/)
    await engine.shell('docker pull --quiet localhost:5000/demo/taproot')
  })
})

// docs/install.md#compose
describeWithContainers('containers of deploy/compose', () => {
  let engine: ContainerEngine
  let containers: readonly RunningContainer[]
  let home = ''
  beforeAll(async () => {
    home = await mkdtemp(join(tmpdir(), 'taproot-compose-'))
    const services = await composedServices('deploy/compose/compose.yaml')
    engine = await ContainerEngine.start(await standInsFor(services, home))
    const key = join(home, 'encryption.key')
    await writeFile(key, randomBytes(32).toString('base64'), { mode: 0o600 })
    await chown(key, 65_532, 65_532)
    containers = await startAll(
      engine,
      services.map((service) => withKey(service, key)),
    )
  })
  afterAll(async () => {
    await engine?.stop()
    await rm(home, { recursive: true, force: true })
  })

  test('containers of deploy/compose are an API server, a registry host and a worker on etcd and a registry', async () => {
    expect(containers.map(({ name }) => name).toSorted()).toEqual(['api', 'content', 'etcd', 'registry', 'worker'])
    const head = await engine.shell('curl --silent --include http://localhost:5000/v2/')
    expect(head).toMatch(/^HTTP\/1.1 401 /)
    expect(head.toLowerCase()).toContain('www-authenticate: bearer realm="https://registry.example.com/')
    expect(await engine.shell('curl --silent http://localhost:8080/.well-known/openid-configuration')).toContain('"https://platform.example.com"')
  })

  test('containers of deploy/compose end by themselves within the time that Docker gives them', async () => {
    const ours = containers.filter(({ name }) => ['api', 'registry', 'worker'].includes(name))
    expect(await Promise.all(ours.map((container) => container.stop()))).toEqual([0, 0, 0])
  })
})

/** Real programs in place of the images that can't be pulled here, at the paths of those images. */
async function standInsFor(services: readonly ComposedService[], home: string): Promise<Record<string, StandIn>> {
  const settings = join(home, 'distribution.yml')
  await writeFile(settings, distributionSettings)
  const imageOf = (name: string): string => services.find(({ container }) => container.name === name)?.container.image ?? ''
  const configFile = '/etc/distribution/config.yml'
  return {
    [imageOf('etcd')]: { program: requirePart('etcd'), path: '/usr/local/bin/etcd', entrypoint: [] },
    [imageOf('content')]: {
      program: requirePart('registry'),
      path: '/bin/registry',
      entrypoint: ['/bin/registry', 'serve', configFile],
      files: { [configFile]: settings },
    },
  }
}

/** Replaces the file of the encryption key by one of this test. */
function withKey(service: ComposedService, key: string): ComposedService {
  const replaced = (mount: ContainerMount): ContainerMount =>
    (mount.target === '/run/secrets/encryption-key' ? { ...mount, source: key } : mount) as ContainerMount
  return { ...service, container: { ...service.container, mounts: service.container.mounts.map(replaced) } }
}
