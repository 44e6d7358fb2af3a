import type { CachedRecord } from './records/cached-record.ts'

const shardCount = 64
const firstSlots = 8

/**
 * Rows by uid: hash tables of row references and hashes. The hashes come from the uid's last digits, which are random. It takes a third of a Map's memory, and
 * growing reads no row. Many small tables replace a large one, so that none takes long to grow.
 */
export class UidMap {
  readonly #shards = Array.from({ length: shardCount }, () => new Shard())
  #size = 0

  get size(): number {
    return this.#size
  }

  get(uid: string): CachedRecord | undefined {
    const hash = hashOf(uid)
    return this.#shards[hash & (shardCount - 1)]?.get(uid, hash)
  }

  /** Adds the row, or replaces the row with its uid. */
  set(row: CachedRecord): void {
    const hash = hashOf(row.uid)
    if (this.#shards[hash & (shardCount - 1)]?.set(row, hash) === true) this.#size += 1
  }

  delete(uid: string): void {
    const hash = hashOf(uid)
    if (this.#shards[hash & (shardCount - 1)]?.delete(uid, hash) === true) this.#size -= 1
  }

  /** All rows, in no order. */
  *values(): Generator<CachedRecord> {
    for (const shard of this.#shards) yield* shard.rows()
  }
}

/** A hash table with open addressing and linear probing, at most three quarters full. */
class Shard {
  #rows: (CachedRecord | undefined)[] = emptySlots(firstSlots)
  #hashes = new Int32Array(firstSlots)
  #size = 0

  get(uid: string, hash: number): CachedRecord | undefined {
    return this.#rows[this.#find(uid, hash)]
  }

  /** Returns true if no row had the uid. */
  set(row: CachedRecord, hash: number): boolean {
    const at = this.#find(row.uid, hash)
    const isNew = this.#rows[at] === undefined
    this.#rows[at] = row
    this.#hashes[at] = hash
    if (!isNew) return false
    this.#size += 1
    if (this.#size * 4 > this.#rows.length * 3) this.#resize(2 * this.#rows.length)
    return true
  }

  /** Removes a row and closes the gap, so that no tombstones are needed. */
  delete(uid: string, hash: number): boolean {
    const rows = this.#rows
    const mask = rows.length - 1
    let gap = this.#find(uid, hash)
    if (rows[gap] === undefined) return false
    for (let at = (gap + 1) & mask; rows[at] !== undefined; at = (at + 1) & mask) {
      const home = homeOf(this.#hashes[at] ?? 0) & mask
      // A row must not move before its home slot.
      if (((at - home) & mask) < ((at - gap) & mask)) continue
      rows[gap] = rows[at]
      this.#hashes[gap] = this.#hashes[at] ?? 0
      gap = at
    }
    rows[gap] = undefined
    this.#size -= 1
    if (rows.length > firstSlots && this.#size * 8 < rows.length) this.#resize(rows.length / 2)
    return true
  }

  *rows(): Generator<CachedRecord> {
    for (const row of this.#rows) if (row !== undefined) yield row
  }

  /** Returns the slot of the row with this uid, or the free slot for it. */
  #find(uid: string, hash: number): number {
    const rows = this.#rows
    const mask = rows.length - 1
    for (let at = homeOf(hash) & mask; ; at = (at + 1) & mask) {
      const row = rows[at]
      if (row === undefined || (this.#hashes[at] === hash && row.uid === uid)) return at
    }
  }

  #resize(slots: number): void {
    const [rows, hashes] = [this.#rows, this.#hashes]
    const mask = slots - 1
    this.#rows = emptySlots(slots)
    this.#hashes = new Int32Array(slots)
    for (const [from, row] of rows.entries()) {
      if (row === undefined) continue
      const hash = hashes[from] ?? 0
      let at = homeOf(hash) & mask
      while (this.#rows[at] !== undefined) at = (at + 1) & mask
      this.#rows[at] = row
      this.#hashes[at] = hash
    }
  }
}

function emptySlots(count: number): (CachedRecord | undefined)[] {
  return new Array<CachedRecord | undefined>(count).fill(undefined)
}

/** Returns the part of a hash that did not choose the shard. */
function homeOf(hash: number): number {
  return hash >>> 6
}

/** Returns 32 bits from the last 16 characters of any text. The multiplication spreads each character over all bits. */
export function hashOf(uid: string): number {
  let hash = uid.length
  for (let at = Math.max(0, uid.length - 16); at < uid.length; at++) hash = Math.imul(hash ^ uid.charCodeAt(at), 0x01000193)
  hash ^= hash >>> 15
  hash = Math.imul(hash, 0x2c1b3c6d)
  return hash ^ (hash >>> 13)
}
