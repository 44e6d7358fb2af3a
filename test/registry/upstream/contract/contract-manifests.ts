import { expect, test } from 'vitest'
import { digestOf } from '../../../../src/base/digest.ts'
import { describeManifest, failureOf, freshBytes, freshImage, freshRepo, indexType, manifestOf, never, putBlob } from '../content.ts'
import type { UpstreamUnderTest } from '../upstream-under-test.ts'

/** Manifests of the upstream port. */
export function manifestContract(running: () => UpstreamUnderTest): void {
  test('the upstream is ready', async () => {
    await expect(running().upstream.ready(never)).resolves.toBeUndefined()
  })

  test('a manifest is read back byte for byte, with its media type, also by another process', async () => {
    const { upstream, another } = running()
    const repo = freshRepo()
    const manifest = await freshImage(upstream, repo)
    await upstream.putManifest(repo, manifest, never)
    for (const each of [upstream, await another()]) {
      const found = await each.getManifest(repo, manifest.digest, never)
      expect(found).toMatchObject({ digest: manifest.digest, mediaType: manifest.mediaType })
      expect(Buffer.from(found?.bytes ?? [])).toEqual(Buffer.from(manifest.bytes))
      expect(await each.hasManifest(repo, manifest.digest, never)).toBe(true)
      expect(await each.hasManifest(repo, digestOf(Buffer.from('none')), never)).toBe(false)
    }
  })

  test('a missing manifest is undefined: in an unused repo, under another digest, in another repo', async () => {
    const { upstream } = running()
    const [repo, other] = [freshRepo(), freshRepo()]
    const manifest = await freshImage(upstream, repo)
    expect(await upstream.getManifest(other, manifest.digest, never)).toBeUndefined()
    expect(await upstream.hasManifest(other, manifest.digest, never)).toBe(false)
    await upstream.putManifest(repo, manifest, never)
    expect(await upstream.getManifest(repo, digestOf(Buffer.from('other')), never)).toBeUndefined()
    expect(await upstream.getManifest(other, manifest.digest, never)).toBeUndefined()
  })

  test('storing a manifest twice, also at once, succeeds', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const manifest = await freshImage(upstream, repo)
    await upstream.putManifest(repo, manifest, never)
    await Promise.all(Array.from({ length: 5 }, () => upstream.putManifest(repo, manifest, never)))
    expect(await upstream.hasManifest(repo, manifest.digest, never)).toBe(true)
  })

  test('bytes that do not match the digest are refused', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const manifest = await freshImage(upstream, repo)
    const wrong = { ...manifest, digest: digestOf(Buffer.from('other')) }
    expect(await failureOf(upstream.putManifest(repo, wrong, never))).toBe('digest_mismatch')
    expect(await upstream.hasManifest(repo, wrong.digest, never)).toBe(false)
  })

  test('a deleted manifest is gone, others stay; a second delete does nothing; it can be stored again', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const [manifest, other] = [await freshImage(upstream, repo), await freshImage(upstream, repo)]
    for (const each of [manifest, other]) await upstream.putManifest(repo, each, never)
    for (let times = 0; times < 2; times++) await upstream.deleteManifest(repo, manifest.digest, never)
    expect(await upstream.getManifest(repo, manifest.digest, never)).toBeUndefined()
    expect(await upstream.hasManifest(repo, other.digest, never)).toBe(true)
    await upstream.deleteManifest(freshRepo(), manifest.digest, never)
    await upstream.putManifest(repo, manifest, never)
    expect(await upstream.hasManifest(repo, manifest.digest, never)).toBe(true)
  })

  test('an index, its children and a referrer are stored like any other manifest', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const children = [await freshImage(upstream, repo), await freshImage(upstream, repo)]
    for (const child of children) await upstream.putManifest(repo, child, never)
    const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: children.map(describeManifest) })
    await upstream.putManifest(repo, index, never)
    const referrer = await freshImage(upstream, repo, { subject: describeManifest(index), artifactType: 'application/vnd.example.sbom' })
    await upstream.putManifest(repo, referrer, never)
    for (const { digest, mediaType } of [...children, index, referrer])
      expect(await upstream.getManifest(repo, digest, never)).toMatchObject({ digest, mediaType })
  })

  test('a manifest that names its layers by SHA-512 is stored', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const layer = freshBytes(100)
    await putBlob(upstream, repo, layer, 'sha512')
    const layers = [{ mediaType: 'application/vnd.oci.image.layer.v1.tar', digest: digestOf(layer, 'sha512'), size: layer.length }]
    const manifest = await freshImage(upstream, repo, { layers })
    await upstream.putManifest(repo, manifest, never)
    expect(await upstream.hasManifest(repo, manifest.digest, never)).toBe(true)
  })

  test('a manifest of three megabytes is stored', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const manifest = await freshImage(upstream, repo, { annotations: { long: 'x'.repeat(3_000_000) } })
    await upstream.putManifest(repo, manifest, never)
    expect((await upstream.getManifest(repo, manifest.digest, never))?.bytes.length).toBe(manifest.bytes.length)
  })

  test('an aborted call rejects with the reason of the signal', async () => {
    const { upstream } = running()
    const reason = new Error('enough')
    await expect(upstream.getManifest(freshRepo(), digestOf(Buffer.from('x')), AbortSignal.abort(reason))).rejects.toBe(reason)
  })
}
