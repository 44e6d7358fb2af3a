import { readdir } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { digestOf, hexOf, type Digest } from '../../../src/base/digest.ts'
import type { ScannerReport } from '../../../src/cache/lists/scanner-reports-source.ts'
import { ScannerReports } from '../../../src/contents/scanner-reports/scanner-reports.ts'
import type { Upstream } from '../../../src/registry/upstream/upstream.ts'
import { isFullTier } from '../../support/tier.ts'
import type { TestManifest } from '../../registry/oci/oci-client.ts'
import {
  alive,
  apkFiles,
  bundleOf,
  bytesOf,
  configType,
  envelopeOf,
  layerOf,
  spdxPredicate,
  statementOf,
  statementType,
  TestRepo,
  type TestLayer,
} from '../reading-repo.ts'
import { grype, harbor, sarif, trivy, vulns } from './report-samples.ts'
import { startReportWorld, withBlobs, type ReportWorld } from './report-world.ts'

const vulnsType = 'https://in-toto.io/attestation/vulns/v0.1'
const bundleType = 'application/vnd.dev.sigstore.bundle.v0.3+json'

/** Pushes an envelope as cosign does: with the type of an image, to a tag. */
function pushAttestation(repo: TestRepo, image: TestManifest, envelope: object): Promise<TestManifest> {
  const annotations = { predicateType: 'https://cosign.sigstore.dev/attestation/vuln/v1' }
  const layers = [{ bytes: bytesOf(envelope), mediaType: 'application/vnd.dsse.envelope.v1+json', annotations }]
  return repo.pushWith({ config: Buffer.from('{}'), configMediaType: configType, layers }, { reference: `sha256-${hexOf(image.digest)}.att` })
}

describe('reports of scanners', () => {
  let world: ReportWorld
  beforeAll(async () => void (world = await startReportWorld()))
  afterAll(() => world.stop())

  /** Returns the reports of an image, as a process reads them that has just started. Its folder is empty in the end. */
  const reportsOf = async (
    repo: TestRepo,
    { digest }: { readonly digest: Digest },
    upstream: Upstream = world.host.upstream,
  ): Promise<readonly ScannerReport[]> => {
    const source = new ScannerReports({ services: () => world.host.services, upstream, folder: world.folder, waitMs: 600_000, timeLimitMs: 300_000 })
    try {
      const found = await source.of({ repo: repo.uid, digest }, alive)
      expect(await source.of({ repo: repo.uid, digest }, alive)).toEqual(found)
      return found
    } finally {
      await source.close()
      expect(await readdir(world.folder)).toEqual([])
    }
  }
  const stateOf = ({ outcome }: ScannerReport): unknown =>
    outcome.state === 'read'
      ? [outcome.report.format, ...outcome.report.vulnerabilities.map(({ id }) => id)]
      : [outcome.state, 'message' in outcome && outcome.message]
  const statesOf = (found: readonly ScannerReport[], manifest: TestManifest): unknown[] => found.filter(({ digest }) => digest === manifest.digest).map(stateOf)

  // docs/spec/registry.md#reports-of-scanners
  test('are read from referrers and tags in each form', async () => {
    const repo = new TestRepo(world.host)
    const image = await repo.image([layerOf(apkFiles)])
    const plain = (value: unknown, mediaType = 'application/json'): TestLayer => ({ bytes: bytesOf(value), mediaType })
    const pushed: [TestManifest, unknown[]][] = []
    const push = async (layer: TestLayer, more: Readonly<Record<string, unknown>>, states: unknown[]): Promise<void> => {
      pushed.push([await repo.referrer(image, layer, more), states])
    }
    const sarifIds = ['SARIF', 'CVE-2026-0004', 'CVE-2026-0005', 'style']
    await push(plain(sarif, 'application/sarif+json'), {}, [sarifIds])
    await push(plain(grype), { artifactType: 'application/vnd.anchore.grype+json' }, [['GRYPE', 'CVE-2026-0001', 'GHSA-aaaa-bbbb-cccc']])
    await push(plain(trivy), { artifactType: 'application/vnd.aquasec.trivy.report+json' }, [['TRIVY', 'CVE-2026-0002', 'CVE-2026-0003']])
    await push(plain(harbor), { artifactType: 'application/vnd.security.vulnerability.report; version=1.1' }, [['HARBOR_REPORT', 'CVE-2026-0008']])
    const predicate = ['VULNERABILITY_PREDICATE', 'CVE-2026-0009', 'CVE-2026-0010']
    await push(plain(statementOf(image.digest, vulns, vulnsType), statementType), {}, [predicate])
    const annotations = { 'dev.sigstore.bundle.predicateType': vulnsType }
    await push(plain(bundleOf(statementOf(image.digest, vulns, vulnsType)), bundleType), { artifactType: bundleType, annotations }, [predicate])
    // What is no report is not in the answer: an SBOM in the same form of envelope, and a signature.
    await push(plain(statementOf(image.digest), statementType), {}, [])
    await push(plain(bundleOf(statementOf(image.digest)), bundleType), { annotations: { 'dev.sigstore.bundle.predicateType': spdxPredicate } }, [])
    await push(plain({ any: 'thing' }), { artifactType: 'application/vnd.example.notes' }, [])
    const attestation = envelopeOf(statementOf(image.digest, { ...vulns, salt: 1 }, 'https://cosign.sigstore.dev/attestation/vuln/v1'))
    pushed.push([await pushAttestation(repo, image, attestation), [predicate]])
    const found = await reportsOf(repo, image)
    for (const [manifest, states] of pushed) expect(statesOf(found, manifest)).toEqual(states)
    expect(found).toHaveLength(7)
    expect(found.map(({ pushedMs }) => pushedMs)).toEqual(found.map(({ pushedMs }) => pushedMs).toSorted((one, other) => other - one))
    expect(found.every(({ subject }) => subject === image.digest)).toBe(true)
  })

  test('that cannot be read say why', async () => {
    const repo = new TestRepo(world.host)
    const image = await repo.image([layerOf(apkFiles)])
    const push = (bytes: Buffer, artifactType = 'application/sarif+json'): Promise<TestManifest> => repo.referrer(image, { bytes, mediaType: artifactType })
    const other = await push(bytesOf(statementOf(digestOf(Buffer.from('another image')), vulns, vulnsType)), 'application/vnd.in-toto.vulns+json')
    const older = await push(bytesOf({ ...sarif, version: '2.0.0' }))
    const broken = await push(Buffer.from('{"runs": ['))
    const deep = await push(Buffer.from(`{"version":"2.1.0","runs":${'['.repeat(100_000)}`))
    const large = await push(Buffer.alloc(32 * 1024 * 1024 + 1, ' '))
    // Objects of different forms take much more memory than their text. In the full tier, as many as the limits allow: that takes minutes.
    const objects = isFullTier ? 2_200_000 : 1_000_000
    const greedy = await push(Buffer.from(`{"version":"2.1.0","runs":[${Array.from({ length: objects }, (_, at) => `{"${at.toString(36)}":0}`).join()}]}`))
    const damagedBytes = bytesOf({ ...sarif, salt: 'damaged' })
    const damaged = await push(damagedBytes)
    const upstream = withBlobs(world.host.upstream, (digest) =>
      digest === digestOf(damagedBytes) ? Readable.from([Buffer.alloc(damagedBytes.length, ' ')]) : undefined,
    )
    const found = await reportsOf(repo, image, upstream)
    const failed = (text: RegExp): unknown[] => [['failed', expect.stringMatching(text)]]
    expect(statesOf(found, other)).toEqual(failed(/another image/))
    expect(statesOf(found, older)).toEqual(failed(/2\.0\.0 of SARIF is not read/))
    expect(statesOf(found, broken)).toEqual(failed(/not valid JSON/))
    expect(statesOf(found, deep)).toEqual([['tooLarge', expect.stringMatching(/nest/)]])
    expect(statesOf(found, large)).toEqual([['tooLarge', expect.stringMatching(/at most 33554432 are read/)]])
    expect(statesOf(found, greedy)).toEqual([['SARIF']])
    expect(statesOf(found, damaged)).toEqual(failed(/another digest/))
  })

  test('of an index include those of its images, and go with the referrer', async () => {
    const repo = new TestRepo(world.host)
    const image = await repo.image([layerOf(apkFiles)])
    const { index } = await repo.attested([image], ({ digest }) => bytesOf(statementOf(digest)))
    const own = await repo.referrer(image, { bytes: bytesOf(sarif), mediaType: 'application/sarif+json' })
    const whole = await repo.referrer(index, { bytes: bytesOf({ ...sarif, salt: 1 }), mediaType: 'application/sarif+json' })
    expect((await reportsOf(repo, index)).map(({ digest, subject }) => [digest, subject]).sort()).toEqual(
      [
        [own.digest, image.digest],
        [whole.digest, index.digest],
      ].sort(),
    )
    expect((await reportsOf(repo, image)).map(({ digest }) => digest)).toEqual([own.digest])
    const source = new ScannerReports({ services: () => world.host.services, upstream: world.host.upstream, folder: world.folder, waitMs: 300_000 })
    expect(await source.of({ repo: repo.uid, digest: image.digest }, alive)).toHaveLength(1)
    await world.host.client.send('DELETE', `/v2/${repo.path}/manifests/${own.digest}`)
    expect(await source.of({ repo: repo.uid, digest: image.digest }, alive)).toEqual([])
    await world.host.client.send('DELETE', `/v2/${repo.path}/manifests/${image.digest}`)
    await expect(source.of({ repo: repo.uid, digest: image.digest }, alive)).rejects.toMatchObject({ code: 5 })
    await source.close()
  })

  test('of one answer have a limited number of vulnerabilities, and the newest count', async () => {
    const repo = new TestRepo(world.host)
    const image = await repo.image([layerOf(apkFiles)])
    const vulnerabilities = Array.from({ length: 9_000 }, (_, at) => ({ id: `CVE-2026-${at}`, severity: 'Low', package: 'zlib', version: '1.0' }))
    const pushed: string[] = []
    for (const salt of [1, 2, 3]) {
      const bytes = bytesOf({ scanner: { name: 'own' }, salt, vulnerabilities })
      pushed.push((await repo.referrer(image, { bytes, mediaType: 'application/vnd.security.vulnerability.report; version=1.1' })).digest)
    }
    const found = await reportsOf(repo, image)
    const states = found.map((report) => report.outcome.state)
    expect(states).toEqual(['read', 'read', 'tooLarge'])
    expect(found.at(-1)?.outcome).toMatchObject({ message: 'the newer reports and this one have more than 20000 vulnerabilities' })
    expect(found.map(({ digest }) => digest).toSorted()).toEqual(pushed.toSorted())
  })

  test('that never arrive end with the time limit, and hold up no other organisation for longer', async () => {
    const repo = new TestRepo(world.host)
    const image = await repo.image([layerOf(apkFiles)])
    const bytes = bytesOf({ ...sarif, salt: 'silent' })
    await repo.referrer(image, { bytes, mediaType: 'application/sarif+json' })
    const silent = new Readable({ read: () => undefined })
    const upstream = withBlobs(world.host.upstream, (digest) => (digest === digestOf(bytes) ? silent : undefined))
    const source = new ScannerReports({ services: () => world.host.services, upstream, folder: world.folder, waitMs: 300_000, timeLimitMs: 2_000 })
    const states = (await source.of({ repo: repo.uid, digest: image.digest }, alive)).map(stateOf)
    expect(states).toEqual([['tooLarge', 'the report was not read within 2 seconds']])
    await source.close()
    expect(await readdir(world.folder)).toEqual([])
  })

  test('of cosign are pending while they are unread, and count before other envelopes', async () => {
    const repo = new TestRepo(world.host)
    const image = await repo.image([layerOf(apkFiles)])
    const attestation = await pushAttestation(repo, image, envelopeOf(statementOf(image.digest, vulns, 'https://cosign.sigstore.dev/attestation/vuln/v1')))
    for (let salt = 0; salt < 20; salt += 1) await repo.referrer(image, { bytes: bytesOf(statementOf(image.digest, { salt })), mediaType: statementType })
    const source = new ScannerReports({ services: () => world.host.services, upstream: world.host.upstream, folder: world.folder, waitMs: 0 })
    const found = await source.of({ repo: repo.uid, digest: image.digest }, alive)
    await source.close()
    expect(statesOf(found, attestation)).toEqual([['pending', false]])
  })

  test('that are not read yet are pending, and reading ends with the source', async () => {
    const repo = new TestRepo(world.host)
    const image = await repo.image([layerOf(apkFiles)])
    await repo.referrer(image, { bytes: bytesOf(sarif), mediaType: 'application/sarif+json' })
    const source = new ScannerReports({ services: () => world.host.services, upstream: world.host.upstream, folder: world.folder, waitMs: 0 })
    expect((await source.of({ repo: repo.uid, digest: image.digest }, alive)).map(stateOf)).toEqual([['pending', false]])
    await source.close()
    expect(await readdir(world.folder)).toEqual([])
    expect((await source.of({ repo: repo.uid, digest: image.digest }, alive)).map(stateOf)).toEqual([['pending', false]])
  })
})
