import { createHash, type Hash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { open, readdir, rm, stat, type FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { algorithmOf, digestOfHex, type Digest, type DigestAlgorithm } from '../../../base/digest.ts'
import { RecentMap } from '../../../base/recent-map.ts'
import { randomHex, type Clock, type Random } from '../../../base/runtime.ts'
import type { Uid } from '../../../base/uid.ts'
import { untilAborted } from '../../../base/timing.ts'
import { piecesOf } from '../chunk-body.ts'
import { diskError, ifThere, removeOlder } from './disk-files.ts'
import type { DiskLayout } from './disk-layout.ts'
import type { DurableDirectories } from './durable-directories.ts'
import { PieceWriter } from './piece-writer.ts'
import { UpstreamError, type Chunk, type Upload } from '../upstream.ts'

/** Runs one task at a time for each key, in the order of the calls. */
class KeyedLock {
  readonly #last = new Map<string, Promise<void>>()

  /** Returns true if a task for the key runs or waits. */
  holds(key: string): boolean {
    return this.#last.has(key)
  }

  /** Runs `work` once no earlier task for the key runs or waits. Rejects with the signal's reason if it is aborted before. */
  async run<T>(key: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    signal.throwIfAborted()
    const before = this.#last.get(key)
    const mine = Promise.withResolvers<void>()
    const chained = before === undefined ? mine.promise : before.then(() => mine.promise)
    this.#last.set(key, chained)
    void chained.then(() => {
      if (this.#last.get(key) === chained) this.#last.delete(key)
    })
    try {
      if (before !== undefined) await untilAborted(before, signal)
      return await work()
    } finally {
      mine.resolve()
    }
  }
}

/** Maximum number of idle uploads whose hash state is kept. Files of others are read again when they are finished. */
const maxHashes = 1000

/** Hash state of the first `bytes` bytes of an upload. */
interface RunningHash {
  readonly hash: Hash
  readonly algorithm: DigestAlgorithm
  bytes: number
}

/** The file of an upload in progress. `state` is `<id>.<offset>`: the offset distinguishes an outdated state from the newest. */
interface UploadFile {
  readonly id: string
  readonly file: string
  readonly offset: number
}

/** The uploads of an embedded upstream. Each has a file, which becomes the blob when the upload is finished. */
export class DiskUploads {
  readonly #layout: DiskLayout
  readonly #directories: DurableDirectories
  readonly #clock: Clock
  readonly #random: Random
  readonly #lock = new KeyedLock()
  readonly #hashes = new RecentMap<string, RunningHash>(maxHashes)

  constructor({ layout, directories }: { layout: DiskLayout; directories: DurableDirectories }, { clock, random }: { clock: Clock; random: Random }) {
    this.#layout = layout
    this.#directories = directories
    this.#clock = clock
    this.#random = random
  }

  start(repo: Uid, signal: AbortSignal): Promise<Upload> {
    const id = randomHex(this.#random, 16)
    const { file } = this.#place(repo, `${id}.0`)
    return this.#lock.run(id, signal, async () => {
      const handle = await open(file, 'wx', 0o600)
      await this.#used(handle)
      await handle.close()
      return uploadAt(id, 0)
    })
  }

  async status(repo: Uid, state: string): Promise<Upload> {
    const { id, file } = this.#place(repo, state)
    return uploadAt(id, await sizeOf(file))
  }

  append(repo: Uid, state: string, source: { chunk: Chunk; signal: AbortSignal }): Promise<Upload> {
    const place = this.#place(repo, state)
    return this.#lock.run(place.id, source.signal, async () => {
      const handle = await this.#open(place, source.chunk)
      try {
        return uploadAt(place.id, await roomBack(handle, place, () => this.#write(handle, place, { ...source, algorithm: 'sha256' })))
      } finally {
        await handle.close()
      }
    })
  }

  finish(repo: Uid, state: string, source: { digest: Digest; chunk?: Chunk; signal: AbortSignal }): Promise<{ size: number; digest: Digest }> {
    const place = this.#place(repo, state)
    const { digest, chunk, signal } = source
    const algorithm = algorithmOf(digest)
    return this.#lock.run(place.id, signal, async () => {
      const handle = await this.#open(place, chunk)
      try {
        const size = chunk === undefined ? place.offset : await roomBack(handle, place, () => this.#write(handle, place, { chunk, signal, algorithm }))
        if ((await this.#digest(place, { algorithm, size, signal })) !== digest) throw new UpstreamError('digest_mismatch', 'the bytes do not match the digest')
        await roomBack(handle, place, () => handle.sync())
        await this.#directories.moveInto(place.file, this.#layout.stored(repo, 'blob', digest))
        this.#hashes.delete(place.id)
        return { size, digest }
      } catch (error) {
        // An upload with the wrong digest cannot be used any more.
        if (error instanceof UpstreamError && error.kind === 'digest_mismatch') await this.#remove(place)
        throw error
      } finally {
        await handle.close()
      }
    })
  }

  cancel(repo: Uid, state: string, signal: AbortSignal): Promise<void> {
    const place = this.#place(repo, state)
    return this.#lock.run(place.id, signal, () => this.#remove(place))
  }

  /** Removes uploads that got no bytes for `olderThanMs` milliseconds, except those that are in use. Resolves with the number removed. */
  async collect(olderThanMs: number, signal: AbortSignal): Promise<number> {
    let removed = 0
    for (const name of await readdir(this.#layout.uploads)) {
      const [id = ''] = name.split('.')
      const file = join(this.#layout.uploads, name)
      // A request that continues this upload now waits for the lock. Then it either finds the file or not, but never appends to a removed
      // file.
      const isRemoved = !this.#lock.holds(id) && (await this.#lock.run(id, signal, () => removeOlder(file, this.#clock.now() - olderThanMs)))
      if (!isRemoved) continue
      this.#hashes.delete(id)
      removed += 1
    }
    return removed
  }

  /**
   * Sets the file's time, by which it is collected, from this process's clock, since the clock of a network disk may differ. If that
   * fails, the disk's time stays.
   */
  async #used(handle: FileHandle): Promise<void> {
    const now = new Date(this.#clock.now())
    await handle.utimes(now, now).catch(() => undefined)
  }

  #place(repo: Uid, state: string): UploadFile {
    const [id = '', offset = ''] = state.split('.')
    const file = this.#layout.upload(repo, id)
    if (file === undefined || !/^\d{1,15}$/.test(offset)) throw unknownUpload()
    return { id, file, offset: Number(offset) }
  }

  /** Opens the upload's file. Throws if it does not end at the offset in the state and the chunk. */
  async #open(place: UploadFile, chunk: Chunk | undefined): Promise<FileHandle> {
    const handle = await ifThere(open(place.file, 'r+'))
    if (handle === undefined) throw unknownUpload()
    try {
      const { size } = await handle.stat()
      if (size !== place.offset || (chunk?.offset ?? size) !== size) throw new UpstreamError('range_invalid', `the upload ends at ${size}`)
      return handle
    } catch (error) {
      await handle.close()
      throw error
    }
  }

  /** Appends a body. Resolves with the new size. Hashes each piece while earlier ones are being written. */
  async #write(handle: FileHandle, place: UploadFile, source: { chunk: Chunk; signal: AbortSignal; algorithm: DigestAlgorithm }): Promise<number> {
    const { chunk, signal } = source
    const running = this.#running(place, source.algorithm)
    let size = place.offset
    const writer = new PieceWriter(handle, size)
    try {
      for await (const piece of piecesOf(chunk.body, signal)) {
        running?.hash.update(piece)
        size += piece.length
        await writer.add(piece)
      }
    } finally {
      await writer.end().finally(() => this.#used(handle))
    }
    if (chunk.length !== undefined && size - place.offset !== chunk.length) throw new UpstreamError('refused', 'the chunk does not have the announced length')
    if (running !== undefined) this.#hashes.set(place.id, { ...running, bytes: size })
    return size
  }

  /** Removes and returns the hash state, if it is up to date. It is stored again only when all bytes are hashed. */
  #running(place: UploadFile, algorithm: DigestAlgorithm): RunningHash | undefined {
    const kept = this.#hashes.get(place.id)
    this.#hashes.delete(place.id)
    if (place.offset === 0) return { hash: createHash(algorithm), algorithm, bytes: 0 }
    return kept?.bytes === place.offset && kept.algorithm === algorithm ? kept : undefined
  }

  async #digest(place: UploadFile, whole: { algorithm: DigestAlgorithm; size: number; signal: AbortSignal }): Promise<Digest> {
    const kept = this.#hashes.get(place.id)
    if (kept?.bytes === whole.size && kept.algorithm === whole.algorithm) return digestOfHex(kept.algorithm, kept.hash.copy().digest('hex'))
    const hash = createHash(whole.algorithm)
    for await (const piece of createReadStream(place.file, { highWaterMark: 1024 * 1024, signal: whole.signal })) hash.update(piece as Uint8Array) // a cast: no encoding is set
    return digestOfHex(whole.algorithm, hash.digest('hex'))
  }

  async #remove(place: UploadFile): Promise<void> {
    this.#hashes.delete(place.id)
    await rm(place.file, { force: true })
  }
}

function uploadAt(id: string, offset: number): Upload {
  return { state: `${id}.${offset}`, offset }
}

function unknownUpload(): UpstreamError {
  return new UpstreamError('upload_unknown', 'there is no such upload')
}

/**
 * Runs work on an upload's file. If the disk is full, truncates the file to its size before. Otherwise, abandoned partial uploads would
 * block other uploads.
 */
async function roomBack<T>(handle: FileHandle, { offset }: UploadFile, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    // If truncating fails too, the upload is removed by a later collection.
    if (diskError(error).kind === 'exhausted') await handle.truncate(offset).catch(() => undefined)
    throw error
  }
}

async function sizeOf(file: string): Promise<number> {
  const found = await ifThere(stat(file))
  if (found === undefined) throw unknownUpload()
  return found.size
}
