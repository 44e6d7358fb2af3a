/**
 * A process of its own that measures memory. `memory-child.ts disk <directory> <bytes>` or `memory-child.ts http <url> <bytes>` puts a blob of that size (in a chunk
 * of half of it, then the rest with the last call) and reads it back, then prints by how many bytes its memory grew at most, as JSON.
 */
import { createCipheriv, createHash, randomBytes } from 'node:crypto'
import { writeSync } from 'node:fs'
import { Readable } from 'node:stream'
import { digestOfHex } from '../../../src/core/digest.ts'
import { createDiskUpstream } from '../../../src/registry/upstream/disk/disk-upstream.ts'
import { createHttpUpstream } from '../../../src/registry/upstream/http/http-upstream.ts'
import { freshRepo, never } from './content.ts'

const pieceBytes = 64 * 1024
const [kind = '', place = '', size = ''] = process.argv.slice(2)
const pieces = Math.floor(Number(size) / pieceBytes / 2)
const upstream =
  kind === 'disk'
    ? await createDiskUpstream({ directory: place, clock: Date, random: { bytes: randomBytes } })
    : createHttpUpstream({ url: place, clock: Date })

/** Bytes that do not repeat, the same each time. */
function keystream(): () => Buffer {
  const cipher = createCipheriv('aes-128-ctr', Buffer.alloc(16), Buffer.alloc(16))
  const zeros = Buffer.alloc(pieceBytes)
  return () => cipher.update(zeros)
}

function half(next: () => Buffer): Readable {
  let left = pieces
  return new Readable({
    read() {
      this.push(left-- > 0 ? next() : null)
    },
  })
}

const before = process.memoryUsage.rss()
let peak = before
const sampler = setInterval(() => (peak = Math.max(peak, process.memoryUsage.rss())), 10)
const [hash, hashed] = [createHash('sha256'), keystream()]
for (let index = 0; index < 2 * pieces; index++) hash.update(hashed())
const digest = digestOfHex('sha256', hash.digest('hex'))

const [repo, next] = [freshRepo(), keystream()]
const length = pieces * pieceBytes
let { state } = await upstream.startUpload(repo, never)
;({ state } = await upstream.appendUpload(repo, { state, chunk: { body: half(next) } }, never))
const put = await upstream.finishUpload(repo, { state, digest, chunk: { body: half(next), length, offset: length } }, never)
const found = await upstream.readBlob(repo, { digest }, never)
const back = createHash('sha256')
for await (const piece of found!.body) back.update(piece as Buffer) // a cast: a stream of bytes
clearInterval(sampler)
await upstream.close()
writeSync(1, JSON.stringify({ size: put.size, same: digestOfHex('sha256', back.digest('hex')) === digest, grownBytes: peak - before }))
