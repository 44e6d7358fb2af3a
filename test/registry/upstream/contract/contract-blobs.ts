import { expect, test } from 'vitest'
import { digestOf } from '../../../../src/base/digest.ts'
import { blobBytes, drain, freshBytes, freshRepo, never, putBlob } from '../content.ts'
import type { UpstreamUnderTest } from '../upstream-under-test.ts'

/** Blobs of the upstream port. */
export function blobContract(running: () => UpstreamUnderTest): void {
  test.for([0, 1, 2, 1000, 5_000_000])('a blob of %i bytes is stored and read back', async (size) => {
    const { upstream, another } = running()
    const repo = freshRepo()
    const bytes = freshBytes(size)
    const digest = await putBlob(upstream, repo, bytes)
    expect(digest).toBe(digestOf(bytes))
    for (const each of [upstream, await another()]) {
      expect(await each.statBlob(repo, digest, never)).toBe(size)
      const found = await each.readBlob(repo, { digest }, never)
      expect(found?.size).toBe(size)
      expect((await drain(found!.body)).equals(bytes)).toBe(true)
    }
  })

  test('a blob that is read directly has no other location', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    expect(await upstream.locateBlob(repo, await putBlob(upstream, repo, freshBytes(10)), never)).toBeUndefined()
  })

  test.for([0, 1000])('a blob of %i bytes named by SHA-512 is read and deleted under the digest that the upstream returned', async (size) => {
    const { upstream } = running()
    const repo = freshRepo()
    const bytes = freshBytes(size)
    const digest = await putBlob(upstream, repo, bytes, 'sha512')
    expect([digestOf(bytes), digestOf(bytes, 'sha512')]).toContain(digest)
    expect(await upstream.statBlob(repo, digest, never)).toBe(size)
    expect((await blobBytes(upstream, repo, digest))?.equals(bytes)).toBe(true)
    await upstream.deleteBlob(repo, digest, never)
    expect(await upstream.statBlob(repo, digest, never)).toBeUndefined()
  })

  test.for([
    { first: 0, last: 0 },
    { first: 0, last: 999_999 },
    { first: 1, last: 1 },
    { first: 999_999, last: 999_999 },
    { first: 123, last: 654_321 },
  ])('bytes $first to $last of a blob of a million bytes are read', async (range) => {
    const { upstream } = running()
    const repo = freshRepo()
    const bytes = freshBytes(1_000_000)
    const digest = await putBlob(upstream, repo, bytes)
    const found = await upstream.readBlob(repo, { digest, range }, never)
    expect(found?.size).toBe(1_000_000)
    expect((await drain(found!.body)).equals(bytes.subarray(range.first, range.last + 1))).toBe(true)
  })

  test('a missing blob is undefined: in an unused repo, under another digest, in another repo', async () => {
    const { upstream } = running()
    const [repo, other] = [freshRepo(), freshRepo()]
    const digest = await putBlob(upstream, repo, freshBytes(10))
    for (const [where, which] of [
      [other, digest],
      [repo, digestOf(Buffer.from('none'))],
    ] as const) {
      expect(await upstream.statBlob(where, which, never)).toBeUndefined()
      expect(await upstream.readBlob(where, { digest: which }, never)).toBeUndefined()
      expect(await upstream.locateBlob(where, which, never)).toBeUndefined()
      await upstream.deleteBlob(where, which, never)
    }
    expect(await upstream.statBlob(repo, digest, never)).toBe(10)
  })

  test('a deleted blob is gone in its repo only, and can be uploaded again', async () => {
    const { upstream } = running()
    const [repo, other] = [freshRepo(), freshRepo()]
    const bytes = freshBytes(100)
    const digest = await putBlob(upstream, repo, bytes)
    await putBlob(upstream, other, bytes)
    await upstream.deleteBlob(repo, digest, never)
    expect(await upstream.statBlob(repo, digest, never)).toBeUndefined()
    expect((await blobBytes(upstream, other, digest))?.equals(bytes)).toBe(true)
    await putBlob(upstream, repo, bytes)
    expect((await blobBytes(upstream, repo, digest))?.equals(bytes)).toBe(true)
  })

  test('a mounted blob exists without an upload, and outlives its source', async () => {
    const { upstream } = running()
    const [repo, from] = [freshRepo(), freshRepo()]
    const bytes = freshBytes(100)
    const digest = await putBlob(upstream, from, bytes)
    expect(await upstream.mountBlob(repo, { digest, from }, never)).toBe(true)
    expect(await upstream.mountBlob(repo, { digest, from }, never)).toBe(true)
    await upstream.deleteBlob(from, digest, never)
    expect((await blobBytes(upstream, repo, digest))?.equals(bytes)).toBe(true)
  })

  test('a blob named by SHA-512 is mounted under the returned digest; under another one only if it exists then', async () => {
    const { upstream } = running()
    const [repo, other, from] = [freshRepo(), freshRepo(), freshRepo()]
    const bytes = freshBytes(100)
    const digest = await putBlob(upstream, from, bytes, 'sha512')
    expect(await upstream.mountBlob(repo, { digest, from }, never)).toBe(true)
    expect((await blobBytes(upstream, repo, digest))?.equals(bytes)).toBe(true)
    const named = digestOf(bytes, 'sha512')
    const mounted = await upstream.mountBlob(other, { digest: named, from }, never)
    expect(await upstream.statBlob(other, named, never)).toBe(mounted ? 100 : undefined)
  })

  test('a missing blob can not be mounted', async () => {
    const { upstream } = running()
    const [repo, from, empty] = [freshRepo(), freshRepo(), freshRepo()]
    const digest = await putBlob(upstream, from, freshBytes(10))
    const missing = digestOf(Buffer.from('none'))
    expect(await upstream.mountBlob(repo, { digest: missing, from }, never)).toBe(false)
    expect(await upstream.mountBlob(repo, { digest, from: empty }, never)).toBe(false)
    expect(await upstream.statBlob(repo, digest, never)).toBeUndefined()
  })

  test('the same blob can be uploaded ten times at once', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const bytes = freshBytes(300_000)
    const digests = await Promise.all(Array.from({ length: 10 }, () => putBlob(upstream, repo, bytes)))
    expect(new Set(digests)).toEqual(new Set([digestOf(bytes)]))
    expect((await blobBytes(upstream, repo, digestOf(bytes)))?.equals(bytes)).toBe(true)
  })

  test('aborting ends a stream with the reason of the signal', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const digest = await putBlob(upstream, repo, freshBytes(20_000_000))
    const controller = new AbortController()
    const found = await upstream.readBlob(repo, { digest }, controller.signal)
    const reason = new Error('enough')
    const read = async (): Promise<void> => {
      for await (const piece of found!.body) if ((piece as Buffer).length > 0) controller.abort(reason)
    }
    await expect(read()).rejects.toBe(reason)
    expect(found?.body.destroyed).toBe(true)
  })

  test('a stream that is never read to its end blocks no later one', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const bytes = freshBytes(5_000_000)
    const digest = await putBlob(upstream, repo, bytes)
    for (let times = 0; times < 50; times++) {
      const found = await upstream.readBlob(repo, { digest }, never)
      found?.body.destroy()
    }
    expect((await blobBytes(upstream, repo, digest))?.equals(bytes)).toBe(true)
  })
}
