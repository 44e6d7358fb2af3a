import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { digestOf, hexOf } from '../../src/base/digest.ts'
import type { ImageContents } from '../../src/contents/image-contents.ts'
import type { ReadingOptions } from '../../src/contents/reading/read-contents.ts'
import { descriptorOf, imageType, indexType, manifestOf, type TestManifest } from '../registry/oci/oci-client.ts'
import { describeOnUpstreams } from '../registry/oci/oci-upstreams.ts'
import { startDiskUpstream, startTestHost, type TestHost } from '../registry/oci/test-host.ts'
import { cyclonedx, spdx, spdx3, syft } from './sbom-samples.ts'
import {
  apkFiles,
  bundleOf,
  bytesOf,
  configType,
  debianPurl,
  dpkgFiles,
  envelopeOf,
  layerOf,
  layerPurl,
  layerType,
  purlsIn,
  sbomPurls,
  spdxPredicate,
  statementOf,
  statementType,
  type TestLayer,
  TestRepo,
} from './reading-repo.ts'

describeOnUpstreams('contents', (startUpstream) => {
  let host: TestHost
  beforeAll(async () => void (host = await startTestHost({ upstream: startUpstream })))
  afterAll(() => host.stop())

  test('of an index are those of each image: from its attestation, or its layers', async () => {
    const repo = new TestRepo(host)
    const attested = await repo.image([layerOf(apkFiles)])
    const plain = await repo.image([layerOf({ 'a/b': 'c' }), layerOf(dpkgFiles)], { os: 'linux', architecture: 'arm', variant: 'v7' })
    const { index, attestations } = await repo.attested([attested, plain], (image) => bytesOf(image === attested ? statementOf(image.digest) : 'broken'))
    const [first, second, ...others] = await repo.read(index)
    expect(others).toEqual([])
    expect(first).toMatchObject({
      repo: repo.uid,
      digest: attested.digest,
      platform: 'linux/amd64',
      source: 'attestation',
      sourceDigest: attestations[0]?.digest,
    })
    expect(first).toMatchObject({ problem: undefined, message: '', distribution: { id: 'wolfi' }, described: { name: 'shop' }, skipped: [] })
    expect(first && purlsIn(first)).toEqual(sbomPurls)
    expect(second).toMatchObject({ digest: plain.digest, platform: 'linux/arm/v7', source: 'layers', sourceDigest: '', problem: undefined })
    expect(second && purlsIn(second)).toEqual([debianPurl])
  })
})

describe('contents', () => {
  let host: TestHost
  beforeAll(async () => void (host = await startTestHost({ upstream: startDiskUpstream })))
  afterAll(() => host.stop())

  const forms: readonly (readonly [string, (image: TestManifest) => TestLayer, Readonly<Record<string, unknown>>?])[] = [
    ['SPDX 2.3', () => ({ bytes: bytesOf(spdx), mediaType: 'application/spdx+json' })],
    ['SPDX 3', () => ({ bytes: bytesOf(spdx3), mediaType: 'application/json' }), { artifactType: 'application/spdx+json' }],
    ['CycloneDX', () => ({ bytes: bytesOf(cyclonedx), mediaType: 'application/vnd.cyclonedx+json' })],
    ['syft', () => ({ bytes: bytesOf(syft), mediaType: 'application/vnd.syft+json' })],
    ['in-toto', ({ digest }) => ({ bytes: bytesOf(statementOf(digest)), mediaType: statementType })],
    ['DSSE', ({ digest }) => ({ bytes: bytesOf(envelopeOf(statementOf(digest))), mediaType: 'application/vnd.dsse.envelope.v1+json' })],
    [
      'sigstore',
      ({ digest }) => ({
        bytes: bytesOf(bundleOf(statementOf(digest, cyclonedx, 'https://cyclonedx.org/bom'))),
        mediaType: 'application/vnd.dev.sigstore.bundle.v0.3+json',
      }),
      { annotations: { 'dev.sigstore.bundle.predicateType': 'https://cyclonedx.org/bom' } },
    ],
  ]
  test('are read from a referrer in each form', async () => {
    for (const [form, layerFor, more] of forms) {
      const repo = new TestRepo(host)
      const image = await repo.image([layerOf(apkFiles)])
      const referrer = await repo.referrer(image, layerFor(image), more)
      const [found] = await repo.read(image)
      expect(found, form).toMatchObject({ source: 'referrer', sourceDigest: referrer.digest, problem: undefined })
      expect(found && purlsIn(found), form).toEqual(sbomPurls)
    }
  })

  test('are read from the newest of several referrers, of the image before those of the index', async () => {
    const repo = new TestRepo(host)
    const image = await repo.image([layerOf(apkFiles)])
    const index = await repo.push(manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [descriptorOf(image)] }))
    const at = (created: string): object => ({ annotations: { 'org.opencontainers.image.created': created } })
    const sbom = (name: string): TestLayer => ({ bytes: bytesOf({ ...syft, source: { ...syft.source, name } }), mediaType: 'application/vnd.syft+json' })
    await repo.referrer(index, sbom('index'), { ...at('2026-03-01T00:00:00Z') })
    expect(await repo.read(index)).toMatchObject([{ described: { name: 'index' } }])
    await repo.referrer(image, sbom('old'), { ...at('2024-01-01T00:00:00Z') })
    await repo.referrer(image, sbom('new'), { ...at('2025-01-01T00:00:00Z') })
    expect(await repo.read(index)).toMatchObject([{ described: { name: 'new' } }])
    expect(await repo.read(image)).toMatchObject([{ described: { name: 'new' } }])
  })

  test.each([
    [
      'att',
      (image: TestManifest) => ({
        bytes: bytesOf(envelopeOf(statementOf(image.digest))),
        mediaType: 'application/vnd.dsse.envelope.v1+json',
        annotations: { predicateType: spdxPredicate },
      }),
    ],
    ['sbom', () => ({ bytes: bytesOf(spdx), mediaType: 'spdx+json' })],
  ] as const)("are read from cosign's tag .%s", async (suffix, layerFor) => {
    const repo = new TestRepo(host)
    const image = await repo.image([layerOf(apkFiles)])
    const reference = `sha256-${hexOf(image.digest)}.${suffix}`
    const tagged = await repo.pushWith({ config: bytesOf({}), configMediaType: configType, layers: [layerFor(image)] }, { reference })
    const [found] = await repo.read(image)
    expect(found).toMatchObject({ source: 'tag', sourceDigest: tagged.digest })
    expect(found && purlsIn(found)).toEqual(sbomPurls)
    expect(await repo.read(tagged)).toEqual([])
  })

  test('are read from the layers if no SBOM can be read, and say why', async () => {
    const repo = new TestRepo(host)
    const image = await repo.image([layerOf(apkFiles)])
    const broken = await repo.referrer(image, { bytes: Buffer.from('{'), mediaType: 'application/spdx+json' })
    const other = await repo.referrer(image, { bytes: bytesOf(statementOf(broken.digest)), mediaType: statementType })
    const [found] = await repo.read(image)
    expect(found).toMatchObject({ source: 'layers', sourceDigest: '', problem: undefined, message: '' })
    expect(found && purlsIn(found)).toEqual([layerPurl])
    const reasons = found?.skipped.map(({ path, problem }) => [path, problem]).sort()
    expect(reasons).toEqual(
      [
        [broken.digest, 'UNREADABLE'],
        [other.digest, 'WRONG_DIGEST'],
      ].sort(),
    )
  })

  // docs/images.md#what-is-read
  test('are read from the layers if an SBOM names no package by a package URL, and say so', async () => {
    const repo = new TestRepo(host)
    const image = await repo.image([layerOf(apkFiles)])
    const packages = Array.from({ length: 200 }, (_, at) => ({ SPDXID: `SPDXRef-${at}`, name: `p${at}`, versionInfo: '1', downloadLocation: 'NOASSERTION' }))
    const referrer = await repo.referrer(image, { bytes: bytesOf({ ...spdx, packages, files: [], relationships: [] }), mediaType: 'application/spdx+json' })
    const [found] = await repo.read(image)
    expect(found).toMatchObject({ source: 'layers', skipped: [{ path: referrer.digest, problem: 'UNREADABLE' }] })
    expect(found?.skipped[0]?.message).toContain('none of its 200 packages has a valid package URL')
    expect(found && purlsIn(found)).toEqual([layerPurl])
  })

  // docs/images.md#what-is-read
  test('say how many packages of an SBOM have no package URL', async () => {
    const repo = new TestRepo(host)
    const image = await repo.image([layerOf(apkFiles)])
    const referrer = await repo.referrer(image, { bytes: bytesOf(spdx), mediaType: 'application/spdx+json' })
    const [found] = await repo.read(image)
    const message = 'packages of the SBOM without a valid package URL: 1'
    expect(found).toMatchObject({ source: 'referrer', skipped: [{ path: referrer.digest, problem: 'UNREADABLE', message }] })
  })

  test('have a problem if neither SBOMs nor layers can be read', async () => {
    const repo = new TestRepo(host)
    const image = await repo.image([Buffer.from('no tar')])
    await repo.referrer(image, { bytes: Buffer.from('{'), mediaType: 'application/spdx+json' })
    const [found] = await repo.read(image)
    expect(found).toMatchObject({ source: 'layers', problem: 'UNREADABLE', packages: [], platform: 'linux/amd64' })
    expect(found?.message).toMatch(/tar.*SBOM/)
  })

  test('skip foreign layers, encrypted layers and layers of an unknown form', async () => {
    const repo = new TestRepo(host)
    const layer = layerOf(apkFiles)
    const elsewhere = digestOf(Buffer.from('elsewhere'))
    const config = bytesOf({ os: 'windows', architecture: 'amd64' })
    for (const bytes of [layer, config]) await host.client.putBlob(repo.path, bytes)
    const image = await repo.push(
      manifestOf({
        schemaVersion: 2,
        mediaType: imageType,
        config: { mediaType: configType, digest: digestOf(config), size: config.length },
        layers: [
          { mediaType: 'application/vnd.docker.image.rootfs.foreign.diff.tar.gzip', digest: elsewhere, size: 9, urls: ['https://example.com/layer'] },
          { mediaType: `${layerType}+encrypted`, digest: digestOf(layer), size: layer.length },
          { mediaType: layerType, digest: digestOf(layer), size: layer.length },
        ],
      }),
    )
    const [found] = await repo.read(image)
    expect(found).toMatchObject({ platform: 'windows/amd64', skipped: [{ path: elsewhere, problem: 'UNREADABLE' }, { problem: 'UNSUPPORTED_FORM' }] })
    expect(found && purlsIn(found)).toEqual([layerPurl])
  })

  test('are none for a chart, an SBOM, a lost manifest, and an index of them', async () => {
    const repo = new TestRepo(host)
    const image = await repo.image([layerOf(apkFiles)])
    const chart = await repo.pushWith({
      config: bytesOf({ name: 'shop' }),
      configMediaType: 'application/vnd.cncf.helm.config.v1+json',
      layers: [{ bytes: layerOf({ 'shop/Chart.yaml': 'name: shop' }), mediaType: 'application/vnd.cncf.helm.chart.content.v1.tar+gzip' }],
    })
    const sbom = await repo.referrer(image, { bytes: bytesOf(spdx), mediaType: 'application/spdx+json' })
    const index = await repo.push(manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [chart, sbom].map(descriptorOf) }))
    for (const manifest of [chart, sbom, index, { digest: digestOf(Buffer.from('gone')) }]) expect(await repo.read(manifest)).toEqual([])
  })

  test('keep the digest of the bytes for an image that was pushed by another digest', async () => {
    const repo = new TestRepo(host)
    const image = await repo.image([layerOf(apkFiles)])
    const other = await repo.push({ ...image, digest: digestOf(image.bytes, 'sha512') })
    const about = { ...statementOf(image.digest), subject: [{ digest: { sha512: hexOf(other.digest) } }] }
    await repo.referrer(other, { bytes: bytesOf(about), mediaType: statementType })
    expect(await repo.read(other)).toMatchObject([{ digest: image.digest, source: 'referrer' }])
  })

  describe('that are known', () => {
    const knownAt = (source: ImageContents['source'], sourceDigest: string, ...refused: readonly string[]): Partial<ReadingOptions> => ({
      known: () => Promise.resolve({ source, sourceDigest, skipped: refused.map((path) => ({ path })) }),
    })

    test('are not read again', async () => {
      const repo = new TestRepo(host)
      const image = await repo.image([layerOf(apkFiles)])
      expect(await repo.read(image, knownAt('layers', ''))).toEqual([])
      const old = await repo.referrer(
        image,
        { bytes: bytesOf(syft), mediaType: 'application/vnd.syft+json' },
        { annotations: { 'org.opencontainers.image.created': '2024-01-01T00:00:00Z' } },
      )
      expect(await repo.read(image, knownAt('layers', ''))).toMatchObject([{ source: 'referrer', sourceDigest: old.digest }])
      expect(await repo.read(image, knownAt('referrer', old.digest))).toEqual([])
      const broken = await repo.referrer(image, { bytes: Buffer.from('{'), mediaType: 'application/spdx+json' })
      expect(await repo.read(image, knownAt('referrer', old.digest, broken.digest))).toEqual([])
      expect(await repo.read(image, knownAt('referrer', broken.digest))).toEqual([])
    })

    test('are read again once an SBOM is refused, and say so', async () => {
      const repo = new TestRepo(host)
      const image = await repo.image([layerOf(apkFiles)])
      const broken = await repo.referrer(image, { bytes: Buffer.from('{'), mediaType: 'application/spdx+json' })
      const skipped = [{ path: broken.digest, problem: 'UNREADABLE' }]
      expect(await repo.read(image, knownAt('layers', ''))).toMatchObject([{ source: 'layers', skipped }])
      expect(await repo.read(image, knownAt('layers', '', broken.digest))).toEqual([])
      const old = await repo.referrer(
        image,
        { bytes: bytesOf(syft), mediaType: 'application/vnd.syft+json' },
        { annotations: { 'org.opencontainers.image.created': '2024-01-01T00:00:00Z' } },
      )
      expect(await repo.read(image, knownAt('referrer', old.digest))).toMatchObject([{ source: 'referrer', sourceDigest: old.digest, skipped }])
    })

    test('stay if a newer attestation of another index is refused', async () => {
      const repo = new TestRepo(host)
      const image = await repo.image([layerOf(apkFiles)])
      const { attestations } = await repo.attested([image], ({ digest }) => bytesOf(statementOf(digest)))
      const { index } = await repo.attested([image], () => Buffer.from('{'))
      expect(await repo.read(index, knownAt('attestation', attestations[0]?.digest ?? ''))).toEqual([])
    })

    test('stay if they come from an attestation that the image itself does not name, until it is gone', async () => {
      const repo = new TestRepo(host)
      const image = await repo.image([layerOf(apkFiles)])
      const { index, attestations } = await repo.attested([image], ({ digest }) => bytesOf(statementOf(digest)))
      const [attestation] = attestations
      if (attestation === undefined) throw new Error('no attestation')
      await repo.referrer(image, { bytes: bytesOf(syft), mediaType: 'application/vnd.syft+json' })
      const known = knownAt('attestation', attestation.digest)
      expect(await repo.read(image, known)).toEqual([])
      expect(await repo.read(index, known)).toEqual([])
      expect((await host.client.send('DELETE', `/v2/${repo.path}/manifests/${attestation.digest}`)).status).toBe(202)
      expect(await repo.read(image, known)).toMatchObject([{ source: 'referrer' }])
    })
  })
})
