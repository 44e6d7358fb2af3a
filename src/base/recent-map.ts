import { LRUCache } from 'lru-cache'
import type { Clock } from './runtime.ts'

/** The time after which unused entries are removed: between `ms` and twice `ms` after their last use. The check runs on each use of the map. */
export interface Idleness {
  readonly clock: Clock
  readonly ms: number
}

/** A least-recently-used cache whose entries have a total weight of at most `limit`. Reading an entry counts as use. */
export class RecentMap<Key extends string | number, Value extends NonNullable<unknown>> extends LRUCache<Key, Value> {
  readonly #idleness: Idleness | undefined
  #purgedAtMs = 0

  /** `weigh` returns the weight of a value, an integer. By default each entry weighs 1, so `limit` is the maximum number of entries. */
  constructor(limit: number, weigh: (value: Value) => number = () => 1, idleness?: Idleness) {
    // `maxSize` instead of `max`: with `max` the library reserves memory for that many entries.
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
