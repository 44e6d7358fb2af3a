import { constants } from 'node:fs'
import { access, link, open, opendir, readFile, rm, stat, utimes, type FileHandle } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { algorithmOf, digestOf, digestOfHex, isDigest, type Digest } from '../../../base/digest.ts'
import { randomHex, type Clock, type Random } from '../../../base/runtime.ts'
import { isUid, trustedUid, type Uid } from '../../../base/uid.ts'
import { BodyError, consuming } from '../chunk-body.ts'
import { PassedBody } from '../passed-body.ts'
import { UpstreamError, type BlobStream, type ByteRange, type ManifestBytes, type Upstream } from '../upstream.ts'
import { codeOf, diskError, ifThere, makeDirectory, removeOlder, writeFlushed } from './disk-files.ts'
import { DiskLayout, foldersOf, type StoredKind } from './disk-layout.ts'
import { DiskUploads } from './disk-uploads.ts'
import { DurableDirectories } from './durable-directories.ts'

const readSize = 256 * 1024
const newline = 0x0a

/** Content of a repository in the embedded upstream. */
export interface StoredContent {
  readonly repo: Uid
  readonly kind: StoredKind
  readonly digest: Digest
  /** When it was stored last, in milliseconds since 1970. Later if the directory was copied. */
  readonly modifiedMs: number
}

/** The embedded upstream: the port, and further methods for garbage collection. */
export interface DiskUpstream extends Upstream {
  /** Lists everything that is stored, in no order. It may include or omit content that is added or removed meanwhile. */
  stored(): AsyncIterable<StoredContent>
  /**
   * Removes uploads that got no bytes for `olderThanMs` milliseconds, and temporary files of killed processes. Resolves with the number of
   * uploads removed.
   */
  collectUploads(olderThanMs: number, signal: AbortSignal): Promise<number>
}

/** Options of an embedded upstream. */
export interface DiskUpstreamOptions {
  /** Created if missing. Only one process may use it at a time. */
  readonly directory: string
  readonly clock: Clock
  readonly random: Random
}

/**
 * Creates an upstream that keeps bytes in files below a directory, each under its digest. A file exists complete or not at all, even after
 * kill -9 or loss of power. A mount creates a hard link. A manifest's file begins with a line with its media type.
 */
export async function createDiskUpstream(options: DiskUpstreamOptions): Promise<DiskUpstream> {
  const layout = new DiskLayout(options.directory)
  for (const directory of [layout.repos, layout.uploads, layout.temporary]) await makeDirectory(directory).catch(rethrow)
  return new FileUpstream(layout, options)
}

class FileUpstream implements DiskUpstream {
  readonly #layout: DiskLayout
  readonly #directories: DurableDirectories
  readonly #clock: Clock
  readonly #random: Random
  readonly #uploads: DiskUploads
  /** Paths of temporary files that are being written. */
  readonly #writing = new Set<string>()

  constructor(layout: DiskLayout, { clock, random }: DiskUpstreamOptions) {
    this.#layout = layout
    this.#directories = new DurableDirectories(layout.root)
    this.#clock = clock
    this.#random = random
    this.#uploads = new DiskUploads({ layout, directories: this.#directories }, { clock, random })
  }

  async ready(signal: AbortSignal): Promise<void> {
    await guarded(signal, () => access(this.#layout.uploads, constants.W_OK))
  }

  async getManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<ManifestBytes | undefined> {
    const file = await guarded(signal, () => ifThere(readFile(this.#layout.stored(repo, 'manifest', digest))))
    if (file === undefined) return undefined
    const end = file.indexOf(newline)
    const bytes = file.subarray(end + 1)
    if (digestOf(bytes, algorithmOf(digest)) !== digest) throw new UpstreamError('corrupt', 'the bytes of a manifest have changed on the disk')
    return { digest, mediaType: file.toString('latin1', 0, end), bytes }
  }

  async hasManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<boolean> {
    return (await guarded(signal, () => ifThere(stat(this.#layout.stored(repo, 'manifest', digest))))) !== undefined
  }

  async putManifest(repo: Uid, manifest: ManifestBytes, signal: AbortSignal): Promise<void> {
    const { digest, mediaType, bytes } = manifest
    if (digestOf(bytes, algorithmOf(digest)) !== digest) throw new UpstreamError('digest_mismatch', 'the bytes do not match the digest')
    if (mediaType.includes('\n')) throw new UpstreamError('refused', 'a media type must be one line')
    const path = this.#layout.stored(repo, 'manifest', digest)
    const name = randomHex(this.#random, 16)
    const temporary = join(this.#layout.temporary, name)
    this.#writing.add(name)
    try {
      await guarded(signal, async () => {
        await writeFlushed(temporary, [Buffer.from(`${mediaType}\n`, 'latin1'), bytes])
        await this.#directories.moveInto(temporary, path).catch(async (error: unknown) => {
          await rm(temporary, { force: true })
          throw error
        })
      })
    } finally {
      this.#writing.delete(name)
    }
  }

  async deleteManifest(repo: Uid, digest: Digest, signal: AbortSignal): Promise<void> {
    await guarded(signal, () => rm(this.#layout.stored(repo, 'manifest', digest), { force: true }))
  }

  async statBlob(repo: Uid, digest: Digest, signal: AbortSignal): Promise<number | undefined> {
    return (await guarded(signal, () => ifThere(stat(this.#layout.stored(repo, 'blob', digest)))))?.size
  }

  async readBlob(repo: Uid, source: { digest: Digest; range?: ByteRange }, signal: AbortSignal): Promise<BlobStream | undefined> {
    return guarded(signal, async () => {
      const handle = await ifThere(open(this.#layout.stored(repo, 'blob', source.digest), 'r'))
      if (handle === undefined) return undefined
      const size = await sizeOrClosed(handle)
      const { first, last } = source.range ?? { first: 0, last: size - 1 }
      // A file stream does not accept an end before the start.
      const stream = handle.createReadStream({ start: first, end: Math.max(first, last), highWaterMark: readSize })
      return { size, body: new PassedBody(stream, { bytes: last - first + 1, translate: diskError, signal }) }
    })
  }

  locateBlob(): Promise<undefined> {
    return Promise.resolve(undefined)
  }

  async deleteBlob(repo: Uid, digest: Digest, signal: AbortSignal): Promise<void> {
    await guarded(signal, () => rm(this.#layout.stored(repo, 'blob', digest), { force: true }))
  }

  async mountBlob(repo: Uid, source: { digest: Digest; from: Uid }, signal: AbortSignal): Promise<boolean> {
    const path = this.#layout.stored(repo, 'blob', source.digest)
    return guarded(signal, async () => {
      const from = this.#layout.stored(source.from, 'blob', source.digest)
      if ((await ifThere(stat(from))) === undefined) return false
      await this.#directories.make(dirname(path))
      try {
        await link(from, path)
      } catch (error) {
        const code = codeOf(error) ?? ''
        // The blob was removed, or the file system cannot create a (further) link to it.
        if (['ENOENT', 'EXDEV', 'EPERM', 'EMLINK', 'ENOTSUP'].includes(code)) return false
        if (code !== 'EEXIST') throw error
        // The link gets the current time, so that garbage collection treats it as new.
        const now = new Date(this.#clock.now())
        if ((await ifThere(utimes(path, now, now).then(() => true))) === undefined) return false
      }
      // Flushed even if another call created the link: it may not be on the disk yet.
      await this.#directories.flush(dirname(path))
      return true
    })
  }

  startUpload(...[repo, signal]: Parameters<Upstream['startUpload']>): ReturnType<Upstream['startUpload']> {
    return guarded(signal, () => this.#uploads.start(repo, signal))
  }

  uploadStatus(...[repo, state, signal]: Parameters<Upstream['uploadStatus']>): ReturnType<Upstream['uploadStatus']> {
    return guarded(signal, () => this.#uploads.status(repo, state))
  }

  appendUpload(...[repo, { state, chunk }, signal]: Parameters<Upstream['appendUpload']>): ReturnType<Upstream['appendUpload']> {
    return consuming(chunk, () => guarded(signal, () => this.#uploads.append(repo, state, { chunk, signal })))
  }

  finishUpload(...[repo, { state, ...source }, signal]: Parameters<Upstream['finishUpload']>): ReturnType<Upstream['finishUpload']> {
    return consuming(source.chunk, () => guarded(signal, () => this.#uploads.finish(repo, state, { ...source, signal })))
  }

  async cancelUpload(repo: Uid, state: string, signal: AbortSignal): Promise<void> {
    try {
      await guarded(signal, () => this.#uploads.cancel(repo, state, signal))
    } catch (error) {
      if (!(error instanceof UpstreamError && error.kind === 'upload_unknown')) throw error
    }
  }

  async *stored(): AsyncGenerator<StoredContent> {
    for await (const root of entriesOf(this.#layout.repos)) yield* storedBelow(join(this.#layout.repos, root), root)
  }

  async collectUploads(olderThanMs: number, signal: AbortSignal): Promise<number> {
    return guarded(signal, async () => {
      for await (const name of entriesOf(this.#layout.temporary)) {
        signal.throwIfAborted()
        if (!this.#writing.has(name)) await removeOlder(join(this.#layout.temporary, name), this.#clock.now() - olderThanMs)
      }
      return this.#uploads.collect(olderThanMs, signal)
    })
  }

  async close(): Promise<void> {
    // Nothing to close: files are open only during a call, or while its stream is read.
  }
}

/** Returns the size of an open file. If that fails, closes the file. */
async function sizeOrClosed(handle: FileHandle): Promise<number> {
  try {
    return (await handle.stat()).size
  } catch (error) {
    await handle.close()
    throw error
  }
}

/** Yields the content of the folder of `uid`, and of the uids below it. */
async function* storedBelow(directory: string, uid: string): AsyncGenerator<StoredContent> {
  if (!isUid(uid)) return
  for await (const name of entriesOf(directory)) {
    const kind = (Object.keys(foldersOf) as StoredKind[]).find((each) => foldersOf[each] === name) // a cast: the keys of that table
    if (kind === undefined) yield* storedBelow(join(directory, name), `${uid}/${name}`)
    else yield* storedOfKind(join(directory, name), trustedUid(uid), kind)
  }
}

async function* storedOfKind(directory: string, repo: Uid, kind: StoredKind): AsyncGenerator<StoredContent> {
  for (const algorithm of ['sha256', 'sha512'] as const) {
    for await (const hex of entriesOf(join(directory, algorithm))) {
      const digest = digestOfHex(algorithm, hex)
      const found = isDigest(digest) ? await ifThere(stat(join(directory, algorithm, hex))) : undefined
      // The time counts from when the file got this name or link. Its bytes may have been written earlier.
      if (found !== undefined) yield { repo, kind, digest, modifiedMs: Math.max(found.mtimeMs, found.ctimeMs) }
    }
  }
}

/** Yields the names in a directory; none if it does not exist. */
async function* entriesOf(directory: string): AsyncGenerator<string> {
  const opened = await ifThere(opendir(directory))
  if (opened !== undefined) for await (const entry of opened) yield entry.name
}

/** Runs `work`. Converts its errors into those of the port: the signal's reason, the error of a chunk's body, or UpstreamError. */
async function guarded<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  signal.throwIfAborted()
  try {
    return await work()
  } catch (error) {
    signal.throwIfAborted()
    if (error instanceof BodyError) throw error.reason
    return rethrow(error)
  }
}

/** An error without a code is a programming error, not one of the system. */
function rethrow(error: unknown): never {
  throw codeOf(error) === undefined ? error : diskError(error)
}
