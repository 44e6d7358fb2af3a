import { afterAll, beforeAll, expect, test } from 'vitest'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { descriptorOf, indexType, manifestOf, type TestManifest } from '../oci/oci-client.ts'
import { startDiskUpstream } from '../oci/test-host.ts'
import { startCollectingHost, type CollectingHost } from './collecting-host.ts'

/** The digests of an image's config and layers. */
function blobsOf({ bytes }: TestManifest): string[] {
  const { config, layers } = JSON.parse(bytes.toString()) as { config: { digest: string }; layers: { digest: string }[] } // a cast: it was made by this test
  return [config, ...layers].map(({ digest }) => digest)
}

describeOnStores('the deletion of a blob', (store) => {
  let host: CollectingHost
  beforeAll(async () => {
    host = await startCollectingHost(startDiskUpstream, store)
  })
  afterAll(() => host.stop())

  const ask = (method: string, repository: string, path: string): Promise<{ status: number; codes: readonly string[]; body: Buffer }> =>
    host.client.send(method, `/v2/${repository}/${path}`)

  test('the deletion of a blob is refused with 405 and the reason while a manifest needs the blob, and succeeds once that manifest is deleted', async () => {
    const repository = host.freshRepository()
    const manifest = await host.client.pushImage(repository, 'v1')
    const digests = blobsOf(manifest)
    for (const digest of digests) {
      const refused = await ask('DELETE', repository, `blobs/${digest}`)
      expect(refused).toMatchObject({ status: 405, codes: ['UNSUPPORTED'] })
      expect(refused.body.toString()).toContain(`the manifest ${manifest.digest} needs the blob: delete that manifest first`)
      expect((await ask('GET', repository, `blobs/${digest}`)).status).toBe(200)
    }
    expect((await ask('DELETE', repository, `manifests/${manifest.digest}`)).status).toBe(202)
    for (const digest of digests) expect((await ask('DELETE', repository, `blobs/${digest}`)).status).toBe(202)
    // The mark is deleted: a push succeeds at once.
    await host.client.pushImage(repository, 'v2')
  })

  test('the deletion of a blob is refused while an index, or a manifest of another type, names the blob', async () => {
    const repository = host.freshRepository()
    const put = async (text: string, content: (descriptor: object) => Record<string, unknown>): Promise<string> => {
      const bytes = Buffer.from(`${text} of ${repository}`)
      const digest = await host.client.putBlob(repository, bytes)
      const manifest = manifestOf(content(descriptorOf({ bytes, digest, mediaType: 'application/octet-stream' })))
      expect((await host.client.putManifest(repository, manifest.digest, manifest)).status).toBe(201)
      return digest
    }
    const named = [
      await put('a child', (one) => ({ schemaVersion: 2, mediaType: indexType, manifests: [one] })),
      await put('a mention', (one) => ({ mediaType: 'application/vnd.example.thing+json', things: [one] })),
    ]
    for (const digest of named) expect(await ask('DELETE', repository, `blobs/${digest}`)).toMatchObject({ status: 405, codes: ['UNSUPPORTED'] })
  })

  test('the deletion of a blob makes a concurrent push of a manifest with that blob fail', async () => {
    const repository = host.freshRepository()
    const layer = Buffer.from(`a layer of ${repository}`)
    const digest = await host.client.putBlob(repository, layer)
    const content = { schemaVersion: 2, mediaType: indexType, manifests: [descriptorOf({ bytes: layer, digest, mediaType: 'application/octet-stream' })] }
    let deleted: number | undefined
    host.intercepts.set('putManifest', async (_given, work) => {
      host.intercepts.clear()
      const outcome = await work()
      deleted = (await ask('DELETE', repository, `blobs/${digest}`)).status
      return outcome
    })
    const pushed = await host.client.putManifest(repository, 'v1', manifestOf(content))
    expect({ deleted, pushed }).toMatchObject({ deleted: 202, pushed: { status: 404, codes: ['MANIFEST_BLOB_UNKNOWN'] } })
    expect((await ask('GET', repository, 'manifests/v1')).status).toBe(404)
  })

  test('the deletion of a blob is answered separately for each of several concurrent requests', async () => {
    const repository = host.freshRepository()
    const needed = blobsOf(await host.client.pushImage(repository, 'v1'))
    const free = await Promise.all(Array.from({ length: 6 }, (_, at) => host.client.putBlob(repository, Buffer.from(`${at} of ${repository}`))))
    const answers = await Promise.all([...free, ...needed].map(async (digest) => (await ask('DELETE', repository, `blobs/${digest}`)).status))
    expect(answers).toEqual([...free.map(() => 202), ...needed.map(() => 405)])
  })
})
