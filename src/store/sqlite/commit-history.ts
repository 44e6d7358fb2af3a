import { storeRevision, type Entry, type Revision } from '../store.ts'

/** One key's change in a commit, with its entries before and after. */
export interface HistoryStep {
  readonly key: string
  readonly before: Entry | undefined
  readonly after: Entry | undefined
}

/** A commit and the keys that it changed. */
export interface Commit {
  readonly revision: Revision
  readonly steps: readonly HistoryStep[]
}

/** Approximate memory of a HistoryStep in bytes, in addition to its key and values. */
const stepOverheadBytes = 200

/**
 * The newest commits in memory, limited by their size in bytes; the newest one is always kept. Watches read from it, and reads at a recent revision use it to
 * undo later commits.
 */
export class CommitHistory {
  readonly #commits = new Map<Revision, Commit>()
  readonly #maxBytes: number
  #bytes = 0
  #last: Revision
  #floor: Revision

  constructor(start: Revision, maxBytes: number) {
    this.#maxBytes = maxBytes
    this.#last = start
    this.#floor = start
  }

  /** The revision of the newest commit. */
  get last(): Revision {
    return this.#last
  }

  /** Appends a commit, which must be the one after `last`. */
  add(commit: Commit): void {
    this.#commits.set(commit.revision, commit)
    this.#last = commit.revision
    this.#bytes += sizeOf(commit)
    while (this.#bytes > this.#maxBytes && this.#commits.size > 1) {
      const oldest = this.#commits.get(storeRevision(this.#floor + 1))
      if (oldest === undefined) return
      this.#commits.delete(oldest.revision)
      this.#floor = oldest.revision
      this.#bytes -= sizeOf(oldest)
    }
  }

  /** Returns at most `limit` commits after the revision `after`, oldest first. Undefined if some of them are no longer in memory. */
  since(after: Revision, limit = Infinity): Commit[] | undefined {
    if (after < this.#floor) return undefined
    const commits: Commit[] = []
    for (let at = after + 1; at <= this.#last && commits.length < limit; at++) {
      const commit = this.#commits.get(storeRevision(at))
      if (commit !== undefined) commits.push(commit)
    }
    return commits
  }
}

function sizeOf({ steps }: Commit): number {
  return steps.reduce((sum, { key, before, after }) => sum + stepOverheadBytes + key.length + (before?.value.length ?? 0) + (after?.value.length ?? 0), 0)
}
