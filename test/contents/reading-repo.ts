import { gzipSync } from 'node:zlib'
import { digestOf, hexOf, type Digest } from '../../src/base/digest.ts'
import type { Uid } from '../../src/base/uid.ts'
import type { ImageContents } from '../../src/contents/image-contents.ts'
import { readContents, type ReadingOptions, type ReadManifest } from '../../src/contents/reading/read-contents.ts'
import { findRepository } from '../../src/registry/records/repo-paths.ts'
import { descriptorOf, imageType, indexType, manifestOf, type TestManifest } from '../registry/oci/oci-client.ts'
import type { TestHost } from '../registry/oci/test-host.ts'
import { namedSpdx, purls as samplePurls } from './sbom-samples.ts'
import { tarOf } from './tar-of.ts'

export const configType = 'application/vnd.oci.image.config.v1+json'
export const layerType = 'application/vnd.oci.image.layer.v1.tar+gzip'
export const statementType = 'application/vnd.in-toto+json'
export const spdxPredicate = 'https://spdx.dev/Document'
export const sbomPurls = Object.values(samplePurls).sort()
export const layerPurl = 'pkg:apk/wolfi/openssl@3.3.1-r0?arch=x86_64&distro=wolfi-20230201'
export const debianPurl = 'pkg:deb/debian/zlib1g@1:1.2.13.dfsg-1?arch=amd64&distro=debian-12&upstream=zlib'
export const alive = new AbortController().signal

export const apkFiles = { 'etc/os-release': 'ID=wolfi\nVERSION_ID="20230201"\n', 'lib/apk/db/installed': 'P:openssl\nV:3.3.1-r0\nA:x86_64\no:openssl\n\n' }
export const dpkgFiles = {
  'usr/lib/os-release': 'ID=debian\nVERSION_ID="12"\n',
  'var/lib/dpkg/status': 'Package: zlib1g\nStatus: install ok installed\nArchitecture: amd64\nSource: zlib\nVersion: 1:1.2.13.dfsg-1\n',
}

export const layerOf = (files: Readonly<Record<string, string>>): Buffer => gzipSync(tarOf(Object.entries(files).map(([path, data]) => ({ path, data }))))
export const bytesOf = (value: unknown): Buffer => Buffer.from(JSON.stringify(value))
export const statementOf = (about: Digest, predicate: unknown = namedSpdx, predicateType = spdxPredicate): object => ({
  _type: 'https://in-toto.io/Statement/v1',
  subject: [{ name: 'shop', digest: { sha256: hexOf(about) } }],
  predicateType,
  predicate,
})
export const envelopeOf = (statement: object): object => ({ payloadType: statementType, payload: bytesOf(statement).toString('base64'), signatures: [] })
export const bundleOf = (statement: object): object => ({ mediaType: 'application/vnd.dev.sigstore.bundle.v0.3+json', dsseEnvelope: envelopeOf(statement) })

/** A blob to push as a layer. */
export interface TestLayer {
  readonly bytes: Buffer
  readonly mediaType: string
  readonly annotations?: Readonly<Record<string, string>>
}

/** A repo of a test, into which it pushes. */
export class TestRepo {
  readonly host: TestHost
  readonly path: string

  constructor(host: TestHost) {
    this.host = host
    this.path = host.freshRepository()
  }

  get uid(): Uid {
    const target = findRepository(this.host.services.cache.tables, this.path)
    if (target?.kind !== 'repo') throw new Error('no repo')
    return target.uid
  }

  async push(manifest: TestManifest, reference: string = manifest.digest): Promise<TestManifest> {
    const answer = await this.host.client.putManifest(this.path, reference, manifest)
    if (answer.status !== 201) throw new Error(answer.body.toString())
    return manifest
  }

  /** Pushes a manifest with a config and layers. */
  async pushWith(
    { config, configMediaType = 'application/vnd.oci.empty.v1+json', layers }: { config: Buffer; configMediaType?: string; layers: readonly TestLayer[] },
    { reference, ...more }: Readonly<Record<string, unknown>> & { readonly reference?: string } = {},
  ): Promise<TestManifest> {
    for (const bytes of [config, ...layers.map((layer) => layer.bytes)]) await this.host.client.putBlob(this.path, bytes)
    const described = layers.map(({ bytes, ...layer }) => ({ ...layer, digest: digestOf(bytes), size: bytes.length }))
    const manifest = manifestOf({
      schemaVersion: 2,
      mediaType: imageType,
      config: { mediaType: configMediaType, digest: digestOf(config), size: config.length },
      layers: described,
      ...more,
    })
    return this.push(manifest, reference)
  }

  /** Pushes an image. */
  image(layers: readonly Buffer[], platform: Readonly<Record<string, string>> = { os: 'linux', architecture: 'amd64' }): Promise<TestManifest> {
    return this.pushWith({ config: bytesOf(platform), configMediaType: configType, layers: layers.map((bytes) => ({ bytes, mediaType: layerType })) })
  }

  /** Pushes a referrer with one layer. */
  referrer(subject: TestManifest, layer: TestLayer, more: Readonly<Record<string, unknown>> = {}): Promise<TestManifest> {
    return this.pushWith({ config: Buffer.from('{}'), layers: [layer] }, { subject: descriptorOf(subject), ...more })
  }

  /** Pushes an index of images, each with an attestation as BuildKit makes them. */
  async attested(images: readonly TestManifest[], layerFor: (image: TestManifest) => Buffer): Promise<{ index: TestManifest; attestations: TestManifest[] }> {
    const attestations: TestManifest[] = []
    for (const image of images) {
      const provenance = {
        bytes: bytesOf({ about: image.digest }),
        mediaType: statementType,
        annotations: { 'in-toto.io/predicate-type': 'https://slsa.dev/provenance/v1' },
      }
      const sbom = { bytes: layerFor(image), mediaType: statementType, annotations: { 'in-toto.io/predicate-type': spdxPredicate } }
      attestations.push(
        await this.pushWith({ config: bytesOf({ os: 'unknown', salt: image.digest }), configMediaType: configType, layers: [provenance, sbom] }),
      )
    }
    const about = (at: number): object => ({ 'vnd.docker.reference.type': 'attestation-manifest', 'vnd.docker.reference.digest': images[at]?.digest })
    const unknown = { os: 'unknown', architecture: 'unknown' }
    const manifests = [...images.map(descriptorOf), ...attestations.map((one, at) => ({ ...descriptorOf(one), annotations: about(at), platform: unknown }))]
    return { index: await this.push(manifestOf({ schemaVersion: 2, mediaType: indexType, manifests })), attestations }
  }

  reading({ digest }: { readonly digest: Digest }, options: Partial<ReadingOptions> = {}, signal: AbortSignal = alive): Promise<ReadManifest> {
    return readContents({ services: this.host.services, upstream: this.host.upstream, ...options }, { repo: this.uid, digest }, signal)
  }

  async read(image: { readonly digest: Digest }, options: Partial<ReadingOptions> = {}, signal: AbortSignal = alive): Promise<readonly ImageContents[]> {
    return (await this.reading(image, options, signal)).images
  }
}

export const purlsIn = ({ packages }: ImageContents): string[] => packages.map(({ purl }) => purl)
