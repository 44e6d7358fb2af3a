import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { digestOf, hexOf } from '../../../src/base/digest.ts'

/** A descriptor of content. */
interface Descriptor {
  readonly mediaType: string
  readonly digest: string
  readonly size: number
}

/** Writes an OCI image layout with one image of one fresh layer, tagged `v1`, into a new folder; resolves with the digest of its manifest. */
export async function writeImageLayout(directory: string): Promise<string> {
  const blobs = join(directory, 'blobs', 'sha256')
  await mkdir(blobs, { recursive: true })
  const add = async (mediaType: string, bytes: Uint8Array): Promise<Descriptor> => {
    const digest = digestOf(bytes)
    await writeFile(join(blobs, hexOf(digest)), bytes)
    return { mediaType, digest, size: bytes.length }
  }
  const json = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value))

  const tar = join(directory, 'layer.tar')
  await writeFile(join(directory, 'content'), randomBytes(100_000))
  const { status } = spawnSync('tar', ['-cf', tar, '-C', directory, 'content'])
  if (status !== 0) throw new Error('tar failed')
  const bytes = await readFile(tar)
  const layer = await add('application/vnd.oci.image.layer.v1.tar+gzip', gzipSync(bytes))
  const rootfs = { type: 'layers', diff_ids: [digestOf(bytes)] }
  const config = await add('application/vnd.oci.image.config.v1+json', json({ architecture: 'amd64', os: 'linux', config: {}, rootfs }))
  const mediaType = 'application/vnd.oci.image.manifest.v1+json'
  const manifest = await add(mediaType, json({ schemaVersion: 2, mediaType, config, layers: [layer] }))
  const named = { ...manifest, annotations: { 'org.opencontainers.image.ref.name': 'v1' } }
  await writeFile(join(directory, 'index.json'), json({ schemaVersion: 2, manifests: [named] }))
  await writeFile(join(directory, 'oci-layout'), json({ imageLayoutVersion: '1.0.0' }))
  return manifest.digest
}
