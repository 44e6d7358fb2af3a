import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { LifeCycleDeprecation } from '../../../src/contents/lifecycle/deprecation-job.ts'
import { DomainError } from '../../../src/base/errors.ts'
import type { Services } from '../../../src/engine/services.ts'
import { StoreError } from '../../../src/store/store.ts'
import { descriptorOf, indexType, manifestOf, type TestManifest } from '../../registry/oci/oci-client.ts'
import { importProduct } from '../../support/import-advisories.ts'
import { freshName, ok, startTestServer, type TestServer } from '../../support/test-server.ts'
import { makeImageWorld, pushAnnotated, pushManifest, pushPackages, type ImageWorld } from '../counts/image-world.ts'

const alive = new AbortController().signal
const cycles = [
  { cycle: '3', eol: '2100-01-01' },
  { cycle: '1', eol: '2010-01-01' },
]
let server: TestServer
let world: ImageWorld
let product = ''
beforeAll(async () => {
  // Each test runs the job itself.
  server = await startTestServer({ store: 'sqlite', leads: false })
})
afterAll(() => server.stop())

/** Starts a job with an organisation of its own. Returns what runs it, and then resolves with the tags that are deprecated. */
async function startJob({ readsContents = false, services = server.running.engine.services }: { readsContents?: boolean; services?: Services } = {}) {
  world = await makeImageWorld(server)
  product = await importProduct(server, world.group, cycles)
  const job = new LifeCycleDeprecation(services, { readsContents })
  onTestFinished(job.follow())
  return async (): Promise<readonly unknown[]> => {
    await job.run(alive)
    return await deprecated()
  }
}

async function deprecated(): Promise<readonly unknown[]> {
  const query = { uidp: { childrenOf: world.repo }, includeReferrers: true }
  const answer = ok(await server.rest.call('ListTags', query, { token: await server.tokenFor(world.owner) }))
  return (answer['tags'] as { name: string; deprecated?: boolean }[])
    .filter((tag) => tag.deprecated === true)
    .map(({ name }) => name)
    .sort()
}

async function statusOf(name: string): Promise<unknown> {
  const answer = ok(await server.rest.call('ListEolTags', { repoUid: world.repo, name }, { token: await server.tokenFor(world.owner) }))
  return (answer['eolTags'] as { tagStatus?: string }[])[0]?.tagStatus
}

// docs/spec/registry.md#life-cycle-of-tags
test('a known product of an unknown version is not taken for its base image', async () => {
  const run = await startJob()
  const base = await importProduct(server, world.group, cycles, freshName('base'))
  await pushAnnotated(world, 'new', { title: product, version: '4.0', 'base.name': `registry.example.com/${base}:1` })
  await pushAnnotated(world, 'other', { title: 'shop', version: '4.0', 'base.name': `registry.example.com/${base}:1` })
  expect(await run()).toEqual(['other'])
  expect(await statusOf('new')).toBe('TAG_UNKNOWN')
})

// docs/spec/registry.md#deprecation-by-life-cycle
test('an image waits for its contents where images are read, in each look, and for nothing where they are not', async () => {
  const run = await startJob({ readsContents: true })
  await pushAnnotated(world, 'app', { 'base.name': `registry.example.com/${product}:1` })
  await pushAnnotated(world, 'titled', { title: product, version: '1' })
  expect(await run()).toEqual(['titled'])
  expect(await run()).toEqual(['titled'])
  const other = new LifeCycleDeprecation(server.running.engine.services, { readsContents: true })
  onTestFinished(other.follow())
  await other.run(alive)
  expect(await deprecated()).toEqual(['titled'])
  const without = new LifeCycleDeprecation(server.running.engine.services, { readsContents: false })
  onTestFinished(without.follow())
  await without.run(alive)
  expect(await deprecated()).toEqual(['app', 'titled'])
})

test('a manifest that cannot be read does not keep other tags from following their life cycles', async () => {
  const { services } = server.running.engine
  let broken = ''
  const get: Services['store']['get'] = (key, signal) =>
    broken !== '' && key.includes(broken) ? Promise.reject(new StoreError('damaged', 'the entry is damaged')) : services.store.get(key, signal)
  const store = new Proxy(services.store, { get: (target, name) => (name === 'get' ? get : (Reflect.get(target, name, target) as unknown)) })
  const run = await startJob({ services: { ...services, store } })
  for (const name of ['a', 'c']) await pushAnnotated(world, name, { title: product, version: '1' })
  broken = (await pushAnnotated(world, 'b', { title: product, version: '1' })).digest
  await expect(run()).rejects.toThrow('damaged')
  expect(await deprecated()).toEqual(['a', 'c'])
  broken = ''
  expect(await run()).toEqual(['a', 'b', 'c'])
})

test('tags wait while the contents of images are loaded, without reads', async () => {
  const { services } = server.running.engine
  const reads: string[] = []
  const get: Services['store']['get'] = (key, signal) => {
    reads.push(key)
    return services.store.get(key, signal)
  }
  const store = new Proxy(services.store, { get: (target, name) => (name === 'get' ? get : (Reflect.get(target, name, target) as unknown)) })
  let isLoading = true
  const imageContents = new Proxy(services.imageContents ?? {}, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target)
      if (name === 'imagesAmong' && isLoading) return () => Promise.reject(new DomainError(14, 'the contents of images are being loaded'))
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  }) as NonNullable<Services['imageContents']>
  const run = await startJob({ services: { ...services, store, imageContents } })
  await pushAnnotated(world, 'app', { title: product, version: '1' })
  reads.length = 0
  expect(await run()).toEqual([])
  expect(reads).toEqual([])
  isLoading = false
  expect(await run()).toEqual(['app'])
})

test('an index is what its first image is, wherever its attestations are, and signatures are never deprecated', async () => {
  const run = await startJob()
  const image = await pushAnnotated(world, '', { title: product, version: '1' })
  const attestation = await pushAnnotated(world, `sha256-${'a'.repeat(64)}.sig`, { title: product, version: '1' })
  const unknown = { architecture: 'unknown', os: 'unknown' }
  const indexOf = (...manifests: unknown[]): TestManifest => manifestOf({ schemaVersion: 2, mediaType: indexType, manifests })
  const child = (one: TestManifest, platform: Readonly<Record<string, string>>) => ({ ...descriptorOf(one), platform })
  const other = await pushPackages(world, '', { musl: '1' })
  await pushManifest(world, 'last', indexOf(child(other, unknown), child(image, { architecture: 'amd64', os: 'linux' })))
  await pushManifest(world, 'first', indexOf(child(image, { architecture: 'amd64', os: 'linux' }), child(attestation, unknown)))
  expect(await run()).toEqual(['first', 'last'])
})
