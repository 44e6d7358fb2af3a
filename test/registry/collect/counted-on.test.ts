import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Uid } from '../../../src/core/uid.ts'
import { collectKey } from '../../../src/resources/registry/content-epoch.ts'
import { manifestPrefix, referrerPrefix } from '../../../src/resources/registry/manifest-keys.ts'
import type { Write } from '../../../src/store/store.ts'
import type { Reply } from '../../harness/doors.ts'
import { descriptorOf, type TestManifest } from '../oci/oci-client.ts'
import { startDiskUpstream } from '../oci/test-host.ts'
import { graceMs, soon, startCollectingHost, type CollectingHost } from './collecting-host.ts'
import { happeningBefore } from './interference.ts'

/** Moments of a collection, by what is written next. */
const moments = {
  'between the look at the history and the first mark': (repo: Uid) => (writes: readonly Write[]) => writes.some(({ key }) => key === collectKey(repo)),
  'between the look at the records and their removal': (repo: Uid) => (writes: readonly Write[]) =>
    writes.some(({ kind, key }) => kind === 'delete' && key.startsWith(`${manifestPrefix}${repo}/`)),
}

describe('what somebody comes to count on while garbage is collected', () => {
  let host: CollectingHost
  beforeAll(async () => {
    host = await startCollectingHost(startDiskUpstream)
  })
  afterAll(() => host.stop())

  const pull = async (repository: string, reference: string): Promise<number> =>
    (await host.client.send('GET', `/v2/${repository}/manifests/${reference}`)).status
  const restore = async (repoUid: Uid, tag: string, digest: string): Promise<Reply> =>
    host.server.rest.call('RestoreTag', { repoUid, tag, digest }, { token: await host.server.tokenFor(host.owner) })

  /** A repo with an image that is due: nobody has named it for longer than the grace period. */
  async function repoWithDue(more: Readonly<Record<string, unknown>> = {}): Promise<{ repository: string; repo: Uid; image: TestManifest }> {
    const repository = host.freshRepository()
    const image = await host.client.image(repository, more)
    expect((await host.client.putManifest(repository, image.digest, image)).status).toBe(201)
    await host.collect()
    host.clock.advance(2 * graceMs)
    return { repository, repo: host.repoOf(repository), image }
  }

  test.each(Object.entries(moments))('a tag that comes and goes on %s leaves what its history names', async (_title, momentOf) => {
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
  })

  test('what comes back for a tag that nobody checked refers to its subject again', async () => {
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
})
