/**
 * A process of its own that measures memory. `memory-child.ts disk <directory> <bytes>` or `memory-child.ts http <url> <bytes>` puts a blob of that size and reads it
 * back, then prints by how many bytes its memory grew meanwhile, as JSON.
 */
import { createHash, randomBytes } from 'node:crypto'
import { writeSync } from 'node:fs'
import { Readable } from 'node:stream'
import { digestOfHex } from '../../../src/base/digest.ts'
import { createDiskUpstream } from '../../../src/registry/upstream/disk/disk-upstream.ts'
import { createHttpUpstream } from '../../../src/registry/upstream/http/http-upstream.ts'
import { freshRepo, never } from './content.ts'

const pieceBytes = 64 * 1024
const [kind = '', place = '', size = ''] = process.argv.slice(2)
const upstream =
  kind === 'disk'
    ? await createDiskUpstream({ directory: place, clock: Date, random: { bytes: randomBytes } })
    : createHttpUpstream({ url: place, clock: Date })

/** Prepared pieces, so that the garbage of the test is not measured. */
const stock = Array.from({ length: 61 }, () => randomBytes(pieceBytes))

function pieceSource(): () => Buffer {
  let index = 0
  return () => stock[index++ % stock.length] ?? Buffer.alloc(0)
}

function bodyOfPieces(count: number, next: () => Buffer): Readable {
  let left = count
  return new Readable({
    read() {
      this.push(left-- > 0 ? next() : null)
    },
  })
}

/** Puts a blob (half of it in a chunk, the rest with the last call) and reads it back. Resolves with its size, or undefined if the bytes differ. */
async function roundTrip(pieces: number): Promise<number | undefined> {
  const [hash, hashed] = [createHash('sha256'), pieceSource()]
  for (let index = 0; index < 2 * pieces; index++) hash.update(hashed())
  const digest = digestOfHex('sha256', hash.digest('hex'))
  const [repo, next, length] = [freshRepo(), pieceSource(), pieces * pieceBytes]
  let { state } = await upstream.startUpload(repo, never)
  ;({ state } = await upstream.appendUpload(repo, { state, chunk: { body: bodyOfPieces(pieces, next) } }, never))
  const put = await upstream.finishUpload(repo, { state, digest, chunk: { body: bodyOfPieces(pieces, next), length, offset: length } }, never)
  const found = await upstream.readBlob(repo, { digest }, never)
  const back = createHash('sha256')
  for await (const piece of found!.body) back.update(piece as Buffer) // a cast: a stream of bytes
  return digestOfHex('sha256', back.digest('hex')) === digest ? put.size : undefined
}

// V8 keeps some 90 MB of garbage buffers before it collects them, even for a small program. Each look collects them first, so they do not count.
const collecting = setInterval(() => void globalThis.gc?.(), 50)
await roundTrip(1024)
const before = process.memoryUsage.rss()
let peak = before
const sampler = setInterval(() => (peak = Math.max(peak, process.memoryUsage.rss())), 10)
const came = await roundTrip(Math.floor(Number(size) / pieceBytes / 2))
clearInterval(sampler)
clearInterval(collecting)
await upstream.close()
writeSync(1, JSON.stringify({ size: came, grownBytes: peak - before }))
