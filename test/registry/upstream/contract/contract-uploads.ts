import { Readable } from 'node:stream'
import { describe, expect, test } from 'vitest'
import { digestOf } from '../../../../src/base/digest.ts'
import { UpstreamError, type Upload } from '../../../../src/registry/upstream/upstream.ts'
import { blobBytes, bodyOf, failureOf, freshBytes, freshRepo, never } from '../content.ts'
import type { UpstreamUnderTest } from '../upstream-under-test.ts'

/** Uploads of the upstream port. */
export function uploadContract(running: () => UpstreamUnderTest): void {
  describe('of chunks', () => chunkContract(running))
  describe('that are interrupted', () => breakContract(running))
  describe('that end', () => endContract(running))
}

function chunkContract(running: () => UpstreamUnderTest): void {
  test.for([
    { sizes: [1000, 1, 300_000], last: 'in the last call' },
    { sizes: [1, 1, 1], last: 'in the last call' },
    { sizes: [0, 70_000, 0], last: 'in the last call' },
    { sizes: [1000, 2000, 0], last: 'before' },
  ])('accept chunks of $sizes bytes, the last one $last', async ({ sizes, last }) => {
    const { upstream } = running()
    const repo = freshRepo()
    const pieces = sizes.map((size) => freshBytes(size))
    let upload = await upstream.startUpload(repo, never)
    expect(upload.offset).toBe(0)
    expect(upload.state).toMatch(/^[ -~]{1,2048}$/)
    const whole = Buffer.concat(pieces)
    let end = 0
    for (const piece of last === 'before' ? pieces : pieces.slice(0, -1)) {
      const chunk = { body: bodyOf(piece), offset: end, length: piece.length }
      upload = await upstream.appendUpload(repo, { state: upload.state, chunk }, never)
      end += piece.length
      expect(upload.offset).toBe(end)
      expect(await upstream.uploadStatus(repo, upload.state, never)).toMatchObject({ offset: end })
    }
    const final = pieces.at(-1) ?? Buffer.alloc(0)
    const chunk = { body: bodyOf(final), offset: end, length: final.length }
    const digest = digestOf(whole)
    const result = await upstream.finishUpload(repo, { state: upload.state, digest, ...(last !== 'before' && { chunk }) }, never)
    expect(result).toEqual({ size: whole.length, digest })
    expect((await blobBytes(upstream, repo, digest))?.equals(whole)).toBe(true)
  })

  test('accept chunks without offset and length', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const pieces = [freshBytes(70_000), freshBytes(3), freshBytes(90_000)]
    let { state } = await upstream.startUpload(repo, never)
    for (const piece of pieces.slice(0, 2)) ({ state } = await upstream.appendUpload(repo, { state, chunk: { body: bodyOf(piece) } }, never))
    const digest = digestOf(Buffer.concat(pieces))
    const result = await upstream.finishUpload(repo, { state, digest, chunk: { body: bodyOf(pieces[2]!) } }, never)
    expect(result).toEqual({ size: 160_003, digest })
  })

  test.for(['sha256', 'sha512'] as const)('are continued by another process and finished under %s', async (algorithm) => {
    const { upstream, another } = running()
    const repo = freshRepo()
    const pieces = [freshBytes(100_000), freshBytes(50_000)]
    const whole = Buffer.concat(pieces)
    let upload = await upstream.startUpload(repo, never)
    upload = await upstream.appendUpload(repo, { state: upload.state, chunk: { body: bodyOf(pieces[0]!) } }, never)
    const second = await another()
    upload = await second.uploadStatus(repo, upload.state, never)
    expect(upload.offset).toBe(100_000)
    upload = await second.appendUpload(repo, { state: upload.state, chunk: { body: bodyOf(pieces[1]!), offset: 100_000, length: 50_000 } }, never)
    const third = await another()
    const { digest, size } = await third.finishUpload(repo, { state: upload.state, digest: digestOf(whole, algorithm) }, never)
    expect(size).toBe(150_000)
    expect((await blobBytes(upstream, repo, digest))?.equals(whole)).toBe(true)
  })

  test.for([0, 99, 101, 1000])('refuse a chunk that begins at %i when the upload ends at 100, and can continue', async (offset) => {
    const { upstream } = running()
    const repo = freshRepo()
    const bytes = freshBytes(200)
    let upload = await startedWith(running(), repo, bytes.subarray(0, 100))
    const body = bodyOf(freshBytes(50))
    expect(await failureOf(upstream.appendUpload(repo, { state: upload.state, chunk: { body, offset, length: 50 } }, never))).toBe('range_invalid')
    await expect.poll(() => body.destroyed).toBe(true)
    upload = await upstream.uploadStatus(repo, upload.state, never)
    expect(upload.offset).toBe(100)
    const chunk = { body: bodyOf(bytes.subarray(100)), offset: 100, length: 100 }
    expect(await upstream.finishUpload(repo, { state: upload.state, digest: digestOf(bytes), chunk }, never)).toMatchObject({ size: 200 })
  })

  test('refuse a chunk sent again with the former state', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const upload = await upstream.startUpload(repo, never)
    const chunk = () => ({ body: bodyOf(freshBytes(100)), length: 100 })
    await upstream.appendUpload(repo, { state: upload.state, chunk: chunk() }, never)
    expect(await failureOf(upstream.appendUpload(repo, { state: upload.state, chunk: chunk() }, never))).toBe('range_invalid')
    expect(await upstream.uploadStatus(repo, upload.state, never)).toMatchObject({ offset: 100 })
  })
}

function breakContract(running: () => UpstreamUnderTest): void {
  test.for([undefined, 5_000_000])('keep the bytes before an interruption, and continue there (length %s)', async (length) => {
    const { upstream } = running()
    const repo = freshRepo()
    const bytes = freshBytes(5_000_000)
    const before = await upstream.startUpload(repo, never)
    const failure = new Error('the client went away')
    const body = Readable.from(brokenAfter(bytes.subarray(0, 3_000_000), failure), { objectMode: false })
    const chunk = { body, ...(length !== undefined && { length, offset: 0 }) }
    await expect(upstream.appendUpload(repo, { state: before.state, chunk }, never)).rejects.toBe(failure)
    // A server may still write an earlier chunk: an early client is refused and asks again.
    const goOn = async (): Promise<unknown> => {
      const { state, offset } = await upstream.uploadStatus(repo, before.state, never)
      expect(offset).toBeLessThanOrEqual(3_000_000)
      const rest = { body: bodyOf(bytes.subarray(offset)), offset, length: bytes.length - offset }
      return upstream.finishUpload(repo, { state, digest: digestOf(bytes), chunk: rest }, never).catch((error: unknown) => {
        if (error instanceof UpstreamError && error.kind === 'range_invalid') return undefined
        throw error
      })
    }
    await expect.poll(goOn, { interval: 200 }).toMatchObject({ size: bytes.length })
    expect((await blobBytes(upstream, repo, digestOf(bytes)))?.equals(bytes)).toBe(true)
  })

  test('reject an aborted chunk with the reason of the signal and destroy its body', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const upload = await upstream.startUpload(repo, never)
    const controller = new AbortController()
    const reason = new Error('enough')
    const body = new Readable({ read: () => undefined })
    body.push(freshBytes(100_000))
    const call = upstream.appendUpload(repo, { state: upload.state, chunk: { body } }, controller.signal)
    setImmediate(() => controller.abort(reason))
    await expect(call).rejects.toBe(reason)
    await expect.poll(() => body.destroyed).toBe(true)
  })

  test('refuse a body that ended before the call', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const upload = await upstream.startUpload(repo, never)
    const body = new Readable({ read: () => undefined })
    const failure = new Error('gone')
    body.once('error', () => undefined)
    body.destroy(failure)
    await expect(upstream.appendUpload(repo, { state: upload.state, chunk: { body, length: 10 } }, never)).rejects.toThrow()
    expect(await upstream.uploadStatus(repo, upload.state, never)).toMatchObject({ offset: 0 })
  })
}

function endContract(running: () => UpstreamUnderTest): void {
  test('with a wrong digest show no blob, and are gone', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const bytes = freshBytes(1000)
    for (const wrong of [digestOf(Buffer.from('other')), digestOf(Buffer.from('other'), 'sha512')]) {
      const upload = await startedWith(running(), repo, bytes)
      expect(await failureOf(upstream.finishUpload(repo, { state: upload.state, digest: wrong }, never))).toBe('digest_mismatch')
      expect(await upstream.statBlob(repo, wrong, never)).toBeUndefined()
      expect(await upstream.statBlob(repo, digestOf(bytes), never)).toBeUndefined()
      expect(await failureOf(upstream.uploadStatus(repo, upload.state, never))).toBe('upload_unknown')
    }
  })

  test('are unknown after they are finished', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const bytes = freshBytes(1000)
    const upload = await startedWith(running(), repo, bytes)
    await upstream.finishUpload(repo, { state: upload.state, digest: digestOf(bytes) }, never)
    await expectUnknown(running(), repo, upload)
  })

  test('are unknown after they are cancelled; a second cancel does nothing', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const upload = await startedWith(running(), repo, freshBytes(1000))
    for (let times = 0; times < 2; times++) await upstream.cancelUpload(repo, upload.state, never)
    await expectUnknown(running(), repo, upload)
  })

  test('show nothing before they are finished', async () => {
    const { upstream } = running()
    const repo = freshRepo()
    const bytes = freshBytes(1000)
    await startedWith(running(), repo, bytes)
    expect(await upstream.statBlob(repo, digestOf(bytes), never)).toBeUndefined()
  })

  test('belong to their repo', async () => {
    const { upstream } = running()
    const [repo, other] = [freshRepo(), freshRepo()]
    const upload = await startedWith(running(), repo, freshBytes(1000))
    await expectUnknown(running(), other, upload)
    await upstream.cancelUpload(other, upload.state, never)
    expect(await upstream.uploadStatus(repo, upload.state, never)).toMatchObject({ offset: 1000 })
  })

  test.for(['', 'x', '../../x', `${'0'.repeat(32)}.0`, '{"location":"/v2/x/blobs/uploads/y","offset":0}'])('refuse an invalid state: %s', async (state) => {
    await expectUnknown(running(), freshRepo(), { state, offset: 0 })
  })
}

async function* brokenAfter(bytes: Uint8Array, failure: Error): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 65_536) yield bytes.subarray(at, at + 65_536)
  await new Promise((resolve) => setImmediate(resolve))
  throw failure
}

/** An upload with these bytes. */
async function startedWith({ upstream }: UpstreamUnderTest, repo: ReturnType<typeof freshRepo>, bytes: Uint8Array): Promise<Upload> {
  const { state } = await upstream.startUpload(repo, never)
  return upstream.appendUpload(repo, { state, chunk: { body: bodyOf(bytes), offset: 0, length: bytes.length } }, never)
}

async function expectUnknown({ upstream }: UpstreamUnderTest, repo: ReturnType<typeof freshRepo>, { state, offset }: Upload): Promise<void> {
  const chunk = { body: bodyOf(freshBytes(10)), offset, length: 10 }
  expect(await failureOf(upstream.uploadStatus(repo, state, never))).toBe('upload_unknown')
  expect(await failureOf(upstream.appendUpload(repo, { state, chunk }, never))).toBe('upload_unknown')
  expect(await failureOf(upstream.finishUpload(repo, { state, digest: digestOf(Buffer.from('x')) }, never))).toBe('upload_unknown')
}
