import { Readable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { digestOf, type Digest } from '../../../src/base/digest.ts'
import { ScannerReports, type ScannerReportsOptions } from '../../../src/contents/scanner-reports/scanner-reports.ts'
import type { Services } from '../../../src/engine/services.ts'
import type { TestManifest } from '../../registry/oci/oci-client.ts'
import { alive, apkFiles, bytesOf, layerOf, statementOf, statementType, TestRepo } from '../reading-repo.ts'
import { sarif, vulns } from './report-samples.ts'
import { startReportWorld, withBlobs, type ReportWorld } from './report-world.ts'

const sarifType = 'application/sarif+json'
const vulnsType = 'https://in-toto.io/attestation/vulns/v0.1'

describe('reading reports of scanners', () => {
  let world: ReportWorld
  beforeAll(async () => void (world = await startReportWorld()))
  afterAll(() => world.stop())

  const sourceOf = (options: Partial<ScannerReportsOptions> = {}): ScannerReports =>
    new ScannerReports({ services: () => world.host.services, upstream: world.host.upstream, folder: world.folder, waitMs: 300_000, ...options })
  const statesOf = async (source: ScannerReports, repo: TestRepo, { digest }: { readonly digest: Digest }): Promise<string[]> =>
    (await source.of({ repo: repo.uid, digest }, alive)).map(({ outcome }) => outcome.state)
  let salts = 0
  /** Pushes an image with a report. */
  const pushReported = async (repo: TestRepo): Promise<{ image: TestManifest; report: TestManifest; bytes: Buffer }> => {
    salts += 1
    const image = await repo.image([layerOf({ ...apkFiles, salt: String(salts) })])
    const bytes = bytesOf({ ...sarif, salt: `report ${salts}` })
    return { image, report: await repo.referrer(image, { bytes, mediaType: sarifType }), bytes }
  }

  test('looks at referrers only once while the repo stays as it is, and at a limited number', async () => {
    const repo = new TestRepo(world.host)
    const { image } = await pushReported(repo)
    for (let salt = 0; salt < 4; salt += 1) await repo.referrer(image, { bytes: bytesOf({ ...sarif, salt }), mediaType: sarifType })
    let gets = 0
    const store = new Proxy(world.host.services.store, {
      get(target, key) {
        const member: unknown = Reflect.get(target, key)
        if (key === 'get' || key === 'range') gets += 1
        return typeof member === 'function' ? (member.bind(target) as unknown) : member
      },
    })
    const nowMs = world.host.services.clock.now()
    const services: Services = { ...world.host.services, store, clock: { ...world.host.services.clock, now: () => nowMs } }
    const source = sourceOf({ services: () => services, timeLimitMs: 60_000 })
    expect(await statesOf(source, repo, image)).toHaveLength(5)
    gets = 0
    expect(await statesOf(source, repo, image)).toHaveLength(5)
    expect(gets).toBe(1)
    await repo.referrer(image, { bytes: bytesOf({ ...sarif, salt: 'new' }), mediaType: sarifType })
    expect(await statesOf(source, repo, image)).toHaveLength(6)
    await source.close()
    const limited = sourceOf({ referrers: 3 })
    expect(await statesOf(limited, repo, image)).toHaveLength(3)
    await limited.close()
  })

  test('takes a turn for each document', async () => {
    const repo = new TestRepo(world.host)
    const image = await repo.image([layerOf(apkFiles)])
    const owners = new Map<Digest, string>()
    for (const owner of ['a', 'b']) {
      const layers = [1, 2].map((salt) => ({ bytes: bytesOf({ ...sarif, owner, salt }), mediaType: sarifType }))
      for (const { bytes } of layers) owners.set(digestOf(bytes), owner)
      const { digest, mediaType, bytes } = image
      await repo.pushWith({ config: Buffer.from('{}'), layers }, { subject: { digest, mediaType, size: bytes.length } })
    }
    const order: (string | undefined)[] = []
    const upstream = withBlobs(world.host.upstream, (digest) => void order.push(owners.get(digest)))
    const source = sourceOf({ upstream })
    expect(await statesOf(source, repo, image)).toEqual(['read', 'read', 'read', 'read'])
    await source.close()
    expect(order.slice(0, 2).sort()).toEqual(['a', 'b'])
    expect(order.slice(2).sort()).toEqual(['a', 'b'])
  })

  test('reads a report that was deleted while it waited, and pushed again', async () => {
    const repo = new TestRepo(world.host)
    const [slow, deleted, last] = [await pushReported(repo), await pushReported(repo), await pushReported(repo)]
    // It may end before someone reads it.
    const silent = new Readable({ read: () => undefined }).on('error', () => undefined)
    const upstream = withBlobs(world.host.upstream, (digest) => (digest === digestOf(slow.bytes) ? silent : undefined))
    const source = sourceOf({ upstream, waitMs: 0, timeLimitMs: 300_000 })
    for (const { image } of [slow, deleted]) expect(await statesOf(source, repo, image)).toEqual(['pending'])
    await world.host.client.send('DELETE', `/v2/${repo.path}/manifests/${deleted.report.digest}`)
    const polled = { timeout: 120_000 }
    expect(await statesOf(source, repo, last.image)).toEqual(['pending'])
    silent.destroy(new Error('the connection ended'))
    await expect.poll(() => statesOf(source, repo, last.image), polled).toEqual(['read'])
    await repo.push(deleted.report)
    await expect.poll(() => statesOf(source, repo, deleted.image), polled).toEqual(['read'])
    await source.close()
  })

  test('reads damaged bytes again later', async () => {
    const repo = new TestRepo(world.host)
    const { image, bytes } = await pushReported(repo)
    let isDamaged = true
    const upstream = withBlobs(world.host.upstream, (digest) =>
      isDamaged && digest === digestOf(bytes) ? Readable.from([Buffer.alloc(bytes.length, ' ')]) : undefined,
    )
    let nowMs = world.host.services.clock.now()
    const services: Services = { ...world.host.services, clock: { ...world.host.services.clock, now: () => nowMs } }
    const source = sourceOf({ services: () => services, upstream })
    expect(await statesOf(source, repo, image)).toEqual(['failed'])
    isDamaged = false
    expect(await statesOf(source, repo, image)).toEqual(['failed'])
    nowMs += 30_000
    expect(await statesOf(source, repo, image)).toEqual(['read'])
    await source.close()
  })

  test('lists no failure of an envelope that never said that it is a report', async () => {
    const repo = new TestRepo(world.host)
    const image = await repo.image([layerOf(apkFiles)])
    const push = (bytes: Buffer): Promise<TestManifest> => repo.referrer(image, { bytes, mediaType: statementType })
    await push(Buffer.from('{"_type": '))
    await push(Buffer.alloc(32 * 1024 * 1024 + 1, ' '))
    const other = await push(bytesOf(statementOf(digestOf(Buffer.from('another image')), vulns, vulnsType)))
    const source = sourceOf()
    const found = await source.of({ repo: repo.uid, digest: image.digest }, alive)
    await source.close()
    expect(found.map(({ digest, outcome }) => [digest, outcome])).toEqual([
      [other.digest, { state: 'failed', message: expect.stringMatching(/another image/) as unknown }],
    ])
  })
})
