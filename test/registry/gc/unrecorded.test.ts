import { afterAll, beforeAll, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { pendingDeletePrefix } from '../../../src/registry/records/pending-deletes.ts'
import { ok } from '../../support/test-server.ts'
import { imageType, manifestOf, type TestManifest } from '../oci/oci-client.ts'
import { describeOnUpstreams } from '../oci/oci-upstreams.ts'
import { graceMs, soon, startCollectingHost, type CollectingHost } from './collecting-host.ts'

const configType = 'application/vnd.oci.image.config.v1+json'

describeOnUpstreams('a manifest that was uploaded and not recorded', (upstream) => {
  let host: CollectingHost
  beforeAll(async () => {
    host = await startCollectingHost(upstream)
  })
  afterAll(() => host?.stop())

  /** A repo that holds a config, and a manifest of it that is not pushed yet. */
  async function prepared(): Promise<{ repository: string; config: Buffer; image: TestManifest }> {
    const repository = host.freshRepository()
    const config = Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', repository }))
    const digest = await host.client.putBlob(repository, config)
    const image = manifestOf({ schemaVersion: 2, mediaType: imageType, config: { mediaType: configType, digest, size: config.length }, layers: [] })
    return { repository, config, image }
  }
  /** Puts the manifest; an action runs between the upstream's write and the record. */
  async function pushWhile(repository: string, image: TestManifest, happen: () => Promise<unknown>): Promise<number> {
    host.intercepts.set('putManifest', async (_given, work) => {
      host.intercepts.clear()
      await work()
      await happen()
    })
    return (await host.client.putManifest(repository, 'latest', image)).status
  }
  const forget = async (repository: string, bytes: Buffer): Promise<void> => {
    expect((await host.client.send('DELETE', `/v2/${repository}/blobs/${digestOf(bytes)}`)).status).toBe(202)
  }

  test('a manifest that was uploaded and not recorded is collected if its config was removed in between, and comes back with the next push', async () => {
    const { repository, config, image } = await prepared()
    expect(await pushWhile(repository, image, () => forget(repository, config))).toBe(404)
    const repo = host.repoOf(repository)
    expect(await host.upstream.hasManifest(repo, image.digest, soon())).toBe(true)
    await host.collect()
    expect(await host.upstream.hasManifest(repo, image.digest, soon())).toBe(false)
    expect(await host.keysBelow(pendingDeletePrefix, repo)).toEqual([])
    await host.client.putBlob(repository, config)
    expect((await host.client.putManifest(repository, 'latest', image)).status).toBe(201)
    await host.collect()
    expect(await host.upstream.hasManifest(repo, image.digest, soon())).toBe(true)
  })

  test('a manifest that was uploaded and not recorded stays with its config if another push recorded it in between', async () => {
    const { repository, config, image } = await prepared()
    const status = await pushWhile(repository, image, async () => {
      expect((await host.client.putManifest(repository, 'other', image)).status).toBe(201)
      expect((await host.client.send('DELETE', `/v2/${repository}/blobs/${digestOf(config)}`)).status).toBe(405)
    })
    expect(status).toBe(201)
    await host.collect()
    const repo = host.repoOf(repository)
    expect(await host.upstream.hasManifest(repo, image.digest, soon())).toBe(true)
    expect((await host.client.send('GET', `/v2/${repository}/manifests/other`)).status).toBe(200)
    expect(await host.keysBelow(pendingDeletePrefix, repo)).toEqual([])
  })

  test('a manifest that was uploaded and not recorded is removed with its repo if that was deleted in between', async () => {
    const { repository, image } = await prepared()
    const repo = host.repoOf(repository)
    const token = await host.server.tokenFor(host.owner)
    expect(await pushWhile(repository, image, async () => ok(await host.server.rest.call('DeleteRepo', { uid: repo }, { token })))).toBe(404)
    host.clock.advance(2 * graceMs)
    await host.collect()
    expect(await host.upstream.hasManifest(repo, image.digest, soon())).toBe(false)
    expect(await host.keysBelow(pendingDeletePrefix, repo)).toEqual([])
  })
})
