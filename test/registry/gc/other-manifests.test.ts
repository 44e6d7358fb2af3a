import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Collector } from '../../../src/registry/gc/collector.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { descriptorOf, manifestOf, type TestManifest } from '../oci/oci-client.ts'
import { startDiskUpstream, startTestHost, type TestHost } from '../oci/test-host.ts'

/** Media type of a release candidate of OCI 1.1, which older versions of oras and notation push. */
const artifactType = 'application/vnd.oci.artifact.manifest.v1+json'
const graceMs = 24 * 3_600_000

describe('garbage collection of manifests of other types', () => {
  const clock = new TestClock()
  let host: TestHost
  beforeAll(async () => {
    host = await startTestHost({ upstream: startDiskUpstream, clock })
  })
  afterAll(() => host?.stop())

  /** Collects twice: the second run removes content that the first one made unneeded. */
  async function collectLater(): Promise<void> {
    for (let count = 0; count < 2; count += 1) {
      clock.advance(2 * graceMs)
      await new Collector(host.services, host.upstream, { graceMs }).collect(AbortSignal.timeout(20_000))
    }
  }
  const statusOf = async (path: string): Promise<number> => (await host.client.send('GET', `/v2/${path}`)).status
  /** An artifact manifest of a fresh blob. */
  async function artifact(repository: string, more: Readonly<Record<string, unknown>> = {}): Promise<{ manifest: TestManifest; blob: string }> {
    const bytes = randomBytes(100)
    const blob = await host.client.putBlob(repository, bytes)
    const blobs = [{ mediaType: 'application/octet-stream', digest: blob, size: bytes.length }]
    return { manifest: manifestOf({ mediaType: artifactType, artifactType: 'application/vnd.example.sbom', blobs, ...more }), blob }
  }

  test('garbage collection of manifests of other types keeps the blobs of a tagged one', async () => {
    const repository = host.freshRepository()
    const { manifest, blob } = await artifact(repository)
    expect((await host.client.putManifest(repository, 'v1', manifest)).status).toBe(201)
    await collectLater()
    expect([await statusOf(`${repository}/manifests/v1`), await statusOf(`${repository}/blobs/${blob}`)]).toEqual([200, 200])
  })

  test('garbage collection of manifests of other types keeps an untagged one with its blobs as a referrer while its subject stays', async () => {
    const repository = host.freshRepository()
    const image = await host.client.pushImage(repository, 'v1')
    const { manifest, blob } = await artifact(repository, { subject: descriptorOf(image), annotations: { 'org.example.a': '1' } })
    const put = await host.client.putManifest(repository, manifest.digest, manifest)
    expect([put.status, put.headers['oci-subject']]).toEqual([201, image.digest])
    await collectLater()
    expect([await statusOf(`${repository}/manifests/${manifest.digest}`), await statusOf(`${repository}/blobs/${blob}`)]).toEqual([200, 200])
    const referrers = await host.client.send('GET', `/v2/${repository}/referrers/${image.digest}`)
    expect(JSON.parse(referrers.body.toString())).toMatchObject({
      manifests: [{ ...descriptorOf(manifest), artifactType: 'application/vnd.example.sbom', annotations: { 'org.example.a': '1' } }],
    })
  })

  test('garbage collection of manifests of other types removes an unneeded one with its blobs', async () => {
    const repository = host.freshRepository()
    const { manifest, blob } = await artifact(repository)
    expect((await host.client.putManifest(repository, manifest.digest, manifest)).status).toBe(201)
    await collectLater()
    expect([await statusOf(`${repository}/manifests/${manifest.digest}`), await statusOf(`${repository}/blobs/${blob}`)]).toEqual([404, 404])
  })
})
