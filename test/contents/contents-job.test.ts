import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { rootOf } from '../../src/base/uid.ts'
import type { ImageName } from '../../src/cache/lists/contents-source.ts'
import { ContentsJob } from '../../src/contents/contents-job.ts'
import { Publisher } from '../../src/contents/segments/publisher.ts'
import { Segments } from '../../src/contents/segments/segments.ts'
import type { Upstream } from '../../src/registry/upstream/upstream.ts'
import { startDiskUpstream, startTestHost, type TestHost } from '../registry/oci/test-host.ts'
import { freshName, makeOrganisation } from '../support/test-server.ts'
import { alive, apkFiles, layerOf, TestRepo } from './reading-repo.ts'

let host: TestHost
beforeAll(async () => void (host = await startTestHost({ upstream: startDiskUpstream })))
afterAll(() => host.stop())

/** Pushes images to a repo of another organisation. */
async function pushed(count: number): Promise<ImageName[]> {
  const name = freshName('org')
  const { owner } = await makeOrganisation(host.server, name)
  const repo = new TestRepo({ ...host, client: host.as(owner), freshRepository: () => `${name}/${freshName('app')}` })
  const images: ImageName[] = []
  for (let at = 0; at < count; at++) {
    const { digest } = await repo.image([layerOf({ ...apkFiles, salt: String(at) })])
    images.push({ repo: repo.uid, digest })
  }
  return images
}

test('organisations take turns, and what is known of one stays as it was when images of others are read', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-contents-'))
  onTestFinished(() => rm(directory, { recursive: true }))
  const images = (await Promise.all([pushed(4), pushed(4), pushed(4)])).flat()
  const { services, upstream } = host
  const { store, cache, clock, random, log } = services
  const options = { store, cache, upstream, directory, clock, random, log }
  // What was read is published after each image: a new round begins.
  const job = new ContentsJob({ ...options, services, publishAfterMs: 0 })
  onTestFinished(() => job.close())
  await job.run(undefined, alive)
  const segments = new Segments(options)
  onTestFinished(segments.serve())
  const read = await expect
    .poll(async () => {
      const found = await segments.imagesAmong(images, { key: '', signal: alive }).catch(() => [])
      return found.length === images.length ? found : undefined
    })
    .toBeDefined()
    .then(() => segments.imagesAmong(images, { key: '', signal: alive }))
  const times = Map.groupBy(read, ({ repo }) => rootOf(repo))
  for (const ofOne of times.values()) {
    const first = Math.min(...ofOne.map(({ readMs }) => readMs))
    expect(read.filter(({ readMs }) => readMs < first).length).toBeLessThanOrEqual(4)
  }
  const repos = [...new Set(images.map(({ repo }) => repo))]
  const editions = (): string[] => repos.map((repo) => segments.editionOf(repo))
  const before = editions()
  const [more] = await pushed(1)
  if (more === undefined) throw new Error('no image')
  const unread = segments.editionOf(more.repo)
  await job.run(undefined, alive)
  await expect.poll(() => segments.editionOf(more.repo)).not.toBe(unread)
  expect(editions()).toEqual(before)
})

test('what was read is published while a slow image of another organisation is read, and later pushes are read too', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-contents-'))
  onTestFinished(() => rm(directory, { recursive: true }))
  const [[slow], others] = await Promise.all([pushed(1), pushed(3)])
  const readBlob: Upstream['readBlob'] = async (repo, source, signal) => {
    const found = await host.upstream.readBlob(repo, source, signal)
    if (found === undefined || repo !== slow?.repo) return found
    found.body.destroy()
    return { size: found.size, body: new Readable({ read: () => undefined }) } // no bytes, and no end
  }
  const upstream = new Proxy(host.upstream, {
    get: (target, key) => (key === 'readBlob' ? readBlob : target[key as keyof Upstream].bind(target)), // the port has methods only
  })
  const { services } = host
  const options = { ...services, upstream, directory }
  const [job, publisher] = [new ContentsJob({ ...options, services, publishAfterMs: 0 }), new Publisher(options, services)]
  onTestFinished(() => Promise.all([job.close(), publisher.close()]).then(() => undefined))
  const known = async (images: readonly ImageName[]): Promise<number> => (await publisher.known(images, alive).catch(() => [])).length
  const stopping = new AbortController()
  const stopped = expect(job.run(undefined, stopping.signal)).rejects.toThrow('stopped')
  await expect.poll(() => known(others), { timeout: 120_000 }).toBe(3)
  const later = await pushed(1)
  await expect.poll(() => known(later), { timeout: 120_000 }).toBe(1)
  stopping.abort(new Error('stopped'))
  await stopped
})
