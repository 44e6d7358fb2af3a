import { StoreError } from '../store.ts'
import type { ResponseHeader } from './etcd-messages.ts'

/** What had been seen of the cluster when a call began. */
export interface SeenCluster {
  readonly revision: number
  readonly term: number
}

/** The newest commit on the watched prefixes as of some revision: where it is, and what it alone wrote there. Revision 0 where there was none. */
export interface ClusterHead {
  readonly revision: number
  readonly mark: string
}

/** So many positions are remembered at most. */
const maxPositions = 32

/**
 * Detects whether the cluster was replaced or restored. One sign is another cluster id. Another is a linearizable answer with a lower revision or raft term
 * than seen before the call began. After a backup has overtaken the seen revision, the sign is another head at an earlier revision. Each replacement starts an
 * epoch.
 */
export class ClusterIdentity {
  #clusterId: string | undefined
  #seen: SeenCluster = { revision: 0, term: 0 }
  #epoch = 0
  #replaced = new AbortController()
  #head: ClusterHead = { revision: 0, mark: '' }
  /** The head as of revisions from which a watch may start. */
  readonly #positions = new Map<number, ClusterHead>()

  /** Counts replacements. */
  get epoch(): number {
    return this.#epoch
  }

  /** What has been seen so far, for `observe`. */
  get seen(): SeenCluster {
    return this.#seen
  }

  /** Aborts, with StoreError `replaced` as the reason, when the present epoch ends. */
  get replaced(): AbortSignal {
    return this.#replaced.signal
  }

  /** Takes note of an answer. `before` is what had been seen when its call began; undefined where the answer isn't linearizable. */
  observe(header: ResponseHeader, before: SeenCluster | undefined): void {
    const revision = Number(header.revision)
    const term = Number(header.raft_term)
    const other = this.#clusterId !== undefined && this.#clusterId !== header.cluster_id
    const wentBack = before !== undefined && (revision < before.revision || term < before.term)
    this.#clusterId = header.cluster_id
    if (other || wentBack) {
      this.#replace(other ? 'the etcd cluster is another one' : 'the etcd cluster went back in time', { revision, term })
    } else if (before !== undefined) {
      this.#seen = { revision: Math.max(revision, this.#seen.revision), term: Math.max(term, this.#seen.term) }
    }
  }

  /** The newest head that was seen, for `assertHead`. */
  get head(): ClusterHead {
    return this.#head
  }

  /** A watch has shown this head. */
  showHead(head: ClusterHead): void {
    if (head.revision > this.#head.revision) this.#head = head
  }

  /** Throws StoreError `replaced` where a linearizable answer has an older head than `before`, which had been seen when its call began, or another one there. */
  assertHead(head: ClusterHead, before: ClusterHead): void {
    if (head.revision > before.revision || (head.revision === before.revision && head.mark === before.mark)) return
    throw this.#replace('the etcd cluster has another history', this.#seen)
  }

  /** Remembers the head as of a revision from which a watch may start. */
  notePosition(revision: number, head: ClusterHead): void {
    this.#positions.set(revision, head)
    const [oldest] = this.#positions.keys()
    if (this.#positions.size > maxPositions && oldest !== undefined) this.#positions.delete(oldest)
  }

  /** The head as of `revision`, if that is remembered. */
  position(revision: number): ClusterHead | undefined {
    return this.#positions.get(revision)
  }

  /** Throws StoreError `replaced` where the head as of a revision is not the one that it was. */
  assertPosition(head: ClusterHead, known: ClusterHead): void {
    if (head.revision !== known.revision || head.mark !== known.mark) throw this.#replace('the etcd cluster has another history', this.#seen)
  }

  #replace(message: string, seen: SeenCluster): StoreError {
    const error = new StoreError('replaced', message)
    this.#seen = seen
    this.#head = { revision: 0, mark: '' }
    this.#positions.clear()
    this.#epoch++
    this.#replaced.abort(error)
    this.#replaced = new AbortController()
    return error
  }
}
