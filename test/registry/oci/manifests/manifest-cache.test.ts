import { afterAll, beforeAll, expect, test } from 'vitest'
import { ManifestCache } from '../../../../src/registry/oci/manifests/manifest-cache.ts'
import type { Upstream } from '../../../../src/registry/upstream/upstream.ts'
import { startDiskUpstream, startTestHost, type TestHost } from '../test-host.ts'

let host: TestHost

beforeAll(async () => {
  host = await startTestHost({ upstream: startDiskUpstream })
})

afterAll(() => host?.stop())

test.each([
  ['a small part of a large block', 64 * 1024],
  ['separate memory', 0],
])('the manifest cache keeps only the bytes of manifests that are %s', async (_, around) => {
  const { client, services, upstream } = host
  const repository = host.freshRepository()
  const { digest, bytes } = await client.pushImage(repository, 'v1')
  const repo = services.cache.tables.table('Repo').child(host.group, repository.split('/')[1] ?? '')?.uid
  if (repo === undefined) throw new Error('no repo')
  const getManifest: Upstream['getManifest'] = async (...call) => {
    const found = await upstream.getManifest(...call)
    if (found === undefined) return undefined
    const block = Buffer.allocUnsafeSlow(found.bytes.length + around)
    block.set(found.bytes)
    return { ...found, bytes: block.subarray(0, found.bytes.length) }
  }
  const cache = new ManifestCache({ services, upstream: { getManifest }, maxBytes: 1_000_000, missing: () => undefined })
  const read = await cache.get({ repo, digest }, AbortSignal.timeout(60_000))
  for (const held of [read, cache.at({ repo, digest })]) {
    expect(held && Buffer.from(held.bytes).equals(bytes)).toBe(true)
    expect(held?.bytes.buffer.byteLength).toBe(bytes.length)
  }
})
