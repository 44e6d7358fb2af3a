import { rootParent } from '../../base/uid.ts'

/** The position of an event in the order of commits. Events of one commit are in key order. */
export interface Position {
  readonly revision: number
  readonly key: string
}

/** Returns a negative number if `one` comes first, a positive one if `other` does, and 0 for the same position. */
export function comparePositions(one: Position, other: Position): number {
  return one.revision - other.revision || (one.key === other.key ? 0 : one.key < other.key ? -1 : 1)
}

/** The loss of a root group's oldest events, which were too many: the position of the newest one among them. */
export interface Cut extends Position {
  readonly root: string
  /** The commit that announced the loss. */
  readonly madeAt: number
}

/** What the index keeps of an event. */
export interface LogEntry extends Position {
  readonly type: string
  /** The group that the event belongs to; empty if it has none. */
  readonly group: string
  readonly subject: string
}

/** Returns the place of the first entry after a position. Cost: the logarithm of the number of entries. */
function firstAfter(entries: readonly LogEntry[], position: Position): number {
  let low = 0
  let high = entries.length
  while (low < high) {
    const middle = (low + high) >> 1
    const entry = entries[middle]
    if (entry !== undefined && comparePositions(entry, position) <= 0) low = middle + 1
    else high = middle
  }
  return low
}

/** Removed entries that the lists keep at least: to leave them out of the lists costs a pass over all entries. */
const minRemoved = 1_000

/** Returns the root of a group; the text itself for `/` and for no group. */
function rootIn(group: string): string {
  return group === rootParent ? group : (group.split('/', 1)[0] ?? '')
}

/**
 * The events that are kept, in the order of their commits, without their bodies: all, and those of each root group. So a reader of one organisation passes no
 * event of another. Memory: about 250 bytes an event.
 */
export class LogIndex {
  #all: LogEntry[] = []
  readonly #byRoot = new Map<string, LogEntry[]>()
  /** Each type and group once. */
  readonly #texts = new Map<string, string>()
  /** Keys of entries that are still in the lists, but were removed. */
  readonly #removed = new Set<string>()

  /** The number of entries, with removed ones that are still in the lists. */
  get size(): number {
    return this.#all.length
  }

  /** The position of the last entry; before all positions without entries. */
  get last(): Position {
    const { revision, key } = this.#all.at(-1) ?? { revision: 0, key: '' }
    return { revision, key }
  }

  /** Adds an entry. Returns false, and adds nothing, if its position is not after the last one. */
  append({ revision, key, type, group, subject }: LogEntry): boolean {
    const entry = { revision, key, subject, type: this.#shared(type), group: this.#shared(group) }
    if (comparePositions(entry, this.last) <= 0) return false
    this.#all.push(entry)
    const root = rootIn(group)
    const ofRoot = this.#byRoot.get(root)
    if (ofRoot === undefined) this.#byRoot.set(root, [entry])
    else ofRoot.push(entry)
    return true
  }

  /** Yields the entries after a position, in order: of one root group, or all. Look again for entries that are appended after the end. */
  *after(position: Position, root?: string): Generator<LogEntry, void> {
    // Each removal makes new lists: this one keeps its places while its reader waits.
    const entries = this.#of(root)
    for (let at = firstAfter(entries, position); at < entries.length; at += 1) {
      const entry = entries[at]
      if (entry !== undefined && !this.#removed.has(entry.key)) yield entry
    }
  }

  /** Returns the first entry of a root group, in the order of commits, whose key is not before `key`. Cost: the number of its entries. */
  firstFrom(key: string, root: string): LogEntry | undefined {
    return this.#of(root).find((entry) => entry.key >= key && !this.#removed.has(entry.key))
  }

  /** Removes the entries whose keys are before `key`. Cost: the number of entries. */
  dropBefore(key: string): void {
    if (this.#all.some((entry) => entry.key < key)) this.#keep((entry) => entry.key >= key)
  }

  /** Removes the entries with these keys. Cost: that of the keys, but for one removal in many. */
  remove(keys: readonly string[]): void {
    for (const key of keys) this.#removed.add(key)
    if (this.#removed.size > Math.max(minRemoved, this.#all.length / 8)) this.#keep(() => true)
  }

  /** Makes new lists of the entries that were not removed and that pass. */
  #keep(passes: (entry: LogEntry) => boolean): void {
    const isKept = (entry: LogEntry): boolean => !this.#removed.has(entry.key) && passes(entry)
    this.#all = this.#all.filter(isKept)
    for (const [root, entries] of this.#byRoot) {
      const kept = entries.filter(isKept)
      if (kept.length > 0) this.#byRoot.set(root, kept)
      else this.#byRoot.delete(root)
    }
    this.#texts.clear()
    this.#removed.clear()
  }

  #of(root: string | undefined): readonly LogEntry[] {
    return root === undefined ? this.#all : (this.#byRoot.get(root) ?? [])
  }

  #shared(text: string): string {
    const known = this.#texts.get(text)
    if (known === undefined) this.#texts.set(text, text)
    return known ?? text
  }
}
