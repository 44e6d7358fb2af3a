import type { Clock } from './runtime.ts'

/** How long entries are kept without use: `ms` for sure, and no longer than twice that, looked at whenever the map is used. */
export interface Idleness {
  readonly clock: Clock
  readonly ms: number
}

/**
 * A map that keeps what was used lately: entries of up to `limit` in weight are kept for sure, those beyond twice that are gone. Reading counts as use. Two
 * generations instead of an exact order: a hit costs one look-up and changes nothing.
 */
export class RecentMap<Key, Value> {
  readonly #limit: number
  readonly #weigh: (value: Value) => number
  readonly #idleness: Idleness | undefined
  /** When the young generation began. */
  #sinceMs: number
  #young = new Map<Key, Value>()
  #old = new Map<Key, Value>()
  #weight = 0

  /** `weigh` gives an entry's weight in the unit of `limit`; 1 each where it is left out. Without `idleness` time takes nothing away. */
  constructor(limit: number, weigh: (value: Value) => number = () => 1, idleness?: Idleness) {
    this.#limit = limit
    this.#weigh = weigh
    this.#idleness = idleness
    this.#sinceMs = idleness?.clock.now() ?? 0
  }

  /** How many entries are held. */
  get size(): number {
    return this.#young.size + this.#old.size
  }

  get(key: Key): Value | undefined {
    this.#lookAtClock()
    const value = this.#young.get(key)
    if (value !== undefined) return value
    const older = this.#old.get(key)
    if (older !== undefined) {
      this.#old.delete(key)
      this.#add(key, older)
    }
    return older
  }

  set(key: Key, value: Value): void {
    this.#lookAtClock()
    const replaced = this.#young.get(key)
    if (replaced !== undefined) this.#weight -= this.#weigh(replaced)
    this.#old.delete(key)
    this.#add(key, value)
  }

  delete(key: Key): void {
    const held = this.#young.get(key)
    if (held !== undefined) this.#weight -= this.#weigh(held)
    this.#young.delete(key)
    this.#old.delete(key)
  }

  clear(): void {
    this.#young = new Map()
    this.#old = new Map()
    this.#weight = 0
  }

  #add(key: Key, value: Value): void {
    this.#young.set(key, value)
    this.#weight += this.#weigh(value)
    if (this.#weight > this.#limit) this.#turn(this.#idleness?.clock.now() ?? 0)
  }

  #lookAtClock(): void {
    if (this.#idleness === undefined) return
    const { clock, ms } = this.#idleness
    const nowMs = clock.now()
    const age = nowMs - this.#sinceMs
    // Where the clock was set back, time begins anew.
    if (age >= 0 && age < ms) return
    this.#turn(age < 0 ? nowMs : this.#sinceMs + ms)
    if (age >= 2 * ms) this.#turn(nowMs)
  }

  #turn(sinceMs: number): void {
    this.#sinceMs = sinceMs
    this.#old = this.#young
    this.#young = new Map()
    this.#weight = 0
  }
}
