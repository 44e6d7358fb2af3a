import { create, toBinary } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { digestOf, type Digest } from '../../../../src/base/digest.ts'
import type { Uid } from '../../../../src/base/uid.ts'
import { ManifestRecordSchema } from '../../../../src/gen/taproot/store/v1/registry_pb.ts'
import { manifestKey } from '../../../../src/registry/records/manifest-keys.ts'
import { missingReferences } from '../../../../src/registry/records/manifests.ts'
import type { Store } from '../../../../src/store/store.ts'
import { describeOnChosenStore } from '../../../support/parts/require-part.ts'
import { soon, startCollectingHost, type CollectingHost } from '../../gc/collecting-host.ts'
import { descriptorOf, imageType, indexType, manifestOf } from '../oci-client.ts'
import { describeOnUpstreams } from '../oci-upstreams.ts'
import type { TestUpstream } from '../test-host.ts'

const childCount = 8_000

describeOnChosenStore('large manifests', (store) => describeOnUpstreams('pushed', (upstream) => largeManifests(store, upstream)))

function largeManifests(store: 'sqlite' | 'etcd', upstream: () => Promise<TestUpstream>): void {
  let host: CollectingHost
  let repository: string
  let repo: Uid
  const children = Array.from({ length: childCount }, (_, at) => digestOf(Buffer.from(`child ${at}`)))

  /** Records manifests like a push, without their bytes. */
  async function record(digests: readonly Digest[]): Promise<void> {
    const value = (digest: Digest): Uint8Array =>
      toBinary(ManifestRecordSchema, create(ManifestRecordSchema, { mediaType: imageType, size: 2n, upstreamDigest: digest, createTimeMs: 1n }))
    for (let at = 0; at < digests.length; at += 100) {
      const writes = digests.slice(at, at + 100).map((digest) => ({ kind: 'put' as const, key: manifestKey(repo, digest), value: value(digest) }))
      await host.services.store.transact({ guards: [], writes }, soon())
    }
  }

  beforeAll(async () => {
    host = await startCollectingHost(upstream, store)
    repository = host.freshRepository()
    await host.client.pushImage(repository, 'base')
    repo = host.repoOf(repository)
    await record(children)
  })
  afterAll(() => host?.stop())

  const index = (digests: readonly Digest[]): ReturnType<typeof manifestOf> =>
    manifestOf({
      schemaVersion: 2,
      mediaType: indexType,
      manifests: digests.map((digest) => ({ mediaType: imageType, digest, size: 2, platform: { architecture: 'amd64', os: 'linux', variant: 'v3' } })),
    })

  test('as an index with 8,000 children are accepted, returned as sent, and keep their children', async () => {
    const large = index(children)
    expect((await host.client.putManifest(repository, 'large', large)).status).toBe(201)
    expect((await host.client.send('GET', `/v2/${repository}/manifests/large`)).body.equals(large.bytes)).toBe(true)
    expect(await host.collectAfterGrace()).toMatchObject({ manifests: 0 })
  })

  test('with one missing child are refused, and the error names it', async () => {
    const missing = digestOf(Buffer.from('a child that was never pushed'))
    const answer = await host.client.putManifest(repository, 'lacking', index([...children.slice(0, 4_000), missing, ...children.slice(4_000)]))
    expect(answer).toMatchObject({ status: 404, codes: ['MANIFEST_BLOB_UNKNOWN'] })
    expect(answer.body.toString()).toContain(missing)
  })

  test('look up their children in ranges, not one by one', async () => {
    let reads = 0
    const { store: real } = host.services
    const counting = new Proxy(real, {
      get(target, name: keyof Store) {
        const value = target[name] as unknown
        if (typeof value !== 'function') return value
        reads += name === 'get' || name === 'range' ? 1 : 0
        return (value as (...given: unknown[]) => unknown).bind(target)
      },
    })
    const named = create(ManifestRecordSchema, { children: children.map((digest) => ({ digest })) })
    expect(await missingReferences({ ...host.services, store: counting }, { repo, record: named }, soon())).toEqual([])
    expect(reads).toBeLessThan(100)
  })

  test('with 2 MB of annotations are accepted, and the list of referrers has all annotations', async () => {
    const subject = await host.client.pushImage(repository, 'subject')
    const annotations = Object.fromEntries(Array.from({ length: 20 }, (_, at) => [`a${at}`, 'x'.repeat(100_000)]))
    const large = await host.client.pushImage(repository, 'annotated', { subject: descriptorOf(subject), annotations })
    const small = await host.client.pushImage(repository, 'plain', { subject: descriptorOf(subject), annotations: { a: 'b' } })
    const listed: Record<string, unknown> = {}
    let path: string | undefined = `/v2/${repository}/referrers/${subject.digest}`
    while (path !== undefined) {
      const { status, headers, body } = await host.client.send('GET', path)
      expect(status).toBe(200)
      const page = JSON.parse(body.toString()) as { manifests: { digest: string; annotations?: unknown }[] }
      for (const one of page.manifests) listed[one.digest] = one.annotations
      path = /^<([^>]+)>/.exec(String(headers.link ?? ''))?.[1]
    }
    expect(listed).toEqual({ [large.digest]: annotations, [small.digest]: { a: 'b' } })
  })
}
