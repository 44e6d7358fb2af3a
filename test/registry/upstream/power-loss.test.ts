import { randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { createDiskUpstream } from '../../../src/registry/upstream/disk/disk-upstream.ts'
import { lossyDisk } from '../../support/parts/lossy-disk.ts'
import { blobBytes, bodyOf, freshBytes, freshRepo, manifestOf, never, putBlob } from './content.ts'

const open = (directory: string): ReturnType<typeof createDiskUpstream> => createDiskUpstream({ directory, clock: Date, random: { bytes: randomBytes } })

/** The content of the folder as `blob <repo> <digest>`; each blob is read and its digest checked. */
async function contentOf(directory: string): Promise<readonly string[]> {
  const found: string[] = []
  const upstream = await open(directory)
  for await (const { repo, kind, digest } of upstream.stored()) {
    const bytes = kind === 'blob' ? await blobBytes(upstream, repo, digest) : (await upstream.getManifest(repo, digest, never))?.bytes
    expect(bytes && digestOf(bytes)).toBe(digest)
    found.push(`${kind} ${repo} ${digest}`)
  }
  return found.sort()
}

test.runIf(process.platform === 'linux')('a power loss right after the answer loses no blob, mount or manifest, and leaves no partial one', async () => {
  const disk = await lossyDisk(24 * 1024 * 1024)
  const upstream = await open(disk.directory)
  const repo = freshRepo()
  const other = trustedUid(`${repo}/${'b'.repeat(16)}`)
  const acknowledged: string[] = []
  const expectKept = async (): Promise<void> => expect(await contentOf(await disk.losePower())).toEqual(acknowledged.toSorted())

  const blob = await putBlob(upstream, repo, freshBytes(100_000))
  acknowledged.push(`blob ${repo} ${blob}`)
  await expectKept()

  await upstream.mountBlob(other, { digest: blob, from: repo }, never)
  acknowledged.push(`blob ${other} ${blob}`)
  await expectKept()

  const manifest = manifestOf({ mediaType: 'application/vnd.oci.image.manifest.v1+json' })
  await upstream.putManifest(other, manifest, never)
  acknowledged.push(`manifest ${other} ${manifest.digest}`)
  await expectKept()

  const { state } = await upstream.startUpload(repo, never)
  await upstream.appendUpload(repo, { state, chunk: { body: bodyOf(freshBytes(300_000)) } }, never)
  // Concurrent, so that they share folders and flushes.
  const digests = await Promise.all(Array.from({ length: 8 }, (_, at) => putBlob(upstream, repo, freshBytes(10_000 + at))))
  acknowledged.push(...digests.map((digest) => `blob ${repo} ${digest}`))
  await expectKept()
})
