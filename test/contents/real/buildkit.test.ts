import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { digestOf, hexOf, type Digest } from '../../../src/base/digest.ts'
import type { TestManifest } from '../../registry/oci/oci-client.ts'
import { startDiskUpstream, startTestHost, type TestHost } from '../../registry/oci/test-host.ts'
import { purlsIn, TestRepo } from '../reading-repo.ts'

const run = promisify(execFile)

/** An index of an image and its attestations, as in the layout. */
interface LayoutIndex {
  readonly mediaType: string
  readonly manifests: readonly { readonly digest: Digest; readonly mediaType: string; readonly annotations?: Readonly<Record<string, string>> }[]
}

const parsed = (bytes: Buffer): LayoutIndex => JSON.parse(bytes.toString()) as LayoutIndex // the form of a layout

/** Pushes all blobs and manifests of an OCI layout, byte by byte. Resolves with the index. */
async function pushLayout(repo: TestRepo, archive: string): Promise<TestManifest & LayoutIndex> {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-layout-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  await run('tar', ['-xf', join(import.meta.dirname, archive), '-C', folder])
  const blobs = join(folder, 'blobs', 'sha256')
  for (const name of await readdir(blobs)) await repo.host.client.putBlob(repo.path, await readFile(join(blobs, name)))
  const push = async ({ digest, mediaType }: LayoutIndex['manifests'][number]): Promise<TestManifest> => {
    const bytes = await readFile(join(blobs, hexOf(digest)))
    return repo.push({ bytes, digest: digestOf(bytes), mediaType })
  }
  const [root] = parsed(await readFile(join(folder, 'index.json'))).manifests
  if (root === undefined) throw new Error('the layout has no index')
  const index = parsed(await readFile(join(blobs, hexOf(root.digest))))
  for (const manifest of index.manifests) await push(manifest)
  return { ...index, ...(await push(root)) }
}

describe('the packages of an image that BuildKit built', () => {
  let host: TestHost
  beforeAll(async () => void (host = await startTestHost({ upstream: startDiskUpstream })))
  afterAll(() => host.stop())

  // docs/images.md#what-is-read
  test.each(['buildkit-artifact', 'buildkit-image', 'buildkit-unnamed'])('are read from its attestation: %s', async (name) => {
    const repo = new TestRepo(host)
    const { manifests, ...index } = await pushLayout(repo, `${name}.tar.gz`)
    const attested = manifests.flatMap(({ digest, annotations = {} }) => {
      const about = annotations['vnd.docker.reference.digest']
      return about === undefined ? [] : [[about, digest] as const]
    })
    expect(attested).toHaveLength(2)
    const images = await repo.read(index)
    expect(images.map(({ platform }) => platform)).toEqual(['linux/amd64', 'linux/arm64'])
    for (const image of images) {
      const sourceDigest = new Map<string, Digest>(attested).get(image.digest)
      expect(image).toMatchObject({ source: 'attestation', sourceDigest, problem: undefined, skipped: [] })
      expect(purlsIn(image)).toEqual(['pkg:apk/wolfi/openssl@3.3.1-r0?arch=x86_64', 'pkg:npm/lodash@4.17.21'])
    }
  })
})
