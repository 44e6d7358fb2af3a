import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { digestOf, type Digest } from '../../../src/base/digest.ts'
import type { Uid } from '../../../src/base/uid.ts'
import { UpstreamError, type Upstream, type UpstreamErrorKind } from '../../../src/registry/upstream/upstream.ts'
import { collectKey } from '../../../src/registry/records/content-epoch.ts'
import { pendingDeletePrefix } from '../../../src/registry/records/pending-deletes.ts'
import { removedRepoPrefix } from '../../../src/registry/records/repos.ts'
import { ok } from '../../support/test-server.ts'
import { imageType, manifestOf } from '../oci/oci-client.ts'
import { startDiskUpstream } from '../oci/test-host.ts'
import { graceMs, soon, startCollectingHost, type CollectingHost } from './collecting-host.ts'

const configType = 'application/vnd.oci.image.config.v1+json'

describe('garbage collection over an upstream that fails', () => {
  let host: CollectingHost
  beforeAll(async () => {
    host = await startCollectingHost(startDiskUpstream)
  })
  afterAll(() => host.stop())

  /** From now on the upstream fails with this error instead of removing the digest. */
  function failing(method: 'deleteBlob' | 'deleteManifest', digest: Digest, kind: UpstreamErrorKind): void {
    host.intercepts.set(method, (given, work) => (given[1] === digest ? Promise.reject(new UpstreamError(kind, 'not now')) : work()))
  }
  const isThere = async (repo: Uid, blob: Digest): Promise<boolean> => (await host.upstream.statBlob(repo, blob, soon())) !== undefined
  const markAt = async (repo: Uid): Promise<string> => Buffer.from((await host.services.store.get(collectKey(repo), soon()))?.value ?? []).toString()

  /** Repos with unneeded blobs; the blobs in the order of their removal. */
  async function reposWithGarbage(): Promise<{ repository: string; repo: Uid; blobs: Digest[] }[]> {
    const made: { repository: string; repo: Uid; blobs: Digest[] }[] = []
    for (let count = 0; count < 3; count++) {
      const repository = host.freshRepository()
      await host.client.pushImage(repository, 'latest')
      const blobs: Digest[] = []
      for (const text of ['one', 'two', 'three']) blobs.push(await host.client.putBlob(repository, Buffer.from(`${text} of ${repository}`)))
      made.push({ repository, repo: host.repoOf(repository), blobs: blobs.toSorted() })
    }
    return made
  }

  test('garbage collection continues after a refused delete: no push is blocked, other content is removed, and the next collection tries again', async () => {
    const repos = await reposWithGarbage()
    const refused = repos.map(({ blobs }) => blobs[0]!)
    const refuse = new UpstreamError('refused', 'deletes are not allowed')
    host.intercepts.set('deleteBlob', (given, work) => (refused.includes(given[1] as Digest) ? Promise.reject(refuse) : work()))
    expect(await host.collectAfterGrace()).toMatchObject({ refused: 3, left: 0 })
    for (const { repository, repo, blobs } of repos) {
      expect(await Promise.all(blobs.map((blob) => isThere(repo, blob)))).toEqual([true, false, false])
      expect((await host.client.send('HEAD', `/v2/${repository}/blobs/${blobs[0]}`)).status).toBe(404)
      expect(await markAt(repo)).toBe('idle')
      await host.client.pushImage(repository, 'next')
    }
    expect(await host.collect()).toMatchObject({ refused: 3, left: 0 })
    host.intercepts.clear()
    expect(await host.collect()).toMatchObject({ refused: 0, left: 0 })
    for (const { repo, blobs } of repos) {
      expect(await isThere(repo, blobs[0]!)).toBe(false)
      expect(await host.keysBelow(pendingDeletePrefix, repo)).toEqual([])
    }
  })

  test('garbage collection over an upstream that fails keeps its mark if the outcome of a delete is unknown, and collects the other repos', async () => {
    const repos = await reposWithGarbage()
    const unknown = repos.map(({ blobs }) => blobs[0]!).slice(0, 2)
    const lost = new UpstreamError('unavailable', 'no answer')
    host.intercepts.set('deleteBlob', (given, work) => (unknown.includes(given[1] as Digest) ? Promise.reject(lost) : work()))
    expect(await host.collectAfterGrace()).toMatchObject({ left: 2 })
    expect(await Promise.all(repos.map(({ repo, blobs }) => isThere(repo, blobs[0]!)))).toEqual([true, true, false])
    for (const [index, { repo }] of repos.entries()) expect(await markAt(repo)).toMatch(index < 2 ? /^collecting / : /^idle$/)
    host.intercepts.clear()
    host.clock.advance(2 * 60_000)
    expect(await host.collect()).toMatchObject({ left: 0 })
    expect(await Promise.all(repos.map(({ repo, blobs }) => isThere(repo, blobs[0]!)))).toEqual([false, false, false])
  })

  test('garbage collection over an upstream that fails ends with the first repo if the upstream does not answer at all', async () => {
    await reposWithGarbage()
    await host.collect()
    host.clock.advance(2 * graceMs)
    const gone: () => Promise<unknown> = () => Promise.reject(new UpstreamError('unavailable', 'gone for now'))
    for (const method of ['deleteBlob', 'deleteManifest', 'ready'] satisfies (keyof Upstream)[]) host.intercepts.set(method, gone)
    await expect(host.collect()).rejects.toThrow('gone for now')
    const marks = (await host.services.store.range({ prefix: collectKey(''), limit: 1000 }, soon())).entries.map(({ value }) => Buffer.from(value).toString())
    expect(marks.filter((mark) => mark.startsWith('collecting '))).toHaveLength(1)
    host.intercepts.clear()
    host.clock.advance(2 * 60_000)
    expect(await host.collect()).toMatchObject({ left: 0 })
  })

  test('garbage collection over an upstream that fails keeps a manifest that is pushed again after its delete was refused', async () => {
    const repository = host.freshRepository()
    const config = Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', repository }))
    const image = manifestOf({
      schemaVersion: 2,
      mediaType: imageType,
      config: { mediaType: configType, digest: digestOf(config), size: config.length },
      layers: [],
    })
    await host.client.putBlob(repository, config)
    expect((await host.client.putManifest(repository, image.digest, image)).status).toBe(201)
    const repo = host.repoOf(repository)
    failing('deleteManifest', image.digest, 'refused')
    expect(await host.collectAfterGrace()).toMatchObject({ refused: 1, left: 0 })
    expect((await host.client.send('GET', `/v2/${repository}/manifests/${image.digest}`)).status).toBe(404)
    await host.client.putBlob(repository, config)
    expect((await host.client.putManifest(repository, 'latest', image)).status).toBe(201)
    host.intercepts.clear()
    expect(await host.collect()).toMatchObject({ refused: 0, left: 0 })
    expect(await host.upstream.hasManifest(repo, image.digest, soon())).toBe(true)
    expect((await host.client.send('GET', `/v2/${repository}/manifests/latest`)).status).toBe(200)
    expect(await host.keysBelow(pendingDeletePrefix, repo)).toEqual([])
  })

  test('garbage collection over an upstream that fails asks the upstream for a deleted repo again until the last content is removed', async () => {
    const repository = host.freshRepository()
    const image = await host.client.pushImage(repository, 'latest')
    const repo = host.repoOf(repository)
    ok(await host.server.rest.call('DeleteRepo', { uid: repo }, { token: await host.server.tokenFor(host.owner) }))
    failing('deleteManifest', image.digest, 'refused')
    host.clock.advance(2 * graceMs)
    expect(await host.collect()).toMatchObject({ refused: 1 })
    expect(await host.keysBelow(removedRepoPrefix, repo)).toHaveLength(1)
    host.intercepts.clear()
    expect(await host.collect()).toMatchObject({ refused: 0 })
    expect(await host.upstream.hasManifest(repo, image.digest, soon())).toBe(false)
    for (const prefix of [removedRepoPrefix, pendingDeletePrefix, collectKey('')]) expect(await host.keysBelow(prefix, repo)).toEqual([])
  })
})
