import type { Digest } from '../../base/digest.ts'
import type { ImageName } from '../../cache/lists/contents-source.ts'
import type { Services } from '../../engine/services.ts'
import { heldManifest, type Upstream } from '../../registry/index.ts'
import type { ImageContents } from '../image-contents.ts'
import { packagesOfLayers } from '../layers/packages-of-layers.ts'

export async function readContents(
  { services, upstream }: { readonly services: Services; readonly upstream: Upstream },
  { repo, digest }: ImageName,
  signal: AbortSignal,
): Promise<readonly ImageContents[]> {
  const record = await heldManifest(services, { repo, digest }, signal)
  if (record === undefined || record.architecture === '' || record.architecture === 'unknown') return []
  async function* layers() {
    for (const layer of record?.layers ?? []) {
      const stream = await upstream.readBlob(repo, { digest: layer.digest as Digest }, signal)
      if (stream !== undefined) yield stream.body as AsyncIterable<Uint8Array>
    }
  }
  const { distribution, packages, skipped } = await packagesOfLayers(layers(), signal)
  return [
    {
      repo,
      digest,
      platform: `linux/${record.architecture}`,
      source: 'layers',
      sourceDigest: '',
      problem: undefined,
      message: '',
      distribution,
      described: undefined,
      packages,
      skipped,
    },
  ]
}
