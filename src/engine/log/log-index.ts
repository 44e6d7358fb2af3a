/** The position of an event in the order of commits. Events of one commit are in key order. */
export interface Position {
  readonly revision: number
  readonly key: string
}

/** Returns a negative number if `one` comes first, a positive one if `other` does, and 0 for the same position. */
export function comparePositions(one: Position, other: Position): number {
  return one.revision - other.revision || (one.key === other.key ? 0 : one.key < other.key ? -1 : 1)
}

/** What the index keeps of an event. */
export interface LogEntry extends Position {
  readonly type: string
  /** The group that the event belongs to; empty if it has none. */
  readonly group: string
  readonly subject: string
}

/** Texts by number, each kept once. */
class Texts {
  readonly #numbers = new Map<string, number>()
  readonly #texts: string[] = []

  numberOf(text: string): number {
    const known = this.#numbers.get(text)
    if (known !== undefined) return known
    const number = this.#texts.push(text) - 1
    this.#numbers.set(text, number)
    return number
  }

  at(number: number): string {
    return this.#texts[number] ?? ''
  }
}

const segmentEntries = 4_096

/** Some consecutive entries. `keys` and `subjects` are strings, since both are long and differ from entry to entry. */
interface Segment {
  readonly revisions: Float64Array
  readonly groups: Uint32Array
  readonly types: Uint16Array
  readonly keys: string[]
  readonly subjects: string[]
}

/**
 * The events that are kept, in the order of their commits, without their bodies. Memory: about 200 bytes an event. A search from a position costs the logarithm
 * of the number of segments, and then the number of entries it passes.
 */
export class LogIndex {
  #segments: Segment[] = []
  #size = 0
  #last: Position = { revision: 0, key: '' }
  readonly #groups = new Texts()
  readonly #types = new Texts()

  /** The number of entries. */
  get size(): number {
    return this.#size
  }

  /** The position of the last entry; before all positions without entries. */
  get last(): Position {
    return this.#last
  }

  /** Adds an entry. Returns false, and adds nothing, if its position is not after the last one. */
  append(entry: LogEntry): boolean {
    if (comparePositions(entry, this.#last) <= 0) return false
    let segment = this.#segments.at(-1)
    if (segment === undefined || segment.keys.length === segmentEntries) {
      segment = {
        revisions: new Float64Array(segmentEntries),
        groups: new Uint32Array(segmentEntries),
        types: new Uint16Array(segmentEntries),
        keys: [],
        subjects: [],
      }
      this.#segments.push(segment)
    }
    const at = segment.keys.push(entry.key) - 1
    segment.subjects.push(entry.subject)
    segment.revisions[at] = entry.revision
    segment.groups[at] = this.#groups.numberOf(entry.group)
    segment.types[at] = this.#types.numberOf(entry.type)
    this.#size += 1
    this.#last = { revision: entry.revision, key: entry.key }
    return true
  }

  /** Yields the entries after a position, in order. Entries that are appended meanwhile follow. */
  *after(position: Position): Generator<LogEntry, void> {
    let number = this.#segmentAfter(position)
    for (; number < this.#segments.length; number += 1) {
      const segment = this.#segments[number]
      if (segment === undefined) return
      for (let at = 0; at < segment.keys.length; at += 1) {
        const revision = segment.revisions[at] ?? 0
        if (revision < position.revision || (revision === position.revision && (segment.keys[at] ?? '') <= position.key)) continue
        yield this.#entry(segment, at)
      }
    }
  }

  /** Returns the first entry whose key is not before `key`, in the order of commits. */
  firstFrom(key: string): LogEntry | undefined {
    for (const segment of this.#segments) {
      const at = segment.keys.findIndex((candidate) => candidate >= key)
      if (at >= 0) return this.#entry(segment, at)
    }
    return undefined
  }

  /** Removes whole segments at the start whose keys are all before `key`. */
  dropBefore(key: string): void {
    while (this.#segments.length > 1 && this.#segments[0]?.keys.every((candidate) => candidate < key) === true) {
      this.#size -= this.#segments.shift()?.keys.length ?? 0
    }
  }

  #entry(segment: Segment, at: number): LogEntry {
    return {
      revision: segment.revisions[at] ?? 0,
      key: segment.keys[at] ?? '',
      subject: segment.subjects[at] ?? '',
      group: this.#groups.at(segment.groups[at] ?? 0),
      type: this.#types.at(segment.types[at] ?? 0),
    }
  }

  /** Returns the number of the first segment that may hold entries after a position. */
  #segmentAfter({ revision }: Position): number {
    let low = 0
    let high = this.#segments.length
    while (low < high) {
      const middle = (low + high) >> 1
      const segment = this.#segments[middle]
      const last = segment === undefined ? 0 : (segment.revisions[segment.keys.length - 1] ?? 0)
      if (last < revision) low = middle + 1
      else high = middle
    }
    return low
  }
}
