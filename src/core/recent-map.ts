/**
 * A map that keeps what was used lately: entries of up to `limit` in weight are kept for sure, those beyond twice that are gone. Reading counts as use. Two
 * generations instead of an exact order: a hit costs one look-up and changes nothing.
 */
export class RecentMap<Key, Value> {
  readonly #limit: number
  readonly #weigh: (value: Value) => number
  #young = new Map<Key, Value>()
  #old = new Map<Key, Value>()
  #weight = 0

  /** `weigh` gives an entry's weight in the unit of `limit`; 1 each where it is left out. */
  constructor(limit: number, weigh: (value: Value) => number = () => 1) {
    this.#limit = limit
    this.#weigh = weigh
  }

  /** How many entries are held. */
  get size(): number {
    return this.#young.size + this.#old.size
  }

  get(key: Key): Value | undefined {
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
    if (this.#weight <= this.#limit) return
    this.#old = this.#young
    this.#young = new Map()
    this.#weight = 0
  }
}
