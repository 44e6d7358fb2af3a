import type { Row } from './row.ts'

const shards = 256

/**
 * Rows by uid. Many small hash tables in place of a large one, so that none takes long to grow: which one a uid is in, its last two digits say, which are
 * random.
 */
export class UidMap {
  readonly #shards: (Map<string, Row> | undefined)[] = Array.from({ length: shards })
  #size = 0

  get size(): number {
    return this.#size
  }

  get(uid: string): Row | undefined {
    return this.#shards[shardOf(uid)]?.get(uid)
  }

  /** Puts the row in place of the one with its uid. */
  set(row: Row): void {
    const at = shardOf(row.uid)
    const shard = (this.#shards[at] ??= new Map())
    this.#size -= shard.size
    shard.set(row.uid, row)
    this.#size += shard.size
  }

  delete(uid: string): void {
    if (this.#shards[shardOf(uid)]?.delete(uid) === true) this.#size -= 1
  }

  /** All rows, in no order. */
  *values(): Generator<Row> {
    for (const shard of this.#shards) if (shard !== undefined) yield* shard.values()
  }
}

/** Any text has a shard, from 0 to 255; those of uids are random. */
export function shardOf(uid: string): number {
  return (digitOf(uid.charCodeAt(uid.length - 1)) + 16 * digitOf(uid.charCodeAt(uid.length - 2))) & (shards - 1)
}

/** The number that a hex digit stands for. */
export function digitOf(code: number): number {
  return code > 57 ? code - 87 : code - 48
}
