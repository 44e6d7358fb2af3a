/** A key that waited. */
export interface Waiting {
  readonly key: string
  /** When it was put in. */
  readonly since: number
}

/** A line of keys per group. The groups take turns; within a line the first that came goes first. Each step costs the same, however long the lines are. */
export class FairLines {
  readonly #lines = new Map<string, Line<Waiting>>()
  /** The groups that have a line, the next one first. */
  readonly #turns = new Line<string>()
  readonly #keys = new Set<string>()

  get size(): number {
    return this.#keys.size
  }

  has(key: string): boolean {
    return this.#keys.has(key)
  }

  /** Puts a key at the end of its group's line; false where it is in one already. */
  put(group: string, key: string, since: number): boolean {
    if (this.#keys.has(key)) return false
    this.#keys.add(key)
    let line = this.#lines.get(group)
    if (line === undefined) {
      line = new Line()
      this.#lines.set(group, line)
      this.#turns.put(group)
    }
    line.put({ key, since })
    return true
  }

  /** Takes out the key whose turn it is. */
  take(): Waiting | undefined {
    const group = this.#turns.take()
    const line = group === undefined ? undefined : this.#lines.get(group)
    const next = line?.take()
    if (group === undefined || line === undefined || next === undefined) return undefined
    this.#keys.delete(next.key)
    if (line.size > 0) this.#turns.put(group)
    else this.#lines.delete(group)
    return next
  }
}

/** Taken entries are cut off when they are so many, and most of all. */
const cutAt = 1024

/** First in, first out. */
class Line<T> {
  #entries: T[] = []
  #taken = 0

  get size(): number {
    return this.#entries.length - this.#taken
  }

  put(entry: T): void {
    this.#entries.push(entry)
  }

  take(): T | undefined {
    if (this.size === 0) return undefined
    const entry = this.#entries[this.#taken++]
    if (this.#taken >= cutAt && this.#taken > this.#entries.length / 2) {
      this.#entries = this.#entries.slice(this.#taken)
      this.#taken = 0
    }
    return entry
  }
}
