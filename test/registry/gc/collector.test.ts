import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Digest } from '../../../src/base/digest.ts'
import { trustedUid, type Uid } from '../../../src/base/uid.ts'
import { Collector } from '../../../src/registry/gc/collector.ts'
import { MarkLost } from '../../../src/registry/gc/mark.ts'
import { callerOfToken, apiOwnership } from '../../../src/engine/services.ts'
import { collectKey, markOf } from '../../../src/registry/records/content-epoch.ts'
import { removeManifest } from '../../../src/registry/records/manifests.ts'
import type { Write } from '../../../src/store/store.ts'
import { tagNamed } from '../../../src/registry/records/tags.ts'
import type { DiskUpstream } from '../../../src/registry/upstream/disk/disk-upstream.ts'
import { UpstreamError } from '../../../src/registry/upstream/upstream.ts'
import type { Reply } from '../../support/api-clients.ts'
import { ok } from '../../support/test-server.ts'
import { digestOf } from '../../../src/base/digest.ts'
import { descriptorOf, imageType, indexType, manifestOf, type TestManifest } from '../oci/oci-client.ts'
import { startHttpUpstream } from '../oci/oci-upstreams.ts'
import { startDiskUpstreamAt } from '../oci/test-host.ts'
import { graceMs, soon, startCollectingHost, type CollectingHost } from './collecting-host.ts'
import { happeningBefore } from './interference.ts'

const configType = 'application/vnd.oci.image.config.v1+json'
const hourMs = 3_600_000

describe.each([
  ['disk', startDiskUpstreamAt],
  ['http', startHttpUpstream],
] as const)('garbage collection over the upstream %s', (name, upstream) => {
  let host: CollectingHost
  beforeAll(async () => {
    host = await startCollectingHost(upstream)
  })
  afterAll(() => host.stop())

  const keysOf = async (repo: Uid): Promise<string[]> => {
    const { entries } = await host.services.store.range({ prefix: 'x/', limit: 10_000 }, soon())
    return entries.map(({ key }) => key).filter((key) => key.includes(repo) && !key.startsWith('x/outbox/'))
  }
  const isThere = async (repo: Uid, manifest: TestManifest): Promise<{ manifest: boolean; config: boolean }> => {
    const { config } = JSON.parse(manifest.bytes.toString()) as { config?: { digest: Digest } }
    const blob = config === undefined ? undefined : await host.upstream.statBlob(repo, config.digest, soon())
    return { manifest: await host.upstream.hasManifest(repo, manifest.digest, soon()), config: blob !== undefined }
  }
  const pull = async (repository: string, reference: string): Promise<number> =>
    (await host.client.send('GET', `/v2/${repository}/manifests/${reference}`)).status
  const deleteTag = async (repo: Uid, tag: string): Promise<void> => {
    const uid = tagNamed(host.services.cache.tables, repo, tag)?.uid ?? ''
    ok(await host.server.rest.call('DeleteTag', { uid }, { token: await host.server.tokenFor(host.owner) }))
  }

  test('garbage collection keeps the current targets of tags, and former ones while the history is kept', async () => {
    const repository = host.freshRepository()
    const first = await host.client.pushImage(repository, 'latest', { annotations: { of: 'first' } })
    const second = await host.client.pushImage(repository, 'latest', { annotations: { of: 'second' } })
    host.clock.advance(2 * graceMs)
    await host.collect()
    for (const image of [first, second]) expect(await isThere(host.repoOf(repository), image)).toEqual({ manifest: true, config: true })
    expect(await pull(repository, 'latest')).toBe(200)
    expect(await pull(repository, first.digest)).toBe(200)
  })

  test('garbage collection removes unneeded content after the grace period, not before, and the next push restores it', async () => {
    const repository = host.freshRepository()
    const image = await host.client.pushImage(repository, 'latest')
    const repo = host.repoOf(repository)
    await deleteTag(repo, 'latest')
    await host.forgetHistory(repo)
    await host.collect()
    expect(await isThere(repo, image)).toEqual({ manifest: true, config: true })
    host.clock.advance(2 * graceMs)
    expect(await host.collect({ dryRun: true })).toMatchObject({ manifests: 1 })
    expect(await isThere(repo, image)).toEqual({ manifest: true, config: true })
    const { manifests, blobs, bytes } = await host.collect()
    expect({ manifests, hasBlobs: blobs > 0, hasBytes: bytes > 0 }).toEqual({ manifests: 1, hasBlobs: true, hasBytes: true })
    expect(await isThere(repo, image)).toEqual({ manifest: false, config: false })
    expect(await pull(repository, image.digest)).toBe(404)
    const again = await host.client.pushImage(repository, 'latest')
    expect(await isThere(repo, again)).toEqual({ manifest: true, config: true })
    expect(await pull(repository, 'latest')).toBe(200)
  })

  test('garbage collection removes a deleted manifest, and keeps the images of its index and its referrers', async () => {
    const repository = host.freshRepository()
    const gone = await host.client.pushImage(repository, 'gone', { annotations: { of: 'gone' } })
    const child = await host.client.image(repository, { annotations: { of: 'child' } })
    await host.client.putManifest(repository, child.digest, child)
    const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [descriptorOf(child)] })
    await host.client.putManifest(repository, 'index', index)
    const signature = await host.client.image(repository, { subject: descriptorOf(child), artifactType: 'application/example' })
    await host.client.putManifest(repository, signature.digest, signature)
    expect((await host.client.send('DELETE', `/v2/${repository}/manifests/${gone.digest}`)).status).toBe(202)
    await host.collectAfterGrace()
    const repo = host.repoOf(repository)
    expect(await host.upstream.hasManifest(repo, gone.digest, soon())).toBe(false)
    for (const kept of [child, index, signature]) expect(await pull(repository, kept.digest)).toBe(200)
    const referrers = await host.client.send('GET', `/v2/${repository}/referrers/${child.digest}`)
    expect(referrers.body.toString()).toContain(signature.digest)
  })

  test('garbage collection removes everything of a deleted repo except its history', async () => {
    const repository = host.freshRepository()
    const image = await host.client.pushImage(repository, 'latest')
    const repo = host.repoOf(repository)
    ok(await host.server.rest.call('DeleteRepo', { uid: repo }, { token: await host.server.tokenFor(host.owner) }))
    await host.collect()
    expect(await isThere(repo, image)).toEqual({ manifest: true, config: true })
    host.clock.advance(2 * graceMs)
    await host.collect()
    expect(await isThere(repo, image)).toEqual({ manifest: false, config: false })
    expect((await keysOf(repo)).map((key) => key.split('/')[1])).toEqual(['history-head', 'history'])
  })

  test('garbage collection keeps a blob whose existence a client checked as long as a new one', async () => {
    const repository = host.freshRepository()
    await host.client.pushImage(repository, 'latest')
    const blob = await host.client.putBlob(repository, Buffer.from(`blob of ${repository}`))
    host.clock.advance(graceMs - hourMs)
    expect((await host.client.send('HEAD', `/v2/${repository}/blobs/${blob}`)).status).toBe(200)
    host.clock.advance(graceMs - hourMs)
    await host.collect()
    expect((await host.client.send('HEAD', `/v2/${repository}/blobs/${blob}`)).status).toBe(200)
    host.clock.advance(2 * graceMs)
    await host.collect()
    expect((await host.client.send('HEAD', `/v2/${repository}/blobs/${blob}`)).status).toBe(404)
  })

  test('after an interruption garbage collection removes content without records; no answer shows it in between', async () => {
    const repository = host.freshRepository()
    await host.client.pushImage(repository, 'latest')
    const repo = host.repoOf(repository)
    const blob = await host.client.putBlob(repository, Buffer.from(`left of ${repository}`))
    await host.collect()
    host.clock.advance(2 * graceMs)
    host.intercepts.set('deleteBlob', () => {
      host.intercepts.clear()
      return Promise.reject(new UpstreamError('unavailable', 'gone for now'))
    })
    expect(await host.collect()).toMatchObject({ left: 1 })
    expect((await host.client.send('HEAD', `/v2/${repository}/blobs/${blob}`)).status).toBe(404)
    expect(await host.upstream.statBlob(repo, blob, soon())).toBeGreaterThan(0)
    // Writes to the upstream have ended by then.
    host.clock.advance(2 * 60_000)
    await host.collect()
    expect(await host.upstream.statBlob(repo, blob, soon())).toBeUndefined()
    expect((await keysOf(repo)).filter((key) => key.startsWith('x/discard/'))).toEqual([])
  })

  test('garbage collection never breaks concurrent pushes: all pushed content can be pulled', async () => {
    const repository = host.freshRepository()
    const stop = new AbortController()
    // So short that blobs may be collected before their manifest arrives.
    const shortMs = 100
    const collecting = (async () => {
      while (!stop.signal.aborted) await host.collect({ graceMs: shortMs })
    })()
    onTestFinished(async () => {
      stop.abort()
      await collecting.catch(() => undefined)
    })
    // The short period also removes uploads and new content. The client is asked to start both again.
    const isToBegin = name === 'disk' ? /404 .*BLOB_UPLOAD_UNKNOWN|503 .*start the upload again/ : /503 .*start the upload again/
    let begunAgain = 0
    const brought = (bytes: Buffer): Promise<Digest> =>
      host.client.putBlob(repository, bytes).catch((error: unknown) => {
        if (!isToBegin.test(String(error)) || ++begunAgain > 100) throw error
        return brought(bytes)
      })
    // The first push creates the repo.
    const isGone = async (digest: Digest): Promise<boolean> => (await host.upstream.statBlob(host.repoOf(repository), digest, soon())) === undefined
    const pushed: TestManifest[] = []
    let refused = 0
    for (let push = 0; push < 15; push++) {
      const config = Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', push }))
      // Like a client: sends the blob again if it was removed in between.
      for (let status = 404; status !== 201;) {
        const digest = await brought(config)
        if (status === 404 && push % 2 === 0) await expect.poll(() => isGone(digest)).toBe(true)
        const layers: unknown[] = []
        const image = manifestOf({ schemaVersion: 2, mediaType: imageType, config: { mediaType: configType, digest, size: config.length }, layers })
        status = (await host.client.putManifest(repository, `tag-${push}`, image)).status
        if (status === 201) pushed.push(image)
        else expect([404, 409, 503]).toContain(status)
        if (status !== 201 && ++refused > 100) throw new Error('no push comes through')
        if (status !== 201) status = 409
      }
    }
    expect(refused).toBeGreaterThan(0)
    stop.abort()
    await collecting
    await host.collect({ graceMs: shortMs })
    for (const [index, image] of pushed.entries()) {
      expect(await pull(repository, `tag-${index}`)).toBe(200)
      expect(await isThere(host.repoOf(repository), image)).toEqual({ manifest: true, config: true })
    }
  })

  const isManifestRemoval = (writes: readonly Write[]): boolean => writes.some(({ kind, key }) => kind === 'delete' && key.startsWith('x/manifest/'))

  test('garbage collection keeps an image that is tagged during the collection, with its blobs', async () => {
    const repository = host.freshRepository()
    const image = await host.client.image(repository)
    await host.client.putManifest(repository, image.digest, image)
    const repo = host.repoOf(repository)
    await host.collect()
    host.clock.advance(2 * graceMs)
    const services = happeningBefore(host.services, isManifestRemoval, () => host.tag(repo, 'kept', image.digest))
    await host.collect({}, services)
    expect(await pull(repository, 'kept')).toBe(200)
    expect(await isThere(repo, image)).toEqual({ manifest: true, config: true })
  })

  test('garbage collection deletes all tags of a digest that is tagged during its deletion', async () => {
    const repository = host.freshRepository()
    const image = await host.client.pushImage(repository, 'latest')
    const repo = host.repoOf(repository)
    const services = happeningBefore(
      host.services,
      (writes) => writes.some(({ key }) => key.startsWith('x/manifest/')),
      () => host.tag(repo, 'other', image.digest),
    )
    const caller = callerOfToken(host.services, {
      identityUid: trustedUid(host.owner),
      operator: false,
      act: { issuer: 'https://issuer.test', subject: 'owner', audience: 'test' },
      restrictions: {},
      issuedAtMs: host.clock.now() + 60_000,
    })
    const context = { caller, signal: soon(), validateOnly: false, ownership: apiOwnership, authorize: () => undefined }
    await removeManifest(services, context, { repo, digest: image.digest, host: 'registry.test' })
    expect(tagNamed(host.services.cache.tables, repo, 'latest')).toBeUndefined()
    expect(tagNamed(host.services.cache.tables, repo, 'other')).toBeUndefined()
  })

  test('garbage collection lets a restored tag bring back its deleted digest, until the digest is collected', async () => {
    const repository = host.freshRepository()
    const image = await host.client.pushImage(repository, 'latest')
    const repo = host.repoOf(repository)
    const remove = async (): Promise<void> => {
      expect((await host.client.send('DELETE', `/v2/${repository}/manifests/${image.digest}`)).status).toBe(202)
    }
    const restore = async (): Promise<Reply> => {
      const token = await host.server.tokenFor(host.owner)
      return host.server.rest.call('RestoreTag', { repoUid: repo, tag: 'latest', digest: image.digest }, { token })
    }
    await remove()
    expect(await pull(repository, 'latest')).toBe(404)
    expect(await restore()).toMatchObject({ code: 0, body: { digest: image.digest } })
    expect(await pull(repository, 'latest')).toBe(200)
    await remove()
    await host.collectAfterGrace()
    expect(await restore()).toMatchObject({ code: 9, details: { ErrorInfo: { reason: 'DIGEST_NOT_FOUND' } } })
  })

  test('garbage collection keeps content for the full grace period after its last use', async () => {
    const repository = host.freshRepository()
    const first = await host.client.pushImage(repository, 'latest', { annotations: { of: 'first' } })
    host.clock.advance(10 * graceMs)
    await host.client.pushImage(repository, 'latest', { annotations: { of: 'second' } })
    const repo = host.repoOf(repository)
    await host.forgetHistory(repo)
    await host.collect()
    expect(await isThere(repo, first)).toEqual({ manifest: true, config: true })
    host.clock.advance(graceMs - hourMs)
    await host.collect()
    expect(await isThere(repo, first)).toEqual({ manifest: true, config: true })
    host.clock.advance(2 * hourMs)
    await host.collect()
    expect((await isThere(repo, first)).manifest).toBe(false)
  })

  test('garbage collection also removes a collected manifest from memory', async () => {
    const repository = host.freshRepository()
    const image = await host.client.image(repository)
    await host.client.putManifest(repository, image.digest, image)
    expect(await pull(repository, image.digest)).toBe(200)
    await host.collectAfterGrace()
    expect(await pull(repository, image.digest)).toBe(404)
  })

  test('garbage collection blocks no push for longer than a minute by the mark of a killed process', async () => {
    const repository = host.freshRepository()
    await host.client.pushImage(repository, 'latest')
    const repo = host.repoOf(repository)
    await host.services.store.transact({ guards: [], writes: [{ kind: 'put', key: collectKey(repo), value: markOf(host.clock.now()) }] }, soon())
    host.clock.advance(61_000)
    await host.client.pushImage(repository, 'next')
    expect(await pull(repository, 'next')).toBe(200)
  })

  test('garbage collection removes nothing that was pushed while it was suspended and others collected', async () => {
    const repository = host.freshRepository()
    const blobs = ['one', 'two'].map((text) => Buffer.from(`${text} of ${repository}`))
    const digests: Digest[] = []
    for (const bytes of blobs) digests.push(await host.client.putBlob(repository, bytes))
    const repo = host.repoOf(repository)
    for (const digest of digests) expect((await host.client.send('DELETE', `/v2/${repository}/blobs/${digest}`)).status).toBe(202)
    const collector = new Collector(host.services, host.upstream, { graceMs })
    host.intercepts.set('deleteBlob', async (_given, work) => {
      host.intercepts.clear()
      const outcome = await work()
      host.clock.advance(120_000)
      await collector.collectRepo(repo, soon())
      for (const bytes of blobs) await host.client.putBlob(repository, bytes)
      return outcome
    })
    await expect(collector.collectRepo(repo, soon())).rejects.toThrow(MarkLost)
    for (const digest of digests) expect((await host.client.send('GET', `/v2/${repository}/blobs/${digest}`)).status).toBe(200)
  })

  // Only the embedded upstream can list its content.
  if (name === 'http') return

  test('garbage collection removes content without a record after the grace period', async () => {
    const repository = host.freshRepository()
    const image = await host.client.pushImage(repository, 'latest')
    const repo = host.repoOf(repository)
    const bytes = Buffer.from(`{"orphan":"${repository}"}`)
    const orphan = digestOf(bytes)
    await host.upstream.putManifest(repo, { digest: orphan, mediaType: imageType, bytes }, soon())
    const collector = new Collector(host.services, host.upstream, { graceMs })
    // Cast: the embedded upstream has more methods than the port.
    const disk = host.upstream as DiskUpstream
    // Files have the machine's time; the test's clock is days ahead.
    await new Collector(host.services, host.upstream, { graceMs: 1000 * graceMs }).collectOrphans(disk, soon())
    expect(await host.upstream.hasManifest(repo, orphan, soon())).toBe(true)
    host.clock.advance(2 * graceMs)
    expect((await new Collector(host.services, host.upstream, { graceMs, dryRun: true }).collectOrphans(disk, soon())).manifests).toBeGreaterThan(0)
    await collector.collectOrphans(disk, soon())
    expect(await host.upstream.hasManifest(repo, orphan, soon())).toBe(false)
    expect(await isThere(repo, image)).toEqual({ manifest: true, config: true })
  })
})
