import { expect, test } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import { parseManifest } from '../../../src/registry/oci/manifests/manifest-parser.ts'
import { callerOfToken, apiOwnership, type Services } from '../../../src/engine/services.ts'
import { contentEpoch } from '../../../src/registry/records/content-epoch.ts'
import { putManifest } from '../../../src/registry/records/manifests.ts'
import { findRepository } from '../../../src/registry/records/repo-paths.ts'
import { readHistory } from '../../../src/registry/tags/tag-history.ts'
import { tagNamed, tagOf } from '../../../src/registry/records/tags.ts'
import type { CachedRecord } from '../../../src/cache/records/cached-record.ts'
import { startDiskUpstream, startTestHost } from './test-host.ts'

/** The object with a replaced property. */
function withProperty<T extends object>(target: T, name: keyof T, value: unknown): T {
  return new Proxy(target, {
    get(_target, property) {
      if (property === name) return value
      const own = Reflect.get(target, property) as unknown
      return typeof own === 'function' ? (own.bind(target) as unknown) : own
    },
  })
}

/** The services of a replica with a stale snapshot in which a deleted tag exists, until it asks the store for its revision. */
function notHavingHeard(services: Services, gone: CachedRecord): Services {
  const { cache } = services
  let isStale = true
  const table = (kind: string): unknown => {
    const real = cache.tables.table(kind)
    return kind === 'Tag' && isStale ? withProperty(real, 'child', () => gone) : real
  }
  const barrier = async (signal: AbortSignal): Promise<void> => {
    await cache.barrier(signal)
    isStale = false
  }
  const stale = withProperty(withProperty(cache, 'tables', withProperty(cache.tables, 'table', table)), 'barrier', barrier)
  return { ...services, cache: stale }
}

test('a push of an unchanged tag, while another replica deletes tag and manifest, creates both again', async () => {
  const host = await startTestHost({ upstream: startDiskUpstream })
  try {
    const { services, client } = host
    const signal = AbortSignal.timeout(20_000)
    const repository = host.freshRepository()
    const image = await client.pushImage(repository, 'latest')
    const target = findRepository(services.cache.tables, repository)
    if (target?.kind !== 'repo') throw new Error('the push made the repo')
    const repo = target.uid
    const cached = tagNamed(services.cache.tables, repo, 'latest')
    if (cached === undefined) throw new Error('the push made the tag')
    expect((await client.send('DELETE', `/v2/${repository}/manifests/${image.digest}`)).status).toBe(202)
    const caller = callerOfToken(services, {
      identityUid: trustedUid(host.owner),
      operator: false,
      act: { issuer: 'https://issuer.test', subject: 'owner', audience: 'test' },
      restrictions: {},
      issuedAtMs: services.clock.now() + 60_000,
    })
    const context = { caller, signal, validateOnly: false, ownership: apiOwnership, authorize: () => undefined }
    const { digest, record } = parseManifest({ bytes: image.bytes, contentType: image.mediaType })
    const epoch = await contentEpoch(services, repo, signal)
    const traffic = { host: 'registry.test', remoteAddress: '127.0.0.1', userAgent: 'test' }
    await putManifest(notHavingHeard(services, cached), context, { repo, digest, record, tags: ['latest'], epoch, traffic })
    await services.cache.barrier(signal)
    const made = tagNamed(services.cache.tables, repo, 'latest')
    expect(made === undefined ? undefined : tagOf(made).digest).toBe(image.digest)
    expect((await client.send('GET', `/v2/${repository}/manifests/latest`)).status).toBe(200)
    const history = await readHistory(services, { repo, name: 'latest', limit: 10 }, signal)
    expect(history?.records.map((move) => move.digest)).toEqual([image.digest, image.digest])
  } finally {
    await host.stop()
  }
})
