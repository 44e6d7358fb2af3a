import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Digest } from '../../../src/base/digest.ts'
import type { Uid } from '../../../src/base/uid.ts'
import { Collector } from '../../../src/registry/gc/collector.ts'
import { collectKey, markOf } from '../../../src/registry/records/content-epoch.ts'
import { manifestKey, manifestPrefix, referrerPrefix } from '../../../src/registry/records/manifest-keys.ts'
import { UpstreamError } from '../../../src/registry/upstream/upstream.ts'
import type { Write } from '../../../src/store/store.ts'
import type { Reply } from '../../support/api-clients.ts'
import { descriptorOf, indexType, manifestOf, type TestManifest } from '../oci/oci-client.ts'
import { startDiskUpstream } from '../oci/test-host.ts'
import { graceMs, soon, startCollectingHost, type CollectingHost } from './collecting-host.ts'
import { happeningBefore } from './interference.ts'

const hourMs = 3_600_000

/** Moments of a collection, by the next write. */
const moments = {
  'between the look at the history and the first mark': (repo: Uid) => (writes: readonly Write[]) => writes.some(({ key }) => key === collectKey(repo)),
  'between the look at the records and their removal': (repo: Uid) => (writes: readonly Write[]) =>
    writes.some(({ kind, key }) => kind === 'delete' && key.startsWith(`${manifestPrefix}${repo}/`)),
}

describe('content that a client starts to rely on during garbage collection', () => {
  let host: CollectingHost
  beforeAll(async () => {
    host = await startCollectingHost(startDiskUpstream)
  })
  afterAll(() => host.stop())

  const pull = async (repository: string, reference: string): Promise<number> =>
    (await host.client.send('GET', `/v2/${repository}/manifests/${reference}`)).status
  const restore = async (repoUid: Uid, tag: string, digest: string): Promise<Reply> =>
    host.server.rest.call('RestoreTag', { repoUid, tag, digest }, { token: await host.server.tokenFor(host.owner) })

  /** A repo with an image that is unreferenced for longer than the grace period. */
  async function repoWithDue(more: Readonly<Record<string, unknown>> = {}): Promise<{ repository: string; repo: Uid; image: TestManifest }> {
    const repository = host.freshRepository()
    const image = await host.client.image(repository, more)
    expect((await host.client.putManifest(repository, image.digest, image)).status).toBe(201)
    await host.collect()
    host.clock.advance(2 * graceMs)
    return { repository, repo: host.repoOf(repository), image }
  }

  test.each(Object.entries(moments))(
    'content in use during garbage collection stays in the history if a tag is created and deleted %s',
    async (_title, momentOf) => {
      const { repository, repo, image } = await repoWithDue()
      const other = await host.client.pushImage(repository, 'other')
      const moves = async (): Promise<void> => {
        for (const { digest } of [image, other]) await host.tag(repo, 'rel', digest)
      }
      await host.collect({}, happeningBefore(host.services, momentOf(repo), moves))
      expect(await pull(repository, image.digest)).toBe(200)
      expect(await host.upstream.hasManifest(repo, image.digest, soon())).toBe(true)
      expect(await restore(repo, 'rel', image.digest)).toMatchObject({ code: 0, body: { digest: image.digest } })
      expect(await pull(repository, 'rel')).toBe(200)
      await host.collectAfterGrace()
      expect(await pull(repository, image.digest)).toBe(200)
    },
  )

  test('content in use during garbage collection is collected although a push removes the mark of a dead collection in between', async () => {
    const { repository, repo, image } = await repoWithDue()
    const mark = { kind: 'put', key: collectKey(repo), value: markOf(host.clock.now()) } as const
    await host.services.store.transact({ guards: [], writes: [mark] }, soon())
    host.clock.advance(120_000)
    const push = (): Promise<Digest> => host.client.putBlob(repository, Buffer.from('just before the next mark'))
    const services = happeningBefore(host.services, moments['between the look at the history and the first mark'](repo), push)
    expect(await new Collector(services, host.upstream, { graceMs }).collectRepo(repo, soon())).toMatchObject({ manifests: 1 })
    expect(await pull(repository, image.digest)).toBe(404)
    expect((await host.client.send('GET', `/v2/${repository}/blobs/${await push()}`)).status).toBe(200)
  })

  test('content in use during garbage collection stays until an index arrives, if a client checked that its image exists, whatever its age', async () => {
    const { repository, repo, image } = await repoWithDue()
    const reader = host.as(await host.member('registry.pull'))
    expect((await reader.send('HEAD', `/v2/${repository}/manifests/${image.digest}`)).status).toBe(200)
    expect(await host.collect({ dryRun: true })).toMatchObject({ manifests: 1 })
    expect((await host.client.send('HEAD', `/v2/${repository}/manifests/${image.digest}`)).status).toBe(200)
    host.clock.advance(graceMs - hourMs)
    await host.collect()
    const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [descriptorOf(image)] })
    expect((await host.client.putManifest(repository, 'index', index)).status).toBe(201)
    host.clock.advance(2 * graceMs)
    await host.collect()
    expect(await pull(repository, image.digest)).toBe(200)
    expect(await host.upstream.hasManifest(repo, image.digest, soon())).toBe(true)
  })

  test('content in use during garbage collection stays if a client checks an image just before its removal; after the removal it is missing', async () => {
    const { repository, image } = await repoWithDue()
    const reported: number[] = []
    const ask = async (): Promise<void> => void reported.push((await host.client.send('HEAD', `/v2/${repository}/manifests/${image.digest}`)).status)
    const moment = moments['between the look at the records and their removal'](host.repoOf(repository))
    expect(await host.collect({}, happeningBefore(host.services, moment, ask))).toMatchObject({ manifests: 0, left: 0 })
    expect(await pull(repository, image.digest)).toBe(200)
    host.clock.advance(2 * graceMs)
    host.intercepts.set('deleteManifest', (_given, work) => ask().then(work))
    expect(await host.collect()).toMatchObject({ manifests: 1 })
    expect(reported).toEqual([200, 404])
  })

  test('content is recorded as used by the first HEAD by digest only, not by a HEAD by tag, a GET or a second HEAD', async () => {
    const { repository, repo, image } = await repoWithDue()
    await host.tag(repo, 'latest', image.digest)
    host.clock.advance(2 * hourMs)
    const revision = async (): Promise<unknown> => (await host.services.store.get(manifestKey(repo, image.digest), soon()))?.revision
    const path = `/v2/${repository}/manifests`
    const before = await revision()
    expect((await host.client.send('HEAD', `${path}/latest`)).status).toBe(200)
    expect(await pull(repository, image.digest)).toBe(200)
    expect(await revision()).toBe(before)
    expect((await host.client.send('HEAD', `${path}/${image.digest}`)).status).toBe(200)
    const touched = await revision()
    expect(touched).not.toBe(before)
    expect((await host.client.send('HEAD', `${path}/${image.digest}`)).status).toBe(200)
    expect(await revision()).toBe(touched)
  })

  test('content in use during garbage collection is removed no sooner than the new image that refers to it', async () => {
    const repository = host.freshRepository()
    const image = await host.client.image(repository)
    const repo = host.repoOf(repository)
    await host.collect()
    host.clock.advance(hourMs)
    expect((await host.client.putManifest(repository, image.digest, image)).status).toBe(201)
    // No collection ran in between.
    host.clock.advance(2 * graceMs)
    expect(await host.collect()).toMatchObject({ manifests: 0, blobs: 0 })
    await host.tag(repo, 'late', image.digest)
    const { config } = JSON.parse(image.bytes.toString()) as { config: { digest: Digest } } // a cast: the client made it
    expect((await host.client.send('GET', `/v2/${repository}/blobs/${config.digest}`)).status).toBe(200)
  })

  test('a collected manifest that comes back under an unchecked tag refers to its subject again', async () => {
    const subject = await host.client.image(host.freshRepository())
    const { repository, repo, image } = await repoWithDue({ subject: descriptorOf(subject), artifactType: 'application/example' })
    const { content } = host.services
    const unchecked = async (): Promise<void> => {
      Object.assign(host.services, { content: undefined })
      await host.tag(repo, 'kept', image.digest)
      Object.assign(host.services, { content })
    }
    await host.collect({}, happeningBefore(host.services, moments['between the look at the records and their removal'](repo), unchecked))
    expect(await pull(repository, 'kept')).toBe(200)
    expect(await host.keysBelow(referrerPrefix, repo)).toHaveLength(1)
    const referrers = await host.client.send('GET', `/v2/${repository}/referrers/${subject.digest}`)
    expect(referrers.body.toString()).toContain(image.digest)
  })

  test('content in use during garbage collection stays if a due blob is uploaded again at that moment', async () => {
    const { repository, repo } = await repoWithDue()
    const bytes = Buffer.from(`put again in ${repository}`)
    const digest = await host.client.putBlob(repository, bytes)
    await host.collectAfterGrace()
    await host.client.putBlob(repository, bytes)
    await host.collect()
    host.clock.advance(2 * graceMs)
    host.intercepts.set('finishUpload', async (_given, work) => {
      const made = await work()
      await host.collect()
      return made
    })
    await host.client.putBlob(repository, bytes).finally(() => host.intercepts.delete('finishUpload'))
    expect((await host.client.send('GET', `/v2/${repository}/blobs/${digest}`)).body).toEqual(bytes)
    expect(await host.upstream.statBlob(repo, digest, soon())).toBe(bytes.length)
  })

  test('content in use during garbage collection is refused with 503 if a collection removes an uploaded blob whose earlier removal failed', async () => {
    const { repository, repo } = await repoWithDue()
    const bytes = Buffer.from(`left behind in ${repository}`)
    const digest = await host.client.putBlob(repository, bytes)
    await host.collect()
    host.clock.advance(2 * graceMs)
    host.intercepts.set('deleteBlob', () => Promise.reject(new UpstreamError('refused', 'not today')))
    expect(await host.collect()).toMatchObject({ refused: 1 })
    host.intercepts.delete('deleteBlob')
    host.intercepts.set('finishUpload', async (_given, work) => {
      const made = await work()
      await host.collect()
      return made
    })
    await expect(host.client.putBlob(repository, bytes)).rejects.toThrow('503')
    host.intercepts.delete('finishUpload')
    expect(await host.upstream.statBlob(repo, digest, soon())).toBeUndefined()
    await host.client.putBlob(repository, bytes)
    expect((await host.client.send('GET', `/v2/${repository}/blobs/${digest}`)).body).toEqual(bytes)
  })
})
