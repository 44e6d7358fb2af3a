import { afterAll, beforeAll, expect, test } from 'vitest'
import { digestOf, type Digest } from '../../../../src/base/digest.ts'
import { manifestPrefix } from '../../../../src/registry/records/manifest-keys.ts'
import { readHistory } from '../../../../src/registry/tags/tag-history.ts'
import { tagNamed, tagOf } from '../../../../src/registry/records/tags.ts'
import { soon, startCollectingHost, type CollectingHost } from '../../gc/collecting-host.ts'
import { descriptorOf, indexType, manifestOf, type Answer, type TestManifest } from '../oci-client.ts'
import { describeOnUpstreams } from '../oci-upstreams.ts'

/** A fresh image, pushed by digest with tags. */
interface Pushed {
  readonly repository: string
  readonly image: TestManifest
  /** The SHA-512 digest. */
  readonly long: Digest
  readonly answer: Answer
}

describeOnUpstreams('tags that are pushed with a digest', (upstream) => {
  let host: CollectingHost
  beforeAll(async () => {
    host = await startCollectingHost(upstream)
  })
  afterAll(() => host?.stop())

  const push = async (tags: readonly string[], repository = host.freshRepository()): Promise<Pushed> => {
    const image = await host.client.image(repository)
    const long = digestOf(image.bytes, 'sha512')
    const answer = await host.client.putManifest(repository, `${long}?${tags.map((tag) => `tag=${tag}`).join('&')}`, image)
    return { repository, image, long, answer }
  }
  const answered = async (repository: string, reference: string): Promise<unknown[]> => {
    const [got, head] = [await get(repository, reference), await host.client.send('HEAD', `/v2/${repository}/manifests/${reference}`)]
    expect(head.headers['docker-content-digest']).toBe(got.headers['docker-content-digest'])
    return [got.status, got.headers['docker-content-digest']]
  }
  const get = (repository: string, reference: string): Promise<Answer> => host.client.send('GET', `/v2/${repository}/manifests/${reference}`)
  const digestOfTag = (repository: string, name: string): string | undefined => {
    const record = tagNamed(host.services.cache.tables, host.repoOf(repository), name)
    return record === undefined ? undefined : tagOf(record).digest
  }
  const movesOf = async (repository: string, name: string): Promise<unknown> =>
    (await readHistory(host.services, { repo: host.repoOf(repository), name, limit: 10 }, soon()))?.records.map(({ digest }) => digest)

  test('tags pushed by sha512 digest are returned with this digest by the host; API and history show the sha256 of the same bytes', async () => {
    const { repository, image, long, answer } = await push(['one', 'two'])
    expect([answer.status, answer.headers['docker-content-digest'], answer.headers['oci-tag']]).toEqual([201, long, 'one, two'])
    expect(answer.headers.location).toBe(`/v2/${repository}/manifests/${long}`)
    for (const name of ['one', 'two']) {
      expect(await answered(repository, name)).toEqual([200, long])
      expect((await get(repository, name)).body.equals(image.bytes)).toBe(true)
      expect(digestOfTag(repository, name)).toBe(image.digest)
      expect(await movesOf(repository, name)).toEqual([image.digest])
    }
    for (const digest of [image.digest, long]) expect(await answered(repository, digest)).toEqual([200, digest])
  })

  test('tags pushed by digest show the sha256 digest again after a push by tag or a move through the API', async () => {
    const { repository, image, long } = await push(['one', 'two'])
    expect((await host.client.putManifest(repository, 'one', image)).headers['docker-content-digest']).toBe(image.digest)
    expect(await answered(repository, 'one')).toEqual([200, image.digest])
    expect(await movesOf(repository, 'one')).toEqual([image.digest])
    expect(await answered(repository, 'two')).toEqual([200, long])
    const other = await host.client.pushImage(repository, 'other')
    for (const { digest } of [other, image]) {
      await host.tag(host.repoOf(repository), 'two', digest)
      expect(await answered(repository, 'two')).toEqual([200, digest])
    }
  })

  test('tags pushed by sha256 digest are set too', async () => {
    const repository = host.freshRepository()
    const image = await host.client.image(repository)
    const answer = await host.client.putManifest(repository, `${image.digest}?tag=a&tag=b&tag=a`, image)
    expect([answer.status, answer.headers['oci-tag']]).toEqual([201, 'a, b'])
    for (const name of ['a', 'b']) expect(await answered(repository, name)).toEqual([200, image.digest])
  })

  test('tags pushed by digest are limited to ten at once; more, or invalid ones, are refused before anything is stored', async () => {
    const ten = Array.from({ length: 10 }, (_, at) => `v${at}`)
    const { repository, answer } = await push(ten)
    expect(answer.headers['oci-tag']).toBe(ten.join(', '))
    const more = await push([...ten, 'v10'], repository)
    expect([more.answer.status, more.answer.codes]).toEqual([414, ['UNSUPPORTED']])
    const bad = await push(['v1', '-no'], repository)
    expect([bad.answer.status, bad.answer.codes]).toEqual([400, ['MANIFEST_INVALID']])
    for (const { image } of [more, bad]) expect((await get(repository, image.digest)).status).toBe(404)
  })

  test('tags pushed by digest may be an index of sha512 digests', async () => {
    const { repository, image, long } = await push(['image'])
    const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [{ ...descriptorOf(image), digest: long }] })
    const longIndex = digestOf(index.bytes, 'sha512')
    expect((await host.client.putManifest(repository, `${longIndex}?tag=index`, index)).status).toBe(201)
    expect(await answered(repository, 'index')).toEqual([200, longIndex])
  })

  test('tags pushed by digest list a referrer of an image once, under the digest of its push', async () => {
    const { repository, image } = await push(['image'])
    const referrer = await host.client.image(repository, { subject: descriptorOf(image) })
    const long = digestOf(referrer.bytes, 'sha512')
    await host.client.putManifest(repository, `${long}?tag=referrer`, referrer)
    const list = JSON.parse((await host.client.send('GET', `/v2/${repository}/referrers/${image.digest}`)).body.toString()) as {
      manifests: { digest: string }[]
    }
    expect(list.manifests.map(({ digest }) => digest)).toEqual([long])
  })

  test('tags pushed by digest keep the sha512 digest as long as a tag points to the bytes', async () => {
    const { repository, long } = await push(['one'])
    await host.collectAfterGrace()
    expect(await answered(repository, long)).toEqual([200, long])
    expect((await host.client.send('DELETE', `/v2/${repository}/manifests/one`)).status).toBe(202)
    await host.forgetHistory(host.repoOf(repository))
    await host.collectAfterGrace()
    expect((await get(repository, long)).status).toBe(404)
    expect(await host.keysBelow(manifestPrefix, host.repoOf(repository))).toEqual([])
  })

  test('tags pushed by digest are deleted with the sha512 digest, and no others', async () => {
    const { repository, image, long } = await push(['one', 'two'])
    await host.client.putManifest(repository, 'two', image)
    expect((await host.client.send('DELETE', `/v2/${repository}/manifests/${long}`)).status).toBe(202)
    expect((await get(repository, long)).status).toBe(404)
    expect((await get(repository, 'one')).status).toBe(404)
    expect(await answered(repository, 'two')).toEqual([200, image.digest])
  })
})
