import { spawn } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, stat, statfs, truncate, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { algorithmOf, digestOf, hexOf, type Digest } from '../../../src/base/digest.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { createDiskUpstream, type DiskUpstream, type StoredContent } from '../../../src/registry/upstream/disk/disk-upstream.ts'
import { UpstreamError } from '../../../src/registry/upstream/upstream.ts'
import { smallFileSystem } from '../../support/parts/small-file-system.ts'
import { blobBytes, bodyOf, drain, failureOf, freshBytes, freshRepo, manifestOf, never, putBlob } from './content.ts'
import { campaignLength } from '../../soak/factor.ts'

/** Kills, over all lanes. */
const kills = campaignLength({ short: 20, full: 100 })
const lanes = 4

const hour = 3_600_000

const open = (directory: string, now = Date.now): Promise<DiskUpstream> => createDiskUpstream({ directory, clock: { now }, random: { bytes: randomBytes } })

async function newDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-upstream-'))
  onTestFinished(() => rm(directory, { recursive: true, force: true }))
  return directory
}

test(`after ${kills} kill -9 during uploads all acknowledged blobs are visible, and only complete ones`, async () => {
  const seen = await Promise.all(
    Array.from({ length: lanes }, async () => {
      const directory = await newDirectory()
      let acknowledged = 0
      for (let times = 0; times < kills / lanes; times++) acknowledged += await killOnce(directory)
      return acknowledged
    }),
  )
  expect(seen.reduce((sum, each) => sum + each)).toBeGreaterThan(kills)
})

/** Runs a process until its kill, and checks its data; resolves with the number of its acknowledged writes. */
async function killOnce(directory: string): Promise<number> {
  const root = randomBytes(20).toString('hex')
  const script = join(import.meta.dirname, 'disk-child.ts')
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', script, directory, root], { stdio: ['ignore', 'pipe', 'inherit'] })
  let said = ''
  child.stdout.on('data', (chunk) => (said += String(chunk)))
  const lines = randomInt(1, 12)
  while (said.split('\n').length <= lines && child.exitCode === null) await once(child.stdout, 'data')
  // A random moment is enough.
  await delay(randomInt(0, 20))
  child.kill('SIGKILL')
  await once(child, 'close')

  const upstream = await open(directory)
  const left = new Set<string>()
  for await (const { repo, kind, digest } of upstream.stored()) {
    left.add(`${kind} ${repo} ${digest}`)
    if (!repo.startsWith(root)) continue
    const bytes = kind === 'blob' ? await blobBytes(upstream, repo, digest) : (await upstream.getManifest(repo, digest, never))?.bytes
    expect(bytes && digestOf(bytes, algorithmOf(digest))).toBe(digest)
  }
  const acknowledged = said.split('\n').filter((line) => /^(blob|manifest) \S+ \S+$/.test(line))
  // The last line may be cut off.
  for (const line of said.endsWith('\n') ? acknowledged : acknowledged.slice(0, -1)) expect(left).toContain(line)
  await upstream.collectUploads(0, never)
  for (const folder of ['uploads', 'temporary']) expect(await readdir(join(directory, folder))).toEqual([])
  return acknowledged.length
}

test("a full disk is `exhausted`: the chunk's space is released, and the upload continues before it once there is room", async () => {
  const disk = await smallFileSystem(8 * 1024 * 1024)
  const upstream = await open(disk.directory)
  const repo = freshRepo()
  const bytes = freshBytes(5_000_000)
  const started = await upstream.startUpload(repo, never)
  const begun = { body: bodyOf(bytes.subarray(0, 1000)), offset: 0 }
  const { state } = await upstream.appendUpload(repo, { state: started.state, chunk: begun }, never)
  await disk.fill(4 * 1024 * 1024)
  const { bavail: roomBefore } = await statfs(disk.directory)
  for (const send of ['append', 'finish'] as const) {
    const body = bodyOf(...pieces(bytes.subarray(1000)))
    const chunk = { body, offset: 1000 }
    const sent =
      send === 'append' ? upstream.appendUpload(repo, { state, chunk }, never) : upstream.finishUpload(repo, { state, digest: digestOf(bytes), chunk }, never)
    expect(await failureOf(sent)).toBe('exhausted')
    expect(body.destroyed).toBe(true)
    expect((await statfs(disk.directory)).bavail).toBe(roomBefore)
  }
  const upload = await upstream.uploadStatus(repo, state, never)
  expect(upload.offset).toBe(1000)
  expect(await failureOf(upstream.putManifest(repo, manifestOf({ mediaType: 'x', long: 'x'.repeat(5_000_000) }), never))).toBe('exhausted')
  await disk.makeRoom()
  const rest = { body: bodyOf(bytes.subarray(upload.offset)), offset: upload.offset }
  const digest = digestOf(bytes)
  expect(await upstream.finishUpload(repo, { state: upload.state, digest, chunk: rest }, never)).toEqual({ size: bytes.length, digest })
  expect((await blobBytes(upstream, repo, digest))?.equals(bytes)).toBe(true)
})

function pieces(bytes: Uint8Array): Uint8Array[] {
  return Array.from({ length: Math.ceil(bytes.length / 65_536) }, (_, index) => bytes.subarray(index * 65_536, (index + 1) * 65_536))
}

test('concurrent chunks of one upload are handled one after the other: one fits, the others do not', async () => {
  const upstream = await open(await newDirectory())
  const repo = freshRepo()
  const { state } = await upstream.startUpload(repo, never)
  const calls = Array.from({ length: 8 }, () =>
    failureOf(upstream.appendUpload(repo, { state, chunk: { body: bodyOf(...pieces(freshBytes(500_000))) } }, never)),
  )
  const outcomes = await Promise.all(calls)
  expect(outcomes.filter((each) => each === 'no failure')).toHaveLength(1)
  expect(outcomes.filter((each) => each === 'range_invalid')).toHaveLength(7)
  expect(await upstream.uploadStatus(repo, state, never)).toMatchObject({ offset: 500_000 })
})

test('ending one upload twice at once: one call ends it, the other finds no upload', async () => {
  const upstream = await open(await newDirectory())
  const repo = freshRepo()
  const bytes = freshBytes(100_000)
  const { state: started } = await upstream.startUpload(repo, never)
  const { state } = await upstream.appendUpload(repo, { state: started, chunk: { body: bodyOf(bytes) } }, never)
  const outcomes = await Promise.all([1, 2].map(() => failureOf(upstream.finishUpload(repo, { state, digest: digestOf(bytes) }, never))))
  expect(outcomes.sort()).toEqual(['no failure', 'upload_unknown'])
})

test('a slow chunk delays no reader that has enough bytes', async () => {
  const upstream = await open(await newDirectory())
  const repo = freshRepo()
  const { state } = await upstream.startUpload(repo, never)
  const first = new AbortController()
  const waiting = upstream.appendUpload(repo, { state, chunk: { body: new Readable({ read: () => undefined }) } }, first.signal)
  const reason = new Error('enough')
  const second = new AbortController()
  const behind = upstream.cancelUpload(repo, state, second.signal)
  second.abort(reason)
  await expect(behind).rejects.toBe(reason)
  first.abort(reason)
  await expect(waiting).rejects.toBe(reason)
  await upstream.cancelUpload(repo, state, never)
  expect(await failureOf(upstream.uploadStatus(repo, state, never))).toBe('upload_unknown')
})

test('abandoned uploads are removed, others are not', async () => {
  const directory = await newDirectory()
  let now = Date.now()
  const upstream = await open(directory, () => now)
  const repo = freshRepo()
  const [old, young] = [await upstream.startUpload(repo, never), await upstream.startUpload(repo, never)]
  await writeFile(join(directory, 'temporary', 'leftover'), 'x')
  now += hour
  const longer = await upstream.appendUpload(repo, { state: young.state, chunk: { body: bodyOf(freshBytes(10)) } }, never)
  expect(await upstream.collectUploads(hour / 2, never)).toBe(1)
  expect(await failureOf(upstream.uploadStatus(repo, old.state, never))).toBe('upload_unknown')
  expect(await upstream.uploadStatus(repo, young.state, never)).toEqual(longer)
  expect(await readdir(join(directory, 'temporary'))).toEqual([])
})

test('a file being written counts as new, whatever its time on the disk', async () => {
  // Ahead of the file system's time by more than the life of an idle upload.
  const now = Date.now() + 72 * hour
  const upstream = await open(await newDirectory(), () => now)
  const repo = freshRepo()
  const started = await upstream.startUpload(repo, never)
  const longer = await upstream.appendUpload(repo, { state: (await upstream.startUpload(repo, never)).state, chunk: { body: bodyOf(freshBytes(10)) } }, never)
  const brokenBody = (): Readable =>
    Readable.from(
      (function* () {
        yield freshBytes(10)
        throw new Error('gone')
      })(),
    )
  const [cut, cutAtTheEnd] = [await upstream.startUpload(repo, never), await upstream.startUpload(repo, never)]
  await expect(upstream.appendUpload(repo, { state: cut.state, chunk: { body: brokenBody() } }, never)).rejects.toThrow('gone')
  const end = { state: cutAtTheEnd.state, digest: digestOf(freshBytes(20)), chunk: { body: brokenBody() } }
  await expect(upstream.finishUpload(repo, end, never)).rejects.toThrow('gone')
  expect(await upstream.collectUploads(hour, never)).toBe(0)
  for (const { state } of [started, longer]) expect(await failureOf(upstream.uploadStatus(repo, state, never))).toBe('no failure')
  for (const { state } of [cut, cutAtTheEnd]) expect(await upstream.uploadStatus(repo, state, never)).toMatchObject({ offset: 10 })

  let isWriting = true
  const collecting = (async () => {
    while (isWriting) await upstream.collectUploads(hour, never)
  })()
  const manifests = Array.from({ length: 200 }, (_, n) =>
    manifestOf({ mediaType: 'application/vnd.oci.image.manifest.v1+json', annotations: { n: String(n) } }),
  )
  const outcomes = await Promise.all(manifests.map((each) => failureOf(upstream.putManifest(repo, each, never))))
  isWriting = false
  await collecting
  expect(new Set(outcomes)).toEqual(new Set(['no failure']))
})

test('an upload that continues during its collection is either complete or gone', async () => {
  let now = Date.now()
  const upstream = await open(await newDirectory(), () => now)
  const repo = freshRepo()
  const uploads = await Promise.all(Array.from({ length: 400 }, () => upstream.startUpload(repo, never)))
  now += hour
  const collecting = upstream.collectUploads(hour / 2, never)
  const outcomes = new Set<string>()
  await Promise.all(
    Array.from({ length: 4 }, async () => {
      for (let next = uploads.pop(); next !== undefined; next = uploads.pop()) {
        const { state } = next
        const added = await failureOf(upstream.appendUpload(repo, { state, chunk: { body: bodyOf(freshBytes(10)) } }, never))
        outcomes.add(`${added}, ${await failureOf(upstream.uploadStatus(repo, state, never))}`)
      }
    }),
  )
  await collecting
  expect(outcomes).toEqual(new Set(['no failure, no failure', 'upload_unknown, upload_unknown']))
})

test('the upstream lists what it stores: manifests and blobs of every repo, also of nested ones; a mount counts as new', async () => {
  const directory = await newDirectory()
  const upstream = await open(directory)
  const repo = freshRepo()
  const inner = trustedUid(`${repo}/${'a'.repeat(16)}`)
  const startedAt = Date.now()
  const blob = await putBlob(upstream, repo, freshBytes(10))
  const long = await putBlob(upstream, inner, freshBytes(10), 'sha512')
  const manifest = manifestOf({ mediaType: 'application/vnd.oci.image.manifest.v1+json' })
  await upstream.putManifest(inner, manifest, never)
  const file = join(directory, 'repos', repo, 'blobs', 'sha256', hexOf(blob))
  await utimes(file, 1, 1)
  await upstream.mountBlob(inner, { digest: blob, from: repo }, never)
  await upstream.startUpload(repo, never)
  const found: StoredContent[] = []
  for await (const each of upstream.stored()) found.push(each)
  const expected = [
    { repo, kind: 'blob', digest: blob },
    { repo: inner, kind: 'blob', digest: blob },
    { repo: inner, kind: 'blob', digest: long },
    { repo: inner, kind: 'manifest', digest: manifest.digest },
  ]
  expect(found).toHaveLength(expected.length)
  for (const each of expected) expect(found).toContainEqual({ ...each, modifiedMs: expect.any(Number) as number })
  for (const { modifiedMs } of found) expect(modifiedMs).toBeGreaterThan(startedAt - 1000)
})

test('a mount shares the bytes: a link, not a copy', async () => {
  const directory = await newDirectory()
  const upstream = await open(directory)
  const [repo, from] = [freshRepo(), freshRepo()]
  const digest = await putBlob(upstream, from, freshBytes(1000))
  await upstream.mountBlob(repo, { digest, from }, never)
  const inodes = await Promise.all([repo, from].map(async (uid) => (await stat(join(directory, 'repos', uid, 'blobs', 'sha256', hexOf(digest)))).ino))
  expect(inodes[0]).toBe(inodes[1])
})

test('uids and digests of another form are never used as a path', async () => {
  const upstream = await open(await newDirectory())
  const repo = freshRepo()
  for (const uid of ['..', '../..', `${repo}/..`, '/etc', '', `${repo}/../../x`]) {
    await expect(upstream.statBlob(trustedUid(uid), digestOf(Buffer.from('x')), never)).rejects.toThrow(TypeError)
    await expect(upstream.startUpload(trustedUid(uid), never)).rejects.toThrow(TypeError)
  }
  for (const digest of ['sha256:../../../../etc/passwd', 'sha256:', 'md5:00', `sha256:${'A'.repeat(64)}`]) {
    await expect(upstream.readBlob(repo, { digest: digest as Digest }, never)).rejects.toThrow(TypeError)
    await expect(upstream.deleteManifest(repo, digest as Digest, never)).rejects.toThrow(TypeError)
  }
})

test('files that lost bytes are detected', async () => {
  const directory = await newDirectory()
  const upstream = await open(directory)
  const repo = freshRepo()
  const manifest = manifestOf({ mediaType: 'application/vnd.oci.image.manifest.v1+json' })
  await upstream.putManifest(repo, manifest, never)
  const file = join(directory, 'repos', repo, 'manifests', 'sha256', hexOf(manifest.digest))
  expect((await readFile(file)).toString()).toBe(`${manifest.mediaType}\n${Buffer.from(manifest.bytes).toString()}`)
  await truncate(file, 60)
  expect(await failureOf(upstream.getManifest(repo, manifest.digest, never))).toBe('corrupt')

  const digest = await putBlob(upstream, repo, freshBytes(5_000_000))
  const found = await upstream.readBlob(repo, { digest }, never)
  await truncate(join(directory, 'repos', repo, 'blobs', 'sha256', hexOf(digest)), 100_000)
  await expect(drain(found!.body)).rejects.toThrow(UpstreamError)
})

test('a chunk with another length than announced is refused', async () => {
  const upstream = await open(await newDirectory())
  const repo = freshRepo()
  const { state } = await upstream.startUpload(repo, never)
  expect(await failureOf(upstream.appendUpload(repo, { state, chunk: { body: bodyOf(freshBytes(10)), length: 11 } }, never))).toBe('refused')
  expect(await upstream.uploadStatus(repo, state, never)).toMatchObject({ offset: 10 })
})
