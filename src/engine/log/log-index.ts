import { rootParent } from '../../base/uid.ts'

/** The position of an event in the order of commits. Events of one commit are in key order. */
export interface Position {
  readonly revision: number
  readonly key: string
}

/** Compares two positions for sorting: negative if `one` comes first, positive if `other` does, 0 if they are equal. */
export function comparePositions(one: Position, other: Position): number {
  return one.revision - other.revision || (one.key === other.key ? 0 : one.key < other.key ? -1 : 1)
}

/** The removal of a root group's oldest events because they were too large in total. The position is that of the newest removed event. */
export interface Cut extends Position {
  readonly root: string
  /** The revision of the commit that announced the removal of the events. */
  readonly madeAt: number
}

/** The data that the index keeps for each event. */
export interface LogEntry extends Position {
  readonly type: string
  /** Uid of the group that the event belongs to; empty if it has none. */
  readonly group: string
  readonly subject: string
  /** The manifest that was pulled, in the repo `subject`; undefined for other events. */
  readonly pulled?: PulledName | undefined
}

/** Type of sampled pull events. */
export const pullType = 'dev.taproot.registry.pull.v1'

/** What a pull of a manifest named. */
export interface PulledName {
  readonly digest: string
  /** Empty if it was pulled by digest. */
  readonly tag: string
}

/** Returns the index of the first entry after a position, by binary search. */
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

/** Minimum number of removed entries before the lists are rebuilt without them, which costs a pass over all entries. */
const minRemoved = 1_000

/** Returns the root of a group's uid. Returns the text itself for `/` and for an empty text. */
function rootIn(group: string): string {
  return group === rootParent ? group : (group.split('/', 1)[0] ?? '')
}

/**
 * The existing events in commit order, without their content: one list of all, and one for each root group. So a reader of one organisation skips no events of
 * others. It takes about 250 bytes of memory per event.
 */
export class LogIndex {
  #all: LogEntry[] = []
  readonly #byRoot = new Map<string, LogEntry[]>()
  /** Each event type, group uid, digest and tag, so that equal texts are in memory once. */
  readonly #texts = new Map<string, string>()
  /** Keys of removed entries that are still in the lists. */
  readonly #removed = new Set<string>()

  /** The number of entries, including removed ones that are still in the lists. */
  get size(): number {
    return this.#all.length
  }

  /** The position of the last entry. Without entries, a position before all others. */
  get last(): Position {
    const { revision, key } = this.#all.at(-1) ?? { revision: 0, key: '' }
    return { revision, key }
  }

  /** Adds an entry. Returns false, and adds nothing, unless its position is after the last one. */
  append({ revision, key, type, group, subject, pulled }: LogEntry): boolean {
    const named = pulled && { digest: this.#shared(pulled.digest), tag: this.#shared(pulled.tag) }
    const entry = { revision, key, subject, type: this.#shared(type), group: this.#shared(group), pulled: named }
    if (comparePositions(entry, this.last) <= 0) return false
    this.#all.push(entry)
    const root = rootIn(group)
    const ofRoot = this.#byRoot.get(root)
    if (ofRoot === undefined) this.#byRoot.set(root, [entry])
    else ofRoot.push(entry)
    return true
  }

  /**
   * Yields the entries after a position in order: those of one root group, or all. It ends at the last entry; call it again for entries that are appended
   * later.
   */
  *after(position: Position, root?: string): Generator<LogEntry, void> {
    // A removal creates new lists, so the positions in this one stay valid while its reader waits.
    const entries = this.#of(root)
    for (let at = firstAfter(entries, position); at < entries.length; at += 1) {
      const entry = entries[at]
      if (entry !== undefined && !this.#removed.has(entry.key)) yield entry
    }
  }

  /** Yields the events up to a position, the newest first: those of one root group. */
  *upTo(position: Position, root: string): Generator<LogEntry, void> {
    const entries = this.#of(root)
    for (let at = firstAfter(entries, position) - 1; at >= 0; at -= 1) {
      const entry = entries[at]
      if (entry !== undefined && !this.#removed.has(entry.key)) yield entry
    }
  }

  /** Returns the first entry of a root group, in commit order, whose key is not before `key`. It costs a pass over the group's entries. */
  firstFrom(key: string, root: string): LogEntry | undefined {
    return this.#of(root).find((entry) => entry.key >= key && !this.#removed.has(entry.key))
  }

  /** Removes the entries whose keys are before `key`. It costs a pass over all entries. */
  dropBefore(key: string): void {
    if (this.#all.some((entry) => entry.key < key)) this.#keep((entry) => entry.key >= key)
  }

  /** Removes the entries with these keys. Most calls cost only as much as the number of keys; a few rebuild the lists. */
  remove(keys: readonly string[]): void {
    for (const key of keys) this.#removed.add(key)
    if (this.#removed.size > Math.max(minRemoved, this.#all.length / 8)) this.#keep(() => true)
  }

  /** Rebuilds the lists from the entries that were not removed and for which `passes` returns true. */
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
