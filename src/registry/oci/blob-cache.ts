import type { Digest } from '../../core/digest.ts'
import { RecentMap } from '../../core/recent-map.ts'
import type { Clock } from '../../core/runtime.ts'
import type { Uid } from '../../core/uid.ts'
import type { BlobStream } from '../upstream/upstream.ts'
import { HotBlob } from './hot-blob.ts'

/** A blob as the upstream knows it. */
export interface BlobName {
  readonly repo: Uid
  readonly digest: Digest
  readonly size: number
}

/** What a cache is made of. */
export interface BlobCacheOptions {
  /** How many bytes of blobs are in memory at most; 0 for none. */
  readonly maxBytes: number
  readonly clock: Clock
  /** Begins to read a whole blob. */
  readonly read: (name: BlobName, signal: AbortSignal) => Promise<BlobStream>
}

/** A blob that somebody reads: it stays in memory until it is given back. */
export interface LentBlob {
  readonly blob: HotBlob
  /** Gives it back; once. */
  giveBack(): void
}

interface Entry {
  readonly key: string
  readonly blob: HotBlob
  /** Which ask was the last one for it. */
  askedAt: number
  readers: number
  isDropped: boolean
}

/** One blob takes this share of the memory at most. */
const share = 2
/** How many asks are remembered, and for how long: for up to twice as many and as long. */
const remembered = { asks: 10_000, ms: 10 * 60_000 }

/**
 * Blobs that are asked for again and again, in memory. One comes there with the second ask for it, where there is room, or where what has to go has not been asked
 * for since the first one: so what many machines pull at once is read once or twice, and what each pulls once takes nothing from it. Whoever asks while it is read gets
 * what has come so far.
 *
 * Bytes never change under a digest, and who may have them is looked at before: an entry is good for as long as it is there. Entries are of one repo, so that nothing
 * that one tenant does is seen by another.
 */
export class BlobCache {
  readonly #options: BlobCacheOptions
  /** In the order of their last asks. */
  readonly #entries = new Map<string, Entry>()
  /** What was asked for lately, and when. */
  readonly #asked: RecentMap<string, number>
  #asks = 0
  /** Of everything that is in memory, also of what was dropped while somebody reads it. */
  #bytes = 0

  constructor(options: BlobCacheOptions) {
    this.#options = options
    this.#asked = new RecentMap(remembered.asks, () => 1, { clock: options.clock, ms: remembered.ms })
  }

  /** How many bytes it holds, in memory that is taken whether it is filled yet or not. */
  get bytes(): number {
    return this.#bytes
  }

  /** The blob, for a reader that begins at `first`; undefined where it is to be read from the upstream. */
  lend(name: BlobName, first = 0): LentBlob | undefined {
    if (name.size === 0 || name.size > this.#options.maxBytes / share) return undefined
    const key = `${name.repo} ${name.digest}`
    const entry = this.#entries.get(key)
    // What a part begins with may be far from there yet.
    if (first > (entry?.blob.available ?? 0)) return undefined
    const askedBefore = this.#asked.get(key)
    this.#asked.set(key, ++this.#asks)
    if (entry === undefined) return askedBefore !== undefined && this.#makeRoom(name.size, askedBefore) ? this.#bring(key, name) : undefined
    this.#entries.delete(key)
    this.#entries.set(key, entry)
    entry.askedAt = this.#asks
    return this.#lent(entry)
  }

  #bring(key: string, name: BlobName): LentBlob {
    const blob = new HotBlob({
      digest: name.digest,
      size: name.size,
      read: (signal) => this.#options.read(name, signal),
      failed: () => this.#drop(entry),
    })
    const entry: Entry = { key, blob, askedAt: this.#asks, readers: 0, isDropped: false }
    this.#entries.set(key, entry)
    this.#bytes += blob.size
    return this.#lent(entry)
  }

  #lent(entry: Entry): LentBlob {
    entry.readers++
    return { blob: entry.blob, giveBack: () => this.#takeBack(entry) }
  }

  #takeBack(entry: Entry): void {
    entry.readers--
    if (entry.readers > 0) return
    if (entry.isDropped) this.#bytes -= entry.blob.size
    else if (!entry.blob.isWhole) {
      entry.blob.abandon()
      this.#drop(entry)
    }
  }

  /** Drops what nobody has asked for since `before`, oldest first, until there is room; nothing where that is not enough. */
  #makeRoom(size: number, before: number): boolean {
    let room = this.#options.maxBytes - this.#bytes
    const victims: Entry[] = []
    for (const entry of this.#entries.values()) {
      if (room >= size || entry.askedAt >= before) break
      if (entry.readers > 0) continue
      victims.push(entry)
      room += entry.blob.size
    }
    if (room < size) return false
    for (const entry of victims) this.#drop(entry)
    return true
  }

  #drop(entry: Entry): void {
    if (entry.isDropped) return
    entry.isDropped = true
    this.#entries.delete(entry.key)
    if (entry.readers === 0) this.#bytes -= entry.blob.size
  }
}
