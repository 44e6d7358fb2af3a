import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { digestOf } from '../../src/base/digest.ts'
import { readInProcess, type ReadingJob } from '../../src/contents/reading/reading-process.ts'
import { fullTierTest } from '../support/tier.ts'
import { alive, apkFiles, layerOf, layerPurl } from './reading-repo.ts'
import { tarOf } from './tar-of.ts'

const mebibyte = 1024 * 1024
const minute = 60_000
const anyDigest = digestOf(Buffer.from('any'))

/** A stream of the piece, again and again, that counts its bytes. */
function repeated(piece: Buffer, times: number): { readonly stream: Readable; readonly read: () => number } {
  let bytes = 0
  function* pieces(): Generator<Buffer> {
    for (let at = 0; at < times; at++) {
      bytes += piece.length
      yield piece
    }
  }
  return { stream: Readable.from(pieces(), { objectMode: false, highWaterMark: mebibyte }), read: () => bytes }
}

describe('a process that reads an image and reaches a limit', { timeout: 4 * minute }, () => {
  let folder = ''
  beforeAll(async () => void (folder = await mkdtemp(join(tmpdir(), 'taproot-test-'))))
  afterAll(() => rm(folder, { recursive: true }))

  const readFrom = (job: ReadingJob, stream: Readable): Promise<unknown> =>
    readInProcess(job, { folder, streams: [() => Promise.resolve(stream)] }, alive).catch((error: unknown) => error)

  /** Reads a good layer, and looks that nothing is left. */
  async function expectUnharmed(): Promise<void> {
    const layer = layerOf(apkFiles)
    const job: ReadingJob = { kind: 'layers', layers: [{ digest: digestOf(layer), size: layer.length }] }
    expect(await readFrom(job, Readable.from([layer]))).toMatchObject({ items: [{ purl: layerPurl }] })
    expect(await readdir(folder)).toEqual([])
  }

  test('buffers outside the heap of JavaScript end it', async () => {
    const { stream, read } = repeated(Buffer.alloc(mebibyte, ' '), 4096)
    const before = process.memoryUsage().rss
    const error = await readFrom({ kind: 'report', digest: anyDigest, size: 4096 * mebibyte, digests: [] }, stream)
    expect(error).toMatchObject({ problem: 'TOO_LARGE', retry: 'few', message: 'reading the report took more memory than allowed' })
    expect(read()).toBeLessThan(4096 * mebibyte)
    expect(process.memoryUsage().rss - before).toBeLessThan(300 * mebibyte)
    await expectUnharmed()
  })

  test('a document of very many values is refused before it fills the heap', async () => {
    const document = Buffer.concat([Buffer.from('{"a":['), Buffer.alloc(60 * mebibyte, '{},'), Buffer.from('{}]}')])
    const before = process.memoryUsage().rss
    const error = await readFrom({ kind: 'report', digest: digestOf(document), size: document.length, digests: [] }, Readable.from([document]))
    expect(error).toMatchObject({ problem: 'TOO_LARGE', retry: 'never' })
    expect(process.memoryUsage().rss - before).toBeLessThan(300 * mebibyte)
    await expectUnharmed()
  })

  test('a layer that is refused early is not sent to its end', async () => {
    const [start, rest] = [tarOf([{ path: 'a' }]).subarray(0, 512), Buffer.alloc(mebibyte, 'x')]
    const { stream, read } = repeated(Buffer.concat([start, rest]), 64)
    const error = await readFrom({ kind: 'layers', layers: [{ digest: anyDigest, size: 64 * (start.length + rest.length) }] }, stream)
    expect(error).toMatchObject({ problem: 'UNREADABLE' })
    expect(read()).toBeLessThan(32 * mebibyte)
    await expectUnharmed()
  })

  fullTierTest('10,000,000 files end it at the limit of 2,000,000', async () => {
    const entries = Array.from({ length: 20_000 }, (_, at) => ({ path: `d/${at}` }))
    const part = gzipSync(tarOf(entries).subarray(0, 20_000 * 512))
    const { stream } = repeated(part, 500)
    const before = process.memoryUsage().rss
    const error = await readFrom({ kind: 'layers', layers: [{ digest: anyDigest, size: 500 * part.length }] }, stream)
    expect(error).toMatchObject({ problem: 'TOO_LARGE', retry: 'never', message: 'the layers have more than 2000000 files' })
    expect(process.memoryUsage().rss - before).toBeLessThan(300 * mebibyte)
    await expectUnharmed()
  })
})
