import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Collector } from '../../../../src/registry/gc/collector.ts'
import { UpstreamError, type Upstream } from '../../../../src/registry/upstream/upstream.ts'
import { findRepository } from '../../../../src/registry/records/repo-paths.ts'
import { TestClock } from '../../../conformance/spec/test-clock.ts'
import { indexType, manifestOf, type TestManifest } from '../oci-client.ts'
import { describeOnUpstreams } from '../oci-upstreams.ts'
import { startTestHost, type TestHost } from '../test-host.ts'

const graceMs = 24 * 3_600_000
const layerType = 'application/vnd.oci.image.layer.v1.tar+gzip'
const cacheType = 'application/vnd.buildkit.cacheconfig.v0'

describeOnUpstreams("BuildKit's cache as an index of blobs", (upstream) => {
  const clock = new TestClock()
  let host: TestHost
  let isRefusing = false

  function wrap(source: Upstream): Upstream {
    return new Proxy(source, {
      get(target, name, receiver) {
        const member: unknown = Reflect.get(target, name, receiver)
        if (name === 'putManifest' && isRefusing) return () => Promise.reject(new UpstreamError('refused', 'no such manifests here'))
        // Methods of the upstream use its private fields.
        return typeof member === 'function' ? member.bind(target) : member
      },
    })
  }

  beforeAll(async () => {
    host = await startTestHost({ upstream, clock, wrap })
  })
  afterAll(() => host?.stop())

  /** What `--cache-to type=registry,image-manifest=false` pushes last, and the blobs that it pushed before. */
  async function cacheIn(repository: string): Promise<{ index: TestManifest; blobs: string[] }> {
    const sources = [
      { mediaType: layerType, bytes: randomBytes(500), annotations: { 'buildkit/createdat': '2026-01-01T00:00:00Z' } },
      { mediaType: cacheType, bytes: randomBytes(100) },
    ]
    const blobs = await Promise.all(sources.map(({ bytes }) => host.client.putBlob(repository, bytes)))
    const manifests = sources.map(({ bytes, ...source }, at) => ({ ...source, digest: blobs[at], size: bytes.length }))
    return { index: manifestOf({ schemaVersion: 2, mediaType: indexType, manifests }), blobs }
  }

  test("BuildKit's cache as an index of blobs is pushed, pulled by tag and digest, and has no architecture", async () => {
    const repository = host.freshRepository()
    const { index, blobs } = await cacheIn(repository)
    expect((await host.client.putManifest(repository, 'cache', index)).status).toBe(201)
    for (const reference of ['cache', index.digest]) {
      const got = await host.client.send('GET', `/v2/${repository}/manifests/${reference}`)
      expect([got.status, got.headers['content-type'], got.body.equals(index.bytes)]).toEqual([200, indexType, true])
    }
    for (const blob of blobs) expect((await host.client.send('GET', `/v2/${repository}/blobs/${blob}`)).status).toBe(200)
    const target = findRepository(host.services.cache.tables, repository)
    const image = { repoUid: target?.kind === 'repo' ? target.uid : '', digest: index.digest }
    const token = await host.server.tokenFor(host.owner)
    expect((await host.server.rest.call('GetArchitectures', image, { token })).body).toEqual({ architectures: [] })
    expect((await host.server.rest.call('GetSize', image, { token })).body).toMatchObject({ code: 5 })
  })

  test("BuildKit's cache as an index of blobs keeps its blobs as long as a tag points to it", async () => {
    const repository = host.freshRepository()
    const { index, blobs } = await cacheIn(repository)
    expect((await host.client.putManifest(repository, 'cache', index)).status).toBe(201)
    for (let count = 0; count < 2; count += 1) {
      clock.advance(2 * graceMs)
      await new Collector(host.services, host.upstream, { graceMs }).collect(AbortSignal.timeout(20_000))
    }
    for (const blob of blobs) expect((await host.client.send('GET', `/v2/${repository}/blobs/${blob}`)).status).toBe(200)
  })

  test("BuildKit's cache as an index of blobs is refused if the repo has a child neither as a manifest nor as a blob", async () => {
    const repository = host.freshRepository()
    const { index } = await cacheIn(repository)
    const other = host.freshRepository()
    await host.client.putBlob(other, Buffer.from('x'))
    const refused = await host.client.putManifest(other, 'cache', index)
    expect([refused.status, refused.codes]).toEqual([404, ['MANIFEST_BLOB_UNKNOWN']])
  })

  test("BuildKit's cache as an index of blobs is refused as an invalid manifest if the upstream refuses it", async () => {
    const repository = host.freshRepository()
    const { index } = await cacheIn(repository)
    isRefusing = true
    const refused = await host.client.putManifest(repository, 'cache', index)
    isRefusing = false
    expect([refused.status, refused.codes]).toEqual([400, ['MANIFEST_INVALID']])
  })
})
