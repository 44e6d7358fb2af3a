import { mkdir, mkdtemp, readdir, readFile, rm, utimes } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { digestOf, type Digest } from '../../src/base/digest.ts'
import { contentLimits } from '../../src/contents/package.ts'
import type { ReadingOptions } from '../../src/contents/reading/read-contents.ts'
import { UpstreamError, type Upstream } from '../../src/registry/upstream/upstream.ts'
import { descriptorOf, indexType, manifestOf } from '../registry/oci/oci-client.ts'
import { startDiskUpstream, startTestHost, type TestHost } from '../registry/oci/test-host.ts'
import { spdx } from './sbom-samples.ts'
import { alive, apkFiles, bytesOf, dpkgFiles, layerOf, TestRepo } from './reading-repo.ts'

/** Resolves with the ids of the processes of this one that read images. */
async function readingProcesses(): Promise<number[]> {
  const found: number[] = []
  for (const thread of await readdir('/proc/self/task')) {
    const children = await readFile(`/proc/self/task/${thread}/children`, 'utf8').catch(() => '')
    for (const child of children.split(' ').filter((text) => text !== '')) {
      const command = await readFile(`/proc/${child}/cmdline`, 'utf8').catch(() => '')
      if (command.includes('reading-process-main')) found.push(Number(child))
    }
  }
  return found
}

/** Returns the upstream with other blobs: `body` makes the stream of each, or undefined for one that is as it was. */
function withBlobs(upstream: Upstream, body: (digest: Digest) => Readable | undefined): Upstream {
  return new Proxy(upstream, {
    get(target, key) {
      if (key !== 'readBlob') return (target[key as keyof Upstream] as () => unknown).bind(target) // the port has methods only
      const readBlob: Upstream['readBlob'] = async (repo, source, signal) => {
        const found = await target.readBlob(repo, source, signal)
        const other = body(source.digest)
        if (found === undefined || other === undefined) return found
        found.body.destroy()
        return { size: found.size, body: other }
      }
      return readBlob
    },
  })
}

/** A stream that never has any bytes. */
const silence = (): Readable => new Readable({ read: () => undefined })

describe('reading with faults', () => {
  let host: TestHost
  beforeAll(async () => void (host = await startTestHost({ upstream: startDiskUpstream })))
  afterAll(() => host.stop())

  test('in an SBOM: wrong bytes, too many, or none', async () => {
    const repo = new TestRepo(host)
    const image = await repo.image([layerOf(apkFiles)])
    const bytes = bytesOf(spdx)
    const sbom = await repo.referrer(image, { bytes, mediaType: 'application/spdx+json' })
    const upstream = withBlobs(host.upstream, (digest) => (digest === digestOf(bytes) ? Readable.from([Buffer.alloc(bytes.length, ' ')]) : undefined))
    const wrong = { source: 'layers', problem: undefined, skipped: [{ path: sbom.digest, problem: 'WRONG_DIGEST' }] }
    expect(await repo.read(image, { upstream })).toMatchObject([wrong])
    await host.upstream.deleteBlob(repo.uid, digestOf(bytes), alive)
    expect(await repo.read(image)).toMatchObject([{ ...wrong, skipped: [{ problem: 'UNREADABLE' }] }])
    const large = Buffer.alloc(contentLimits.documentBytes + 1, ' ')
    await repo.referrer(image, { bytes: large, mediaType: 'application/spdx+json' })
    const [found] = await repo.read(image, { upstream: withBlobs(host.upstream, (digest) => (digest === digestOf(large) ? silence() : undefined)) })
    expect(found).toMatchObject({ source: 'layers', skipped: [{ problem: 'TOO_LARGE' }, { problem: 'UNREADABLE' }] })
  })

  test('in an SBOM: 1 GiB where the upstream says a few bytes ends at once', async () => {
    const repo = new TestRepo(host)
    const image = await repo.image([layerOf(apkFiles)])
    const bytes = bytesOf({ ...spdx, comment: 'endless' })
    const sbom = await repo.referrer(image, { bytes, mediaType: 'application/spdx+json' })
    const piece = Buffer.alloc(1024 * 1024, ' ')
    let given = 0
    function* gibibyte(): Generator<Buffer> {
      for (; given < 1024; given++) yield piece
    }
    const upstream = withBlobs(host.upstream, (digest) => (digest === digestOf(bytes) ? Readable.from(gibibyte(), { highWaterMark: 1 }) : undefined))
    expect(await repo.read(image, { upstream })).toMatchObject([{ source: 'layers', skipped: [{ path: sbom.digest, problem: 'WRONG_DIGEST' }] }])
    expect(given).toBeLessThan(10)
  })

  test('in a layer: wrong bytes, or none', async () => {
    const repo = new TestRepo(host)
    const layer = layerOf(apkFiles)
    const image = await repo.image([layer])
    const other = layerOf({ ...apkFiles, 'a/b': 'c' })
    const padded = Buffer.concat([layerOf({}), Buffer.alloc(layer.length)]).subarray(0, layer.length)
    expect(other.length).not.toBe(layer.length)
    expect(await repo.read(image, { upstream: withBlobs(host.upstream, () => Readable.from([padded])) })).toMatchObject([{ problem: 'WRONG_DIGEST' }])
    await host.upstream.deleteBlob(repo.uid, digestOf(layer), alive)
    expect(await repo.read(image)).toMatchObject([{ problem: 'UNREADABLE', platform: 'linux/amd64' }])
  })

  test('of the upstream reject', async () => {
    const repo = new TestRepo(host)
    const image = await repo.image([layerOf(apkFiles)])
    const away = (): Readable =>
      new Readable({
        read() {
          this.destroy(new UpstreamError('unavailable', 'away'))
        },
      })
    await expect(repo.read(image, { upstream: withBlobs(host.upstream, away) })).rejects.toMatchObject({ kind: 'unavailable' })
    await repo.referrer(image, { bytes: bytesOf(spdx), mediaType: 'application/spdx+json' })
    await expect(repo.read(image, { upstream: withBlobs(host.upstream, away) })).rejects.toMatchObject({ kind: 'unavailable' })
    expect(await readingProcesses()).toEqual([])
  })

  test('of the process: one that ends, or takes too long, and one that is not wanted any more', async () => {
    const repo = new TestRepo(host)
    const layer = layerOf(apkFiles)
    const image = await repo.image([layer])
    const upstream = withBlobs(host.upstream, (digest) => (digest === digestOf(layer) ? silence() : undefined))
    const started = (): Promise<number> =>
      vi.waitFor(async () => (await readingProcesses())[0] ?? Promise.reject(new Error('none')), { timeout: 120_000, interval: 10 })

    // Node.js aborts itself at the limit of its heap: that happens again with each reading.
    for (const [ending, retry] of [
      ['SIGKILL', 'few'],
      ['SIGABRT', 'never'],
    ] as const) {
      const killed = repo.reading(image, { upstream })
      process.kill(await started(), ending)
      expect(await killed).toMatchObject({ images: [{ source: 'layers', problem: 'TOO_LARGE', packages: [] }], retry })
    }

    expect(await repo.reading(image, { upstream, timeLimitMs: 50 })).toMatchObject({ images: [{ problem: 'TOO_LARGE' }], retry: 'few' })
    expect(await readingProcesses()).toEqual([])

    const stopping = new AbortController()
    const folder = join(await mkdtemp(join(tmpdir(), 'taproot-test-')), 'reading')
    const abandoned = join(folder, 'taproot-reading-1')
    await mkdir(abandoned, { recursive: true })
    await utimes(abandoned, 0, 0)
    const stopped = repo.read(image, { upstream, folder }, stopping.signal)
    await started()
    expect(await readdir(folder)).toHaveLength(1)
    stopping.abort(new Error('stopped'))
    await expect(stopped).rejects.toThrow('stopped')
    expect(await readingProcesses()).toEqual([])
    expect(await readdir(folder)).toEqual([])
    await rm(dirname(folder), { recursive: true })
  })

  test('of time: an index has one limit for all images in it, and says which ones were not reached', async () => {
    const repo = new TestRepo(host)
    const slow = layerOf({ ...apkFiles, salt: 'slow' })
    const images = [await repo.image([slow]), await repo.image([layerOf(apkFiles)]), await repo.image([layerOf(dpkgFiles)])] as const
    const index = await repo.push(manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: images.map(descriptorOf) }))
    const upstream = withBlobs(host.upstream, (digest) => (digest === digestOf(slow) ? silence() : undefined))
    const known: ReadingOptions['known'] = ({ digest }) => Promise.resolve(digest === images[2].digest ? { source: 'layers', sourceDigest: '' } : undefined)
    const { images: read, index: members, retry } = await repo.reading(index, { upstream, known, timeLimitMs: 50 })
    // What is known of the last one stays.
    expect(read.map(({ digest }) => digest)).toEqual(images.slice(0, 2).map(({ digest }) => digest))
    expect(read[1]).toMatchObject({ problem: 'TOO_LARGE', message: expect.stringContaining('not reached') as string, packages: [] })
    expect(members?.images).toHaveLength(3)
    expect(retry).toBe('few')
    expect(await readingProcesses()).toEqual([])
  })
})
