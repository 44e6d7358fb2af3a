import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { digestOf, type Digest } from '../../src/base/digest.ts'
import type { ContentsFacts } from '../../src/cache/lists/contents-source.ts'
import { ContentsJob } from '../../src/contents/contents-job.ts'
import { Publisher } from '../../src/contents/segments/publisher.ts'
import type { SegmentsOptions } from '../../src/contents/segments/segments.ts'
import { UpstreamError, type Upstream } from '../../src/registry/upstream/upstream.ts'
import { TestClock } from '../conformance/spec/test-clock.ts'
import { manifestOf, descriptorOf, indexType } from '../registry/oci/oci-client.ts'
import { startDiskUpstream, startTestHost, type TestHost } from '../registry/oci/test-host.ts'
import { describeOnChosenStore } from '../support/parts/require-part.ts'
import { alive, apkFiles, bytesOf, layerOf, TestRepo } from './reading-repo.ts'
import { syft } from './sbom-samples.ts'

const minuteMs = 60_000
const hourMs = 60 * minuteMs

/** Returns a method of the upstream. */
function bound(upstream: Upstream, key: string | symbol): unknown {
  return upstream[key as keyof Upstream].bind(upstream) // the port has methods only
}

describeOnChosenStore('an image that the upstream does not give whole', (store) => {
  const clock = new TestClock()
  let directory = ''
  let host: TestHost
  let job: ContentsJob
  let publisher: Publisher
  /** A blob that the upstream cannot read. */
  let failing: Digest | undefined
  beforeAll(async () => {
    host = await startTestHost({ upstream: startDiskUpstream, store, clock, leads: false })
    directory = await mkdtemp(join(tmpdir(), 'taproot-contents-'))
    const { services } = host
    const readBlob: Upstream['readBlob'] = (repo, source, signal) => {
      return source.digest === failing ? Promise.reject(new UpstreamError('unavailable', 'status 500')) : host.upstream.readBlob(repo, source, signal)
    }
    const upstream = new Proxy(host.upstream, { get: (target, key) => (key === 'readBlob' ? readBlob : bound(target, key)) })
    const options: SegmentsOptions = { ...services, upstream, directory }
    job = new ContentsJob({ ...options, services })
    publisher = new Publisher(options, services)
  })
  afterAll(async () => {
    await job.close()
    await publisher.close()
    await host.stop()
    await rm(directory, { recursive: true })
  })

  /** Lets the job run after some time. Resolves with what is known of an image then. */
  async function after(ms: number, repo: TestRepo, digest: Digest): Promise<ContentsFacts | undefined> {
    clock.advance(ms)
    await job.run(undefined, alive)
    const [facts] = await publisher.known([{ repo: repo.uid, digest }], alive)
    return facts
  }

  async function keysLeft(): Promise<string[]> {
    const { entries } = await host.services.store.range({ prefix: 'x/', limit: 1_000 }, alive)
    return entries.map(({ key }) => key).filter((key) => /^x\/(?:un|re)read\//.test(key))
  }

  async function put(repo: TestRepo, bytes: Buffer): Promise<void> {
    const { state } = await host.upstream.startUpload(repo.uid, alive)
    await host.upstream.finishUpload(repo.uid, { state, digest: digestOf(bytes), chunk: { body: Readable.from([bytes]), length: bytes.length } }, alive)
  }

  test('is read again after 5 minutes, 30 minutes and 6 hours, then daily', async () => {
    const repo = new TestRepo(host)
    const layer = layerOf({ ...apkFiles, salt: repo.path })
    const { digest } = await repo.image([layer])
    await host.upstream.deleteBlob(repo.uid, digestOf(layer), alive)
    let last = await after(0, repo, digest)
    expect(last).toMatchObject({ problem: 'UNREADABLE', message: expect.stringContaining(digestOf(layer)) as string })
    for (const waitMs of [5 * minuteMs, 30 * minuteMs, 6 * hourMs, 24 * hourMs, 24 * hourMs]) {
      expect(await after(waitMs - minuteMs, repo, digest)).toEqual(last)
      const next = await after(minuteMs, repo, digest)
      expect(next?.readMs).toBeGreaterThan(last?.readMs ?? Infinity)
      last = next
    }
    await put(repo, layer)
    expect(await after(24 * hourMs, repo, digest)).toMatchObject({ problem: '', source: 'layers' })
    expect(await keysLeft()).toEqual([])
  })

  test('is read again from the start of the tries after a push', async () => {
    const repo = new TestRepo(host)
    const layer = layerOf({ ...apkFiles, salt: repo.path })
    const image = await repo.image([layer])
    await host.upstream.deleteBlob(repo.uid, digestOf(layer), alive)
    await after(0, repo, image.digest)
    await after(5 * minuteMs, repo, image.digest)
    await repo.push(image, 'again')
    const pushed = await after(0, repo, image.digest)
    await put(repo, layer)
    expect(await after(4 * minuteMs, repo, image.digest)).toEqual(pushed)
    expect(await after(minuteMs, repo, image.digest)).toMatchObject({ problem: '' })
    expect(await keysLeft()).toEqual([])
  })

  test('says so if its manifest is lost, and is read once it is there', async () => {
    const repo = new TestRepo(host)
    const image = await repo.image([layerOf({ ...apkFiles, salt: repo.path })])
    const index = await repo.push(manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [descriptorOf(image)] }))
    await host.upstream.deleteManifest(repo.uid, image.digest, alive)
    expect(await after(0, repo, image.digest)).toMatchObject({ problem: 'UNREADABLE', message: expect.stringContaining(image.digest) as string })
    expect(await keysLeft()).toEqual([image, index].map(({ digest }) => `x/reread/${repo.uid}/${digest}`).sort())
    await host.upstream.putManifest(repo.uid, { digest: image.digest, mediaType: image.mediaType, bytes: image.bytes }, alive)
    expect(await after(5 * minuteMs, repo, image.digest)).toMatchObject({ problem: '' })
    expect(await keysLeft()).toEqual([])
  })

  test('has the contents of its layers until its SBOM is there', async () => {
    const repo = new TestRepo(host)
    const image = await repo.image([layerOf({ ...apkFiles, salt: repo.path })])
    const bytes = bytesOf(syft)
    await repo.referrer(image, { bytes, mediaType: 'application/vnd.syft+json' })
    await host.upstream.deleteBlob(repo.uid, digestOf(bytes), alive)
    expect(await after(0, repo, image.digest)).toMatchObject({ source: 'layers', problem: '', skipped: [expect.anything()] })
    await put(repo, bytes)
    expect(await after(5 * minuteMs, repo, image.digest)).toMatchObject({ source: 'referrer', skipped: [] })
    expect(await keysLeft()).toEqual([])
  })

  test('is tried later if the upstream fails for it alone, and does not hold up others', async () => {
    const [repo, other] = [new TestRepo(host), new TestRepo(host)]
    const layer = layerOf({ ...apkFiles, salt: repo.path })
    const { digest } = await repo.image([layer])
    failing = digestOf(layer)
    for (let times = 0; times < 2; times += 1) await expect(after(0, repo, digest)).rejects.toMatchObject({ kind: 'unavailable' })
    const good = await other.image([layerOf({ ...apkFiles, salt: other.path })])
    expect(await after(0, repo, digest)).toMatchObject({ problem: 'UNREADABLE', message: expect.stringContaining('upstream') as string })
    expect(await after(0, other, good.digest)).toMatchObject({ problem: '' })
    failing = undefined
    expect(await after(5 * minuteMs, repo, digest)).toMatchObject({ problem: '', source: 'layers' })
    expect(await keysLeft()).toEqual([])
  })

  test('is not read again if its bytes are damaged', async () => {
    const repo = new TestRepo(host)
    const { digest } = await repo.image([Buffer.from('no tar')])
    expect(await after(0, repo, digest)).toMatchObject({ problem: 'UNREADABLE' })
    expect(await keysLeft()).toEqual([])
  })
})
