import type { Digest } from '../../../base/digest.ts'
import { RecentMap } from '../../../base/recent-map.ts'
import type { Clock } from '../../../base/runtime.ts'
import type { Uid } from '../../../base/uid.ts'
import type { BlobStream, ByteRange } from '../../upstream/upstream.ts'
import { CachedBlob } from './cached-blob.ts'

/** A blob of a repo and its size in the upstream. */
export interface SizedBlob {
  readonly repo: Uid
  readonly digest: Digest
  readonly size: number
}

/** Dependencies and limits of the blob cache. */
export interface BlobCacheOptions {
  /** Maximum total size of cached blobs, in bytes; 0 turns the cache off. */
  readonly maxBytes: number
  readonly clock: Clock
  /** Starts to read a whole blob from the upstream. */
  readonly read: (name: SizedBlob, signal: AbortSignal) => Promise<BlobStream>
  /** Called if a blob with waiting readers could not be read. */
  readonly failed: (name: SizedBlob, error: unknown) => void
}

/** A cached blob in use by a reader. It stays in memory until it is released. */
export interface AcquiredBlob {
  readonly blob: CachedBlob
  /** Returns true if another blob needs the memory. The reader must then release this one and read the rest from the upstream. */
  isEvicted(): boolean
  /** Ends the use by this reader. Further calls do nothing. */
  release(): void
}

interface BlobCacheEntry {
  readonly key: string
  readonly blob: CachedBlob
  /** Sequence number of the last request for the entry. */
  askedAt: number
  readers: number
  /** If set, no new reader gets the entry; its memory counts until its last reader releases it. */
  isDropped: boolean
}

/** A cached blob may take at most `1 / share` of the memory. */
const share = 2
/** Maximum number of remembered requests for blobs, and how long each is kept without another one. */
const remembered = { blobs: 10_000, ms: 10 * 60_000 }

/**
 * Cache in memory of blobs that are requested repeatedly. The second request for a whole blob caches it if there is room, or if the entries to evict were not
 * requested since the first. So a blob that many machines pull at once is read once or twice. A blob that each machine pulls once takes no room from it.
 * Requests during the read get the bytes that have arrived so far. Bytes never change under a digest, and permissions are checked before: an entry never
 * becomes stale. Entries belong to one repo, so no tenant sees what another does. A slow reader cannot hold an entry: it is recalled.
 */
export class BlobCache {
  readonly #options: BlobCacheOptions
  /** Entries, least recently requested first. */
  readonly #entries = new Map<string, BlobCacheEntry>()
  /** Recent requests for blobs: the sequence number of the last one, by blob. */
  readonly #asked: RecentMap<string, number>
  #asks = 0
  /** Bytes of everything in memory, including dropped entries with readers. */
  #bytes = 0
  /** Bytes of dropped entries that still have readers. */
  #leaving = 0

  constructor(options: BlobCacheOptions) {
    this.#options = options
    this.#asked = new RecentMap(remembered.blobs, () => 1, { clock: options.clock, ms: remembered.ms })
  }

  /** Number of bytes of memory in use, including memory that is not filled yet. */
  get bytes(): number {
    return this.#bytes
  }

  /**
   * Returns the cached blob; undefined if the caller must read it from the upstream. Only a request for the whole blob may add it to the
   * cache.
   */
  acquire(name: SizedBlob, { first, last }: ByteRange = { first: 0, last: name.size - 1 }): AcquiredBlob | undefined {
    if (name.size === 0 || name.size > this.#options.maxBytes / share) return undefined
    const key = `${name.repo} ${name.digest}`
    const entry = this.#entries.get(key)
    const isAll = first === 0 && last === name.size - 1
    // The cache may be far from having read the first byte of the range.
    if (!isAll && (entry === undefined || entry.blob.available < first)) return undefined
    const askedBefore = this.#asked.get(key)
    this.#asked.set(key, ++this.#asks)
    if (entry === undefined) return askedBefore === undefined ? undefined : this.#bring(key, name, askedBefore)
    this.#entries.delete(key)
    this.#entries.set(key, entry)
    entry.askedAt = this.#asks
    return this.#acquired(entry)
  }

  #bring(key: string, name: SizedBlob, askedBefore: number): AcquiredBlob | undefined {
    const victims = this.#victims(name.size, askedBefore)
    const memory = victims && memoryOf(name.size)
    if (memory === undefined) return undefined
    for (const victim of victims ?? []) this.#drop(victim)
    const blob = new CachedBlob({
      digest: name.digest,
      memory,
      read: (signal) => this.#options.read(name, signal),
      failed: (error) => {
        if (entry.readers > 0) this.#options.failed(name, error)
        this.#drop(entry)
      },
    })
    const entry: BlobCacheEntry = { key, blob, askedAt: this.#asks, readers: 0, isDropped: false }
    this.#entries.set(key, entry)
    this.#bytes += blob.size
    return this.#acquired(entry)
  }

  #acquired(entry: BlobCacheEntry): AcquiredBlob {
    entry.readers++
    let isBack = false
    return {
      blob: entry.blob,
      isEvicted: () => entry.isDropped && entry.blob.isWhole,
      release: () => {
        if (!isBack) this.#takeBack(entry)
        isBack = true
      },
    }
  }

  #takeBack(entry: BlobCacheEntry): void {
    entry.readers--
    if (entry.readers > 0) return
    if (entry.isDropped) {
      this.#bytes -= entry.blob.size
      this.#leaving -= entry.blob.size
    } else if (!entry.blob.isWhole) {
      entry.blob.abandon()
      this.#drop(entry)
    }
  }

  /**
   * Returns the entries to evict to make room for `size` bytes: those not requested since `before`, oldest first. If that is not enough,
   * returns undefined and recalls entries that have readers, to make room for later requests.
   */
  #victims(size: number, before: number): readonly BlobCacheEntry[] | undefined {
    let room = this.#options.maxBytes - this.#bytes
    const [idle, read]: [BlobCacheEntry[], BlobCacheEntry[]] = [[], []]
    for (const entry of this.#entries.values()) {
      if (room >= size || entry.askedAt >= before) break
      if (entry.readers > 0) {
        if (entry.blob.isWhole) read.push(entry)
        continue
      }
      idle.push(entry)
      room += entry.blob.size
    }
    if (room >= size) return idle
    room += this.#leaving
    for (const entry of read) {
      if (room >= size) break
      this.#drop(entry)
      room += entry.blob.size
    }
    return undefined
  }

  #drop(entry: BlobCacheEntry): void {
    if (entry.isDropped) return
    entry.isDropped = true
    this.#entries.delete(entry.key)
    if (entry.readers === 0) this.#bytes -= entry.blob.size
    else this.#leaving += entry.blob.size
  }
}

/** Allocates memory. Returns undefined if the system has not enough; the blob is then streamed without caching. */
function memoryOf(size: number): Buffer | undefined {
  try {
    return Buffer.allocUnsafeSlow(size)
  } catch {
    return undefined
  }
}
