/** A map that forgets what was used longest ago once it holds `limit` entries. */
export interface BoundedMap<Value> {
  /** Reading counts as use. */
  get(key: string): Value | undefined
  set(key: string, value: Value): void
  delete(key: string): void
  /** Entries from the one used longest ago to the newest. */
  entries(): IterableIterator<[string, Value]>
  size(): number
}

/** An empty map of at most `limit` entries; `limit` is at least 1. */
export function createBoundedMap<Value>(limit: number): BoundedMap<Value> {
  const held = new Map<string, Value>()
  return {
    get(key) {
      const value = held.get(key)
      if (value === undefined) return undefined
      held.delete(key)
      held.set(key, value)
      return value
    },
    set(key, value) {
      held.delete(key)
      const oldest = held.size >= limit ? held.keys().next() : undefined
      if (oldest?.done === false) held.delete(oldest.value)
      held.set(key, value)
    },
    delete(key) {
      held.delete(key)
    },
    entries: () => held.entries(),
    size: () => held.size,
  }
}
