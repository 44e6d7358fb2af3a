import { gzipSync } from 'node:zlib'
import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { digestOf } from '../../src/base/digest.ts'
import { descriptorOf, imageType, manifestOf, type TestManifest } from '../registry/oci/oci-client.ts'
import { ok, startTestServer, type TestServer } from '../support/test-server.ts'
import { fullTierDescribe } from '../support/tier.ts'
import { makeImageWorld, pushManifest, pushPackages, withRegistry, type ImageWorld } from './counts/image-world.ts'
import { apkFiles, bytesOf, configType, layerOf, statementOf, statementType } from './reading-repo.ts'
import { tarOf } from './tar-of.ts'

const mebibyte = 1024 * 1024
const minute = 60_000

/** Pushes blobs and a manifest with them. */
async function push(world: ImageWorld, layers: readonly (readonly [bytes: Buffer, mediaType: string])[], subject?: TestManifest): Promise<TestManifest> {
  const config = bytesOf({ os: 'linux', architecture: 'amd64' })
  await withRegistry(world, async (client) => {
    for (const bytes of [config, ...layers.map(([bytes]) => bytes)]) await client.putBlob(world.path, bytes)
  })
  const manifest = manifestOf({
    schemaVersion: 2,
    mediaType: imageType,
    config: { mediaType: subject === undefined ? configType : 'application/vnd.oci.empty.v1+json', digest: digestOf(config), size: config.length },
    layers: layers.map(([bytes, mediaType]) => ({ mediaType, digest: digestOf(bytes), size: bytes.length })),
    ...(subject && { subject: descriptorOf(subject) }),
  })
  await pushManifest(world, manifest.digest, manifest)
  return manifest
}

const ofLayer = (world: ImageWorld, bytes: Buffer): Promise<TestManifest> => push(world, [[bytes, 'application/vnd.oci.image.layer.v1.tar+gzip']])

/** Pushes a good image, and then a document about it. */
async function withDocument(world: ImageWorld, mediaType: string, document: Buffer): Promise<TestManifest> {
  const image = await ofLayer(world, layerOf(apkFiles))
  await push(world, [[document, mediaType]], image)
  return image
}

/** Three files of 6 GiB of zeros each, in about 20 MB. */
function tarBomb(): Buffer {
  const size = 6 * 1024 * mebibyte
  const zeros = gzipSync(Buffer.alloc(64 * mebibyte))
  const files = ['a', 'b', 'c'].map((path) => [gzipSync(tarOf([{ path, size }]).subarray(0, 512)), ...Array.from({ length: 96 }, () => zeros)])
  return Buffer.concat(files.flat())
}

function tenMillionFiles(): Buffer {
  const entries = Array.from({ length: 20_000 }, (_, at) => ({ path: `d/${at}` }))
  const part = gzipSync(tarOf(entries).subarray(0, entries.length * 512))
  return Buffer.concat(Array.from({ length: 500 }, () => part))
}

const outside = [
  ...['../package.json', 'a/../../package.json'].map((path) => ({ path, data: '{"name":"evil","version":"1"}' })),
  ...['1', '2'].map((type) => ({ path: `l${type}/package.json`, type, link: '../../../etc/passwd' })),
]
const sparse = [{ path: 'lib/apk/db/installed', type: 'S', data: 'P:a\nV:1\n\n' }]
const notRead = 'the SBOM was not read: '

/** What is pushed, and what the API then says about the image. */
const hostile: readonly (readonly [what: string, pushed: (world: ImageWorld) => Promise<TestManifest>, says: JsonObject])[] = [
  ['a tar bomb', (world) => ofLayer(world, tarBomb()), { state: 'FAILED', problem: 'TOO_LARGE' }],
  ['10,000,000 files', (world) => ofLayer(world, tenMillionFiles()), { state: 'FAILED', problem: 'TOO_LARGE' }],
  ['links and paths out of the root', (world) => ofLayer(world, gzipSync(tarOf(outside))), { state: 'INCOMPLETE', source: 'LAYERS' }],
  ['a sparse file', (world) => ofLayer(world, gzipSync(tarOf(sparse))), { state: 'FAILED', problem: 'UNSUPPORTED_FORM' }],
  [
    'a broken database',
    (world) => ofLayer(world, layerOf({ 'var/lib/rpm/rpmdb.sqlite': 'SQLite format 3\0 and no more' })),
    { state: 'INCOMPLETE', skippedFiles: [{ path: '/var/lib/rpm/rpmdb.sqlite' }] },
  ],
  [
    'an SBOM of 1 GB',
    (world) => withDocument(world, 'application/spdx+json', Buffer.alloc(1_000_000_000, ' ')),
    { state: 'INCOMPLETE', source: 'LAYERS', packageCount: '1', skippedFiles: [{ message: expect.stringContaining(notRead) as string }] },
  ],
  [
    'an SBOM about another digest',
    (world) => withDocument(world, statementType, bytesOf(statementOf(digestOf(Buffer.from('another'))))),
    { state: 'INCOMPLETE', source: 'LAYERS', packageCount: '1', skippedFiles: [{ message: expect.stringContaining('another image') as string }] },
  ],
]

// docs/images.md#what-is-read
fullTierDescribe('who pushes something hostile sees why it was not read, and others see their packages', () => {
  let server: TestServer
  beforeAll(async () => void (server = await startTestServer({ store: 'sqlite', env: { TAPROOT_REGISTRY_READ_CONTENTS: 'true' } })))
  afterAll(() => server.stop())

  /** Waits until the API says this of an image. */
  async function expectImage({ world, digest }: { readonly world: ImageWorld; readonly digest: string }, says: JsonObject): Promise<void> {
    await vi.waitFor(
      async () => {
        const found = ok(await server.rest.call('ListPackages', { repoUid: world.repo, digest }, { token: world.token }))
        expect(found['images']).toMatchObject([says])
      },
      { timeout: 15 * minute, interval: 500 },
    )
  }

  test.each(hostile)('%s', { timeout: 20 * minute }, async (_what, pushed, says) => {
    const [world, neighbour] = [await makeImageWorld(server), await makeImageWorld(server)]
    const { digest } = await pushed(world)
    const good = await pushPackages(neighbour, 'v1', { musl: '1.2.5-r0' })
    await expectImage({ world: neighbour, digest: good.digest }, { state: 'READ', source: 'LAYERS', packageCount: '1' })
    await expectImage({ world, digest }, says)
  })
})
