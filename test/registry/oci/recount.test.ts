import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { rootOf, trustedUid, type Uid } from '../../../src/base/uid.ts'
import { BlobRecordSchema, ManifestRecordSchema } from '../../../src/gen/taproot/store/v1/registry_pb.ts'
import { counterPrefixes, storedUse, type StoredLimit } from '../../../src/engine/quota/content.ts'
import { contentLimit, manifestsLimit } from '../../../src/engine/quota/limits.ts'
import { recountContent } from '../../../src/registry/gc/recount.ts'
import { blobPrefix } from '../../../src/registry/records/blobs.ts'
import { manifestPrefix } from '../../../src/registry/records/manifest-keys.ts'
import type { Entry, Write } from '../../../src/store/store.ts'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { soon } from '../gc/collecting-host.ts'
import { startDiskUpstream, startTestHost, type TestHost } from './test-host.ts'

describeOnStores('recounting the content of organisations', (kind) => {
  let host: TestHost
  let root: Uid
  beforeAll(async () => {
    host = await startTestHost({ upstream: startDiskUpstream, store: kind })
    root = rootOf(trustedUid(host.group))
  })
  afterAll(() => host?.stop())

  const entries = async (prefix: string): Promise<readonly Entry[]> =>
    (await host.services.store.range({ prefix: `${prefix}${root}/`, limit: 10_000 }, soon())).entries
  const write = async (...writes: Write[]): Promise<void> => void (await host.services.store.transact({ guards: [], writes }, soon()))
  /** The sums of the records, and the counters. */
  async function both(): Promise<Record<'records' | 'counters', unknown>> {
    const records = { [contentLimit]: 0, [manifestsLimit]: 0 }
    for (const { value } of await entries(blobPrefix)) {
      const { counted, size } = fromBinary(BlobRecordSchema, value)
      records[contentLimit] += counted ? Number(size) : 0
    }
    for (const { value } of await entries(manifestPrefix)) {
      const { countedSize, countedRecord } = fromBinary(ManifestRecordSchema, value)
      records[contentLimit] += Number(countedSize)
      records[manifestsLimit] += Number(countedRecord)
    }
    const use = (limit: StoredLimit): Promise<number> => storedUse(host.services.store, { limit, root }, soon())
    return { records, counters: { [contentLimit]: await use(contentLimit), [manifestsLimit]: await use(manifestsLimit) } }
  }
  async function expectExact(): Promise<void> {
    const { records, counters } = await both()
    expect(counters).toEqual(records)
  }

  /** Writes like a version without counters: writes and removes records, and leaves the counters unchanged. */
  async function drift(): Promise<void> {
    const [overwritten, removed] = await entries(blobPrefix)
    const [manifest] = await entries(manifestPrefix)
    if (overwritten === undefined || removed === undefined || manifest === undefined) throw new Error('push an image first')
    const bare = create(ManifestRecordSchema, { ...fromBinary(ManifestRecordSchema, manifest.value), countedSize: 0n, countedRecord: 0n })
    await write(
      { kind: 'put', key: overwritten.key, value: toBinary(BlobRecordSchema, create(BlobRecordSchema, { size: 7n })) },
      { kind: 'delete', key: removed.key },
      { kind: 'put', key: manifest.key, value: toBinary(ManifestRecordSchema, bare) },
    )
    const { records, counters } = await both()
    expect(counters).not.toEqual(records)
  }

  test('recounting the content of organisations corrects counters left behind by another version, and keeps right ones', async () => {
    await host.client.pushImage(host.freshRepository(), 'v1')
    expect(await recountContent(host.services, soon())).toBe(0)
    await expectExact()
    await drift()
    expect(await recountContent(host.services, soon())).toBe(1)
    await expectExact()
    expect(await recountContent(host.services, soon())).toBe(0)
  })

  test('recounting the content of organisations corrects a counter once in two concurrent recounts, during pushes', async () => {
    await Promise.all([1, 2].map(() => host.client.pushImage(host.freshRepository(), 'v1')))
    await drift()
    const pushes = Array.from({ length: 10 }, (_, at) => host.client.pushImage(host.freshRepository(), `v${at}`))
    const corrected = await Promise.all([recountContent(host.services, soon()), recountContent(host.services, soon())])
    expect(corrected.reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(1)
    await Promise.all(pushes)
    await recountContent(host.services, soon())
    await expectExact()
  })

  test('recounting the content of organisations sets the counters of a deleted organisation to zero', async () => {
    const gone = 'f'.repeat(40)
    const keys = Object.values(counterPrefixes).map((prefix) => `${prefix}${gone}/3`)
    await write(...keys.map((key): Write => ({ kind: 'put', key, value: Buffer.from('500') })))
    expect(await recountContent(host.services, soon())).toBe(1)
    for (const limit of [contentLimit, manifestsLimit] as const) {
      expect(await storedUse(host.services.store, { limit, root: trustedUid(gone) }, soon())).toBe(0)
    }
  })

  test('recounting the content of organisations skips an organisation with an unreadable record, and recounts the others', async () => {
    const [damaged, gone] = [trustedUid('d'.repeat(40)), trustedUid('e'.repeat(40))]
    const counter = (root: Uid): Write => ({ kind: 'put', key: `${counterPrefixes[contentLimit]}${root}/3`, value: Buffer.from('500') })
    const record = `${blobPrefix}${damaged}/0000000000000000/sha256:0`
    await write(counter(damaged), counter(gone), { kind: 'put', key: record, value: Buffer.from([0xff]) })
    await expect(recountContent(host.services, soon())).rejects.toThrow()
    expect(await storedUse(host.services.store, { limit: contentLimit, root: damaged }, soon())).toBe(500)
    expect(await storedUse(host.services.store, { limit: contentLimit, root: gone }, soon())).toBe(0)
    await write({ kind: 'delete', key: record })
    expect(await recountContent(host.services, soon())).toBe(1)
  })
})
