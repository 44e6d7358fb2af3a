import type { CachedRecord } from './records/cached-record.ts'

const shardCount = 64
const firstSlots = 8

/**
 * A map of records by uid, made of hash tables of record references and hashes. The hash comes from the uid's last digits, which are random. It takes a third
 * of the memory of a Map, and grows without reading records. It consists of many small tables, none of which takes long to grow.
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

  /** Adds the record. Replaces the record with the same uid. */
  set(record: CachedRecord): void {
    const hash = hashOf(record.uid)
    if (this.#shards[hash & (shardCount - 1)]?.set(record, hash) === true) this.#size += 1
  }

  delete(uid: string): void {
    const hash = hashOf(uid)
    if (this.#shards[hash & (shardCount - 1)]?.delete(uid, hash) === true) this.#size -= 1
  }

  /** Yields all records in no particular order. */
  *values(): Generator<CachedRecord> {
    for (const shard of this.#shards) yield* shard.records()
  }
}

/** A hash table with open addressing and linear probing, at most three quarters full. */
class Shard {
  #records: (CachedRecord | undefined)[] = emptySlots(firstSlots)
  #hashes = new Int32Array(firstSlots)
  #size = 0

  get(uid: string, hash: number): CachedRecord | undefined {
    return this.#records[this.#find(uid, hash)]
  }

  /** Adds or replaces a record. Returns true if no record had its uid. */
  set(record: CachedRecord, hash: number): boolean {
    const at = this.#find(record.uid, hash)
    const isNew = this.#records[at] === undefined
    this.#records[at] = record
    this.#hashes[at] = hash
    if (!isNew) return false
    this.#size += 1
    if (this.#size * 4 > this.#records.length * 3) this.#resize(2 * this.#records.length)
    return true
  }

  /** Removes a record. Moves the records after it, so that deleted slots need no marks. */
  delete(uid: string, hash: number): boolean {
    const records = this.#records
    const mask = records.length - 1
    let gap = this.#find(uid, hash)
    if (records[gap] === undefined) return false
    for (let at = (gap + 1) & mask; records[at] !== undefined; at = (at + 1) & mask) {
      const home = homeOf(this.#hashes[at] ?? 0) & mask
      // A record must not move to a slot before the one that its hash selects.
      if (((at - home) & mask) < ((at - gap) & mask)) continue
      records[gap] = records[at]
      this.#hashes[gap] = this.#hashes[at] ?? 0
      gap = at
    }
    records[gap] = undefined
    this.#size -= 1
    if (records.length > firstSlots && this.#size * 8 < records.length) this.#resize(records.length / 2)
    return true
  }

  *records(): Generator<CachedRecord> {
    for (const record of this.#records) if (record !== undefined) yield record
  }

  /** Returns the index of the slot with this uid, or of the free slot for it. */
  #find(uid: string, hash: number): number {
    const records = this.#records
    const mask = records.length - 1
    for (let at = homeOf(hash) & mask; ; at = (at + 1) & mask) {
      const record = records[at]
      if (record === undefined || (this.#hashes[at] === hash && record.uid === uid)) return at
    }
  }

  #resize(slots: number): void {
    const [records, hashes] = [this.#records, this.#hashes]
    const mask = slots - 1
    this.#records = emptySlots(slots)
    this.#hashes = new Int32Array(slots)
    for (const [from, record] of records.entries()) {
      if (record === undefined) continue
      const hash = hashes[from] ?? 0
      let at = homeOf(hash) & mask
      while (this.#records[at] !== undefined) at = (at + 1) & mask
      this.#records[at] = record
      this.#hashes[at] = hash
    }
  }
}

function emptySlots(count: number): (CachedRecord | undefined)[] {
  return new Array<CachedRecord | undefined>(count).fill(undefined)
}

/** Returns the bits of a hash that were not used to select the shard. */
function homeOf(hash: number): number {
  return hash >>> 6
}

/** Returns a 32-bit hash of the last 16 characters of a text. The multiplication spreads each character over all bits. */
export function hashOf(uid: string): number {
  let hash = uid.length
  for (let at = Math.max(0, uid.length - 16); at < uid.length; at++) hash = Math.imul(hash ^ uid.charCodeAt(at), 0x01000193)
  hash ^= hash >>> 15
  hash = Math.imul(hash, 0x2c1b3c6d)
  return hash ^ (hash >>> 13)
}
