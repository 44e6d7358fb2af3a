import { randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { rootOf } from '../../../src/base/uid.ts'
import { storedUse } from '../../../src/engine/quota/content.ts'
import { contentLimit, manifestsLimit } from '../../../src/engine/quota/limits.ts'
import { blobKey } from '../../../src/registry/records/blobs.ts'
import { ok } from '../../support/test-server.ts'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { soon, startCollectingHost, type CollectingHost } from '../gc/collecting-host.ts'
import { locationOf, manifestOf, withQuery, type Answer, type TestManifest } from './oci-client.ts'
import { startDiskUpstreamAt } from './test-host.ts'

const mebibyte = 2 ** 20

/** Asserts an error that clients do not retry. */
function expectDenied(answer: Answer): void {
  expect([answer.status, answer.codes, answer.headers['retry-after']]).toEqual([403, ['DENIED'], undefined])
}

describeOnStores('limits at the registry host', (store) => {
  let host: CollectingHost
  beforeAll(async () => {
    host = await startCollectingHost(startDiskUpstreamAt, store)
  })
  afterAll(() => host?.stop())

  const limit = async (resourceLimits: Record<string, number>): Promise<void> =>
    void ok(await host.server.rest.call('SetGroupLimits', { uid: host.group, resourceLimits }, { token: await host.server.operatorToken() }))
  const usage = async (): Promise<Record<string, string>> => {
    const body = ok(await host.server.rest.call('GetGroupUsage', { uid: host.group }, { token: await host.server.operatorToken() }))
    return body['usage'] as Record<string, string> // numbers of 64 bits are texts in JSON
  }
  const use = (repository: string): Promise<number> => storedUse(host.services.store, { limit: contentLimit, root: rootOf(host.repoOf(repository)) }, soon())
  /** Puts a whole blob; the upload may be refused before its end. */
  const put = async (repository: string, bytes: Buffer, body: Buffer | Readable = bytes): Promise<Answer> => {
    const started = await host.client.send('POST', `/v2/${repository}/blobs/uploads/`)
    return started.status === 202 ? host.client.send('PUT', withQuery(locationOf(started), `digest=${digestOf(bytes)}`), { body }) : started
  }
  beforeEach(() => limit({}))

  test('limits at the registry host deny a push that would create one repo or one tag too many', async () => {
    const repository = host.freshRepository()
    await host.client.pushImage(repository, 'v1')
    const { repositories, tags } = await usage()
    await limit({ repositories: Number(repositories), tags: Number(tags) })
    expectDenied(await host.client.send('POST', `/v2/${host.freshRepository()}/blobs/uploads/`))
    const manifest = await host.client.image(repository)
    expectDenied(await host.client.putManifest(repository, 'v2', manifest))
    // An existing tag moves.
    expect((await host.client.putManifest(repository, 'v1', manifest)).status).toBe(201)
  })

  test('limits at the registry host count each blob once, for any number of concurrent pushers, and no longer after its removal', async () => {
    const repository = host.freshRepository()
    await put(repository, randomBytes(10))
    const before = await use(repository)
    const blobs = Array.from({ length: 12 }, (_, at) => randomBytes(1000 + at))
    const answers = await Promise.all([...blobs, ...blobs].map((bytes) => put(repository, bytes)))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]))
    const sizes = blobs.reduce((sum, { length }) => sum + length, 0)
    expect(await use(repository)).toBe(before + sizes)
    const [first] = blobs as [Buffer]
    expect((await host.client.send('DELETE', `/v2/${repository}/blobs/${digestOf(first)}`)).status).toBe(202)
    expect(await use(repository)).toBe(before + sizes - first.length)
    // The other blobs are unneeded: they are collected, with other leftovers.
    await host.collect()
    await host.collectAfterGrace()
    expect(await host.services.store.get(blobKey(host.repoOf(repository), digestOf(blobs[1] as Buffer)), soon())).toBeUndefined()
    expect(await use(repository)).toBeLessThanOrEqual(before)
  })

  test('limits at the registry host deny content beyond the limit: before reading if its size is given, else as soon as it is too large', async () => {
    const repository = host.freshRepository()
    await put(repository, randomBytes(10))
    const used = await use(repository)
    await limit({ content_mib: 1 })
    const fits = randomBytes(mebibyte - used - 100)
    expect((await put(repository, fits)).status).toBe(201)
    const more = randomBytes(200)
    expectDenied(await put(repository, more))
    expectDenied(await put(repository, more, Readable.from([more.subarray(0, 90), more.subarray(90)])))
    const started = await host.client.send('POST', `/v2/${repository}/blobs/uploads/`)
    expectDenied(await host.client.send('PATCH', locationOf(started), { body: more }))
    expect(await use(repository)).toBe(mebibyte - 100)
    expect(await usage()).toMatchObject({ content_mib: '1' })
    // Existing content takes no room again.
    expect((await put(repository, randomBytes(100))).status).toBe(201)
    expectDenied(await host.client.send('POST', `/v2/${repository}/blobs/uploads/`))
    await host.client.send('DELETE', `/v2/${repository}/blobs/${digestOf(fits)}`)
    expect((await put(repository, more)).status).toBe(201)
  })

  test('limits at the registry host count each manifest once, by its size and its record in the store, until it is collected', async () => {
    const repository = host.freshRepository()
    await host.client.pushImage(repository, 'v1')
    const stored = (): Promise<number> => storedUse(host.services.store, { limit: manifestsLimit, root: rootOf(host.repoOf(repository)) }, soon())
    const before = { content: await use(repository), stored: await stored() }
    const image = await host.client.image(repository)
    const blobs = (await use(repository)) - before.content
    const annotated = (at: number): TestManifest =>
      manifestOf({ ...(JSON.parse(image.bytes.toString()) as object), annotations: { note: `${at} ${'x'.repeat(200_000)}` } })
    const manifests = [annotated(1), annotated(2), annotated(3)]
    const push = async (manifest: TestManifest): Promise<Answer> => host.client.putManifest(repository, manifest.digest, manifest)
    const answers = await Promise.all([...manifests, ...manifests].map(push))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]))
    const sizes = manifests.reduce((sum, { bytes }) => sum + bytes.length, 0)
    expect(await use(repository)).toBe(before.content + blobs + sizes)
    expect(await stored()).toBeGreaterThan(before.stored + sizes)
    expect(await usage()).toMatchObject({ manifest_mib: '1' })
    await limit({ manifest_mib: 1 })
    let refused: Answer | undefined
    for (let at = 4; at < 10 && refused?.status !== 403; at++) refused = await push(annotated(at))
    expect(refused).toBeDefined()
    if (refused !== undefined) expectDenied(refused)
    expect(await stored()).toBeLessThanOrEqual(mebibyte)
    // The blobs are unneeded.
    await host.collect()
    await host.collectAfterGrace()
    expect(await stored()).toBeLessThanOrEqual(before.stored)
    expect((await push(annotated(10))).status).not.toBe(403)
  })

  test('limits at the registry host apply to open uploads; a finished one makes room, and an abandoned one does after a day', async () => {
    const repository = host.freshRepository()
    await put(repository, randomBytes(10))
    await limit({ uploads: 2 })
    const start = (): Promise<Answer> => host.client.send('POST', `/v2/${repository}/blobs/uploads/`)
    const [one, two] = [locationOf(await start()), locationOf(await start())]
    expectDenied(await start())
    expect(await usage()).toMatchObject({ uploads: '2' })
    // Likewise for an upload in a single request, which is open until its answer.
    const bytes = randomBytes(50)
    const single = (): Promise<Answer> => host.client.send('POST', `/v2/${repository}/blobs/uploads/?digest=${digestOf(bytes)}`, { body: bytes })
    expectDenied(await single())
    await limit({ uploads: 3 })
    for (let count = 0; count < 3; count++) expect((await single()).status).toBe(201)
    expect(await usage()).toMatchObject({ uploads: '2' })
    await limit({ uploads: 2 })
    expect((await host.client.send('PUT', withQuery(one, `digest=${digestOf(bytes)}`), { body: bytes })).status).toBe(201)
    const three = locationOf(await start())
    expectDenied(await start())
    expect((await host.client.send('DELETE', two)).status).toBe(204)
    const four = locationOf(await start())
    // Bytes that do not match the digest end an upload too.
    expect((await host.client.send('PUT', withQuery(three, `digest=${digestOf(bytes)}`), { body: randomBytes(50) })).codes).toEqual(['DIGEST_INVALID'])
    expect((await start()).status).toBe(202)
    expectDenied(await start())
    host.clock.advance(24 * 3_600_000 + 1)
    expect((await start()).status).toBe(202)
    expect(four).toContain(repository)
  })
})
