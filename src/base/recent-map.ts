import { LRUCache } from 'lru-cache'
import type { Clock } from './runtime.ts'

/** The idle time of entries. They stay at least `ms` without use and at most twice as long. The check runs on each use of the map. */
export interface Idleness {
  readonly clock: Clock
  readonly ms: number
}

/** A cache of the entries that were used last, up to `limit` in weight. Reading counts as use. */
export class RecentMap<Key extends string | number, Value extends NonNullable<unknown>> extends LRUCache<Key, Value> {
  readonly #idleness: Idleness | undefined
  #purgedAtMs = 0

  /** `weigh` returns the weight of an entry in the unit of `limit`, an integer. Without it, `limit` is the number of entries. */
  constructor(limit: number, weigh: (value: Value) => number = () => 1, idleness?: Idleness) {
    // With `max`, the library reserves memory for as many entries.
    const size = { maxSize: limit, sizeCalculation: (value: Value) => Math.max(1, weigh(value)) }
    super(idleness === undefined ? size : { ...size, ttl: idleness.ms, ttlResolution: 0, updateAgeOnGet: true, perf: idleness.clock })
    this.#idleness = idleness
  }

  override set(key: Key, value: Value): this {
    if (this.#idleness !== undefined) this.#purge(this.#idleness)
    return super.set(key, value)
  }

  #purge({ clock, ms }: Idleness): void {
    const nowMs = clock.now()
    if (Math.abs(nowMs - this.#purgedAtMs) < ms) return
    this.#purgedAtMs = nowMs
    this.purgeStale()
  }
}
