import { expect, test } from 'vitest'
import type { JsonObject } from '@bufbuild/protobuf'
import { digestOf, type Digest } from '../../../../src/base/digest.ts'
import { makeImageWorld, pushManifest, pushPackages, withRegistry, type ImageWorld } from '../../../contents/counts/image-world.ts'
import { grype, sarif } from '../../../contents/scanner-reports/report-samples.ts'
import { descriptorOf, imageType, manifestOf, type TestManifest } from '../../../registry/oci/oci-client.ts'
import { expectFailure, itemsOf, specSuite } from '../spec-suite.ts'

/** Pushes a report as a referrer of an image. Returns the digests of its manifest and of the report. */
async function pushReport(world: ImageWorld, subject: TestManifest, { document, mediaType }: { document: Buffer; mediaType: string }) {
  const empty = Buffer.from('{}')
  await withRegistry(world, async (client) => {
    for (const bytes of [empty, document]) await client.putBlob(world.path, bytes)
  })
  const manifest = manifestOf({
    schemaVersion: 2,
    mediaType: imageType,
    artifactType: mediaType,
    config: { mediaType: 'application/vnd.oci.empty.v1+json', digest: digestOf(empty), size: empty.length },
    layers: [{ mediaType, digest: digestOf(document), size: document.length }],
    subject: descriptorOf(subject),
  })
  return { digest: await pushManifest(world, manifest.digest, manifest), documentDigest: digestOf(document) }
}

/** Waits until every report of an answer is read. An answer does not wait for slow ones. */
async function untilRead(list: () => Promise<JsonObject>): Promise<void> {
  await expect.poll(async () => itemsOf(await list(), 'reports').filter(({ state }) => state === 'PENDING'), { timeout: 120_000 }).toEqual([])
}

specSuite('reports of scanners', (spec) => {
  // docs/spec/registry.md#reports-of-scanners
  test('are listed with what they found, in pages, until they are deleted', async () => {
    const world = await makeImageWorld(spec.server)
    const image = await pushPackages(world, 'latest', { musl: '1' })
    const token = await spec.server.tokenFor(world.owner)
    const about = { repoUid: world.repo, digest: image.digest }
    const listed = async (more: JsonObject = {}): Promise<JsonObject> => spec.ok('ListScannerReports', { ...about, ...more }, { token })
    expect(await listed()).toEqual({ vulnerabilities: [], totalCount: '0', skipped: 0, reports: [] })
    const first = await pushReport(world, image, { document: Buffer.from(JSON.stringify(grype)), mediaType: 'application/vnd.anchore.grype+json' })
    spec.clock.advance(1_000)
    const second = await pushReport(world, image, { document: Buffer.from(JSON.stringify(sarif)), mediaType: 'application/sarif+json' })
    spec.clock.advance(1_000)
    const broken = await pushReport(world, image, { document: Buffer.from('{'), mediaType: 'application/sarif+json' })
    await untilRead(listed)
    const none = { message: '', format: 'FORMAT_UNSPECIFIED', scannerName: '', scannerVersion: '' }
    const times = { pushTime: expect.any(String) as unknown }
    const counted = (...counts: readonly [string, number][]): JsonObject[] => counts.map(([severityLevel, count]) => ({ severityLevel, count }))
    const whole = await listed()
    expect(whole['reports']).toEqual([
      { ...none, ...broken, subjectDigest: image.digest, state: 'FAILED', message: 'the document is not valid JSON', severityCounts: [], ...times },
      {
        ...{ ...none, ...second, subjectDigest: image.digest, state: 'READ', format: 'SARIF', scannerName: 'Trivy', scannerVersion: '0.66.0' },
        ...{ createTime: '2026-11-03T10:00:00.000Z', severityCounts: counted(['CRITICAL', 1], ['MEDIUM', 1], ['LOW', 1]), ...times },
      },
      {
        ...{ ...none, ...first, subjectDigest: image.digest, state: 'READ', format: 'GRYPE', scannerName: 'grype', scannerVersion: '0.93.0' },
        ...{ createTime: '2026-11-01T10:00:00.000Z', severityCounts: counted(['CRITICAL', 1], ['NEGLIGIBLE', 1]), ...times },
      },
    ])
    const rows = (answer: JsonObject): unknown[] => itemsOf(answer, 'vulnerabilities').map(({ id, reportDigest }) => [id, reportDigest])
    const all = [
      ['CVE-2026-0001', first.digest],
      ['CVE-2026-0004', second.digest],
      ['CVE-2026-0005', second.digest],
      ['GHSA-aaaa-bbbb-cccc', first.digest],
      ['style', second.digest],
    ]
    expect(rows(whole)).toEqual(all)
    expect(itemsOf(whole, 'vulnerabilities')[0]).toEqual({
      ...{ id: 'CVE-2026-0001', severityLevel: 'CRITICAL', fixedVersion: '3.3.2-r0', reportDigest: first.digest },
      package: {
        ...{ digest: image.digest, purl: 'pkg:apk/wolfi/openssl@3.3.1-r0?arch=x86_64', type: 'apk', name: 'openssl', version: '3.3.1-r0' },
        ...{ origin: '', licenses: [], locations: ['/lib/apk/db/installed'] },
      },
    })
    expect(rows(await listed({ severityLevels: ['CRITICAL'] }))).toEqual(all.slice(0, 2))
    expect(rows(await listed({ reportDigests: [first.digest] }))).toEqual([all[0], all[3]])
    const page = await listed({ pageSize: 2, skip: 1 })
    expect([rows(page), page['totalCount'], page['skipped']]).toEqual([all.slice(1, 3), '5', 1])
    const next = await listed({ pageSize: 2, pageToken: page['nextPageToken'] ?? '' })
    expect([rows(next), next['nextPageToken'] ?? '']).toEqual([all.slice(3), ''])
    // What others say changes nothing about the image itself.
    expect(itemsOf(await spec.ok('ListVulnerabilities', about, { token }), 'vulnerabilities')).toEqual([])
    const remove = async (digest: Digest): Promise<void> => {
      const { status } = await withRegistry(world, (client) => client.send('DELETE', `/v2/${world.path}/manifests/${digest}`))
      expect(status).toBe(202)
    }
    for (const { digest } of [first, broken]) await remove(digest)
    expect(itemsOf(await listed(), 'reports').map(({ digest }) => digest)).toEqual([second.digest])
    await remove(image.digest)
    expectFailure(await spec.call('ListScannerReports', about, { token }), { code: 5 })
  })
  test('end a page before an answer has 4 MiB', async () => {
    const world = await makeImageWorld(spec.server)
    const image = await pushPackages(world, 'latest', { musl: '1' })
    const token = await spec.server.tokenFor(world.owner)
    const locations = Array.from({ length: 10 }, (_, at) => ({ path: `${at}`.padEnd(1_000, '\u{4e00}') }))
    const matches = Array.from({ length: 150 }, (_, at) => ({ vulnerability: { id: `CVE-2026-${1_000 + at}` }, artifact: { name: 'left', locations } }))
    const document = Buffer.from(JSON.stringify({ ...grype, matches }))
    await pushReport(world, image, { document, mediaType: 'application/vnd.anchore.grype+json' })
    const listed = async (more: JsonObject = {}): Promise<JsonObject> =>
      spec.ok('ListScannerReports', { repoUid: world.repo, digest: image.digest, ...more }, { token })
    await untilRead(listed)
    const found: unknown[] = []
    const sizes: number[] = []
    for (let pageToken = ''; ;) {
      const answer = await listed({ pageSize: 200, pageToken })
      const items = itemsOf(answer, 'vulnerabilities')
      sizes.push(Buffer.byteLength(JSON.stringify(items)))
      found.push(...items.map(({ id }) => id))
      pageToken = String(answer['nextPageToken'] ?? '')
      if (pageToken === '') break
    }
    expect(found).toEqual(matches.map(({ vulnerability }) => vulnerability.id))
    expect(sizes).toHaveLength(2)
  })
})
