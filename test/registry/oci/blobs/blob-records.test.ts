import { afterAll, beforeAll, expect, test } from 'vitest'
import { digestOf, type Digest } from '../../../../src/base/digest.ts'
import { DomainError } from '../../../../src/base/errors.ts'
import { findRepository } from '../../../../src/registry/records/repo-paths.ts'
import { blobKey, forgetBlob, heldBlob, recordBlob } from '../../../../src/registry/records/blobs.ts'
import { contentEpoch } from '../../../../src/registry/records/content-epoch.ts'
import { trustedUid, type Uid } from '../../../../src/base/uid.ts'
import type { Services } from '../../../../src/engine/services.ts'
import type { Store } from '../../../../src/store/store.ts'
import { describeOnStores } from '../../../support/parts/require-part.ts'
import { soon } from '../../gc/collecting-host.ts'
import { startDiskUpstream, startTestHost, type TestHost } from '../test-host.ts'

describeOnStores('the records of blobs', (store) => {
  let host: TestHost
  let repo: Uid
  beforeAll(async () => {
    host = await startTestHost({ upstream: startDiskUpstream, store })
    const repository = host.freshRepository()
    await host.client.pushImage(repository, 'v1')
    const target = findRepository(host.services.cache.tables, repository)
    repo = trustedUid(target?.kind === 'repo' ? target.uid : '')
  })
  afterAll(() => host?.stop())

  const record = async (digest: Digest, services = host.services): Promise<void> => {
    const epoch = await contentEpoch(services, repo, soon())
    await recordBlob(services, { repo, digest, size: 10, upstreamDigest: digest, epoch }, soon())
  }

  /** Services in which each transaction of a blob loses to another change, and the number of those changes. */
  function outrun(digest: Digest): { services: Services; attempts: () => number } {
    let attempts = 0
    const key = blobKey(repo, digest)
    const real = host.services.store
    const outrunStore = new Proxy(real, {
      get(target, name: keyof Store) {
        const value = target[name] as unknown
        if (typeof value !== 'function') return value
        if (name !== 'transact') return (value as (...given: unknown[]) => unknown).bind(target) // a cast: the port has nothing but methods
        return async (transaction: Parameters<Store['transact']>[0], signal: AbortSignal) => {
          attempts += 1
          const entry = await real.get(key, signal)
          await real.transact({ guards: [], writes: [{ kind: 'put', key, value: entry?.value ?? new Uint8Array() }] }, signal)
          return real.transact(transaction, signal)
        }
      },
    })
    return { services: { ...host.services, store: outrunStore }, attempts: () => attempts }
  }

  const failureOf = async (work: Promise<unknown>): Promise<unknown> =>
    work.then(
      () => 'done',
      (error: unknown) => (error instanceof DomainError ? error.code : error),
    )

  test('the records of blobs are not changed for a blob that others change all the time: code 10 after twelve attempts', async () => {
    const digest = digestOf(Buffer.from('outrun'))
    await record(digest)
    for (const work of [(services: Services) => record(digest, services), (services: Services) => forgetBlob(services, { repo, digest }, soon())]) {
      const { services, attempts } = outrun(digest)
      expect(await failureOf(work(services))).toBe(10)
      expect(attempts()).toBe(12)
    }
    expect(await heldBlob(host.services, { repo, digest }, soon())).toMatchObject({ size: 10n })
  })

  test('the records of blobs are not retried once the caller has disconnected', async () => {
    const digest = digestOf(Buffer.from('gone'))
    await record(digest)
    const { services, attempts } = outrun(digest)
    const gone = new DomainError(1, 'the client disconnected')
    await expect(forgetBlob(services, { repo, digest }, AbortSignal.abort(gone))).rejects.toBe(gone)
    expect(attempts()).toBe(0)
  })

  test('the records of blobs are created for sixty blobs of one organisation at once, and removed', async () => {
    const digests = Array.from({ length: 60 }, (_, at) => digestOf(Buffer.from(`blob ${at}`)))
    await Promise.all(digests.map((digest) => record(digest)))
    await Promise.all(digests.map((digest) => forgetBlob(host.services, { repo, digest }, soon())))
    for (const digest of digests) expect(await heldBlob(host.services, { repo, digest }, soon())).toBeUndefined()
  })
})
