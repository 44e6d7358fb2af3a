import { createHash, randomBytes } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { request, type IncomingMessage } from 'node:http'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { expect, onTestFinished, test } from 'vitest'
import { largeBlobBytes as size } from '../../support/large-blob.ts'
import { startRegistry } from '../../support/parts/registry.ts'
import { makeDevHome, startDev, type DevHome } from './harness/dev-home.ts'

/** Size of a first blob, because a new process still has to allocate the memory of any stream. */
const warmUpSize = 128 * 1024 * 1024
const allowedKb = 100_000
const pieceSize = 1024 * 1024

/** Yields `length` bytes that differ between blobs, created on demand. */
function* bytesOf(seed: Buffer, length: number): Generator<Buffer> {
  for (let at = 0; at < length; at += pieceSize) {
    const piece = Buffer.alloc(Math.min(pieceSize, length - at), seed)
    piece.writeUIntBE(at / pieceSize, 0, 6)
    yield piece
  }
}

function digestOf(seed: Buffer, length: number): string {
  const hash = createHash('sha256')
  for (const piece of bytesOf(seed, length)) hash.update(piece)
  return `sha256:${hash.digest('hex')}`
}

/** Sends a request to the registry host as the demo owner. */
async function ask(home: DevHome, asked: { method: string; path: string; length?: number; body?: Readable }): Promise<IncomingMessage> {
  const token = (await readFile(join(home.cwd, '.taproot', 'registry-token'), 'utf8')).trim()
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  const headers = { authorization: `Bearer ${token}`, ...(asked.length === undefined ? {} : { 'content-length': asked.length }) }
  const sent = request({ host: '127.0.0.1', port: home.env['TAPROOT_REGISTRY_PORT'], method: asked.method, path: asked.path, headers }, resolve)
  sent.on('error', reject)
  if (asked.body === undefined) sent.end()
  else await pipeline(asked.body, sent)
  return promise
}

async function bothWays(home: DevHome, length: number): Promise<void> {
  const seed = randomBytes(64)
  const digest = digestOf(seed, length)
  const started = await ask(home, { method: 'POST', path: '/v2/demo/large/blobs/uploads/' })
  started.resume()
  expect(started.statusCode).toBe(202)
  const location = started.headers.location ?? ''
  const path = `${location}${location.includes('?') ? '&' : '?'}digest=${digest}`
  const put = await ask(home, { method: 'PUT', path, length, body: Readable.from(bytesOf(seed, length), { objectMode: false }) })
  put.resume()
  expect(put.statusCode).toBe(201)
  const got = await ask(home, { method: 'GET', path: `/v2/demo/large/blobs/${digest}` })
  expect(got.statusCode).toBe(200)
  const hash = createHash('sha256')
  for await (const piece of got) hash.update(piece as Buffer)
  expect(`sha256:${hash.digest('hex')}`).toBe(digest)
}

/** Returns the peak memory of the process in kB since the last reset. */
async function peakKb(pid: number): Promise<number> {
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1])
}

test.runIf(process.platform === 'linux').for(['disk', 'http'] as const)(
  'over the upstream %s a large blob is uploaded and downloaded in little memory',
  { timeout: 900_000 },
  async (kind) => {
    const registry = kind === 'http' ? await startRegistry() : undefined
    if (registry !== undefined) onTestFinished(() => registry.stop())
    const home = await makeDevHome(registry === undefined ? {} : { TAPROOT_REGISTRY_UPSTREAM_URL: registry.url })
    const dev = await startDev(home)
    await bothWays(home, warmUpSize)
    // Resets the peak to the current value.
    await writeFile(`/proc/${dev.pid}/clear_refs`, '5')
    const before = await peakKb(dev.pid)
    await bothWays(home, size)
    const grown = (await peakKb(dev.pid)) - before
    console.info(`${kind}: ${Math.round(grown / 1024)} MiB more for ${size / 1024 / 1024} MiB`)
    expect(grown).toBeLessThan(allowedKb)
    await dev.end('SIGTERM')
  },
)
