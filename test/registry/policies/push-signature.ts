import { randomBytes } from 'node:crypto'
import type { JsonObject } from '@bufbuild/protobuf'
import { digestOf, hexOf } from '../../../src/base/digest.ts'
import { pushManifest, withRegistry, type ImageWorld } from '../../contents/counts/image-world.ts'
import { descriptorOf, imageType, manifestOf, type TestManifest } from '../oci/oci-client.ts'
import { signedBundle, signedPayload, type Signer } from './signing.ts'

/** The media type of sigstore bundles. */
export const bundleType = 'application/vnd.dev.sigstore.bundle.v0.3+json'

/** A layer, and its manifest. */
export interface PushedLayer {
  readonly bytes: Buffer
  readonly mediaType: string
  /** More fields of the manifest, and the annotations of the layer. */
  readonly more: JsonObject
  /** How often the layer is in the manifest. */
  readonly copies?: number
}

/** Pushes a manifest with one layer. Returns it. */
export async function pushLayer(world: ImageWorld, reference: string, layer: PushedLayer): Promise<TestManifest> {
  const { bytes, mediaType, more, copies = 1 } = layer
  const config = Buffer.from(JSON.stringify({ salt: randomBytes(8).toString('hex') }))
  await withRegistry(world, async (client) => {
    for (const one of [config, bytes]) await client.putBlob(world.path, one)
  })
  const { annotations = {}, ...fields } = more
  const manifest = manifestOf({
    ...{ schemaVersion: 2, mediaType: imageType },
    config: { mediaType: 'application/vnd.oci.image.config.v1+json', digest: digestOf(config), size: config.length },
    layers: Array.from({ length: copies }, (_, at) => ({
      mediaType,
      digest: digestOf(bytes),
      size: bytes.length,
      annotations: { ...(annotations as JsonObject), at: String(at) },
    })),
    ...fields,
  })
  await pushManifest(world, reference === '' ? manifest.digest : reference, manifest)
  return manifest
}

/** How signatures are stored. Each signs an image with what says `digest`, by default its own. */
export const signatureLayouts = {
  'a referrer': async (world: ImageWorld, image: TestManifest, signer: Signer, digest: string = image.digest): Promise<TestManifest> => {
    const bytes = await signedBundle(signer, { digest })
    return pushLayer(world, '', { bytes, mediaType: bundleType, more: { artifactType: bundleType, subject: descriptorOf(image) as JsonObject } })
  },
  'a tag': async (world: ImageWorld, image: TestManifest, signer: Signer, digest: string = image.digest): Promise<TestManifest> => {
    const { payload, annotations } = await signedPayload(signer, { digest })
    const mediaType = 'application/vnd.dev.cosign.simplesigning.v1+json'
    return pushLayer(world, `sha256-${hexOf(image.digest)}.sig`, { bytes: payload, mediaType, more: { annotations } })
  },
} as const
