import { StoreError } from '../store.ts'
import type { ResponseHeader } from './etcd-messages.ts'

/** The cluster state seen before a call began. */
export interface SeenCluster {
  readonly revision: number
  readonly term: number
}

/** The newest commit on the watched prefixes as of some revision: its revision, and a mark that only it wrote. Revision 0 if there was none. */
export interface ClusterHead {
  readonly revision: number
  readonly mark: string
}

/** Maximum number of remembered positions. */
const maxPositions = 32

/**
 * Detects whether the cluster was replaced or restored. One sign is another cluster id. Another is a linearizable answer with a lower revision or raft term
 * than seen before the call began. After a backup has overtaken the seen revision, the sign is a different head at a known revision. Each replacement starts an
 * epoch.
 */
export class ClusterIdentity {
  #clusterId: string | undefined
  #seen: SeenCluster = { revision: 0, term: 0 }
  #epoch = 0
  #replaced = new AbortController()
  #head: ClusterHead = { revision: 0, mark: '' }
  /** The head at each revision from which a watch may start. */
  readonly #positions = new Map<number, ClusterHead>()

  /** The number of replacements. */
  get epoch(): number {
    return this.#epoch
  }

  /** The state seen so far, for `observe`. */
  get seen(): SeenCluster {
    return this.#seen
  }

  /** Aborts when the current epoch ends, with StoreError `replaced` as the reason. */
  get replaced(): AbortSignal {
    return this.#replaced.signal
  }

  /** Records an answer. `before` is the state seen before its call began; undefined if the answer is not linearizable. */
  observe(header: ResponseHeader, before: SeenCluster | undefined): void {
    const revision = Number(header.revision)
    const term = Number(header.raft_term)
    const other = this.#clusterId !== undefined && this.#clusterId !== header.cluster_id
    const wentBack = before !== undefined && (revision < before.revision || term < before.term)
    this.#clusterId = header.cluster_id
    if (other || wentBack) {
      this.#replace(other ? 'this is another etcd cluster' : 'the etcd cluster returned to an earlier revision', { revision, term })
    } else if (before !== undefined) {
      this.#seen = { revision: Math.max(revision, this.#seen.revision), term: Math.max(term, this.#seen.term) }
    }
  }

  /** The newest head seen, for `assertHead`. */
  get head(): ClusterHead {
    return this.#head
  }

  /** Records a head that a watch has shown. */
  showHead(head: ClusterHead): void {
    if (head.revision > this.#head.revision) this.#head = head
  }

  /** Throws StoreError `replaced` if a linearizable answer has an older head than `before`, seen before its call began, or a different one at that revision. */
  assertHead(head: ClusterHead, before: ClusterHead): void {
    if (head.revision > before.revision || (head.revision === before.revision && head.mark === before.mark)) return
    throw this.#replace('the etcd cluster has another history', this.#seen)
  }

  /** Remembers the head at a revision from which a watch may start. */
  notePosition(revision: number, head: ClusterHead): void {
    this.#positions.set(revision, head)
    const [oldest] = this.#positions.keys()
    if (this.#positions.size > maxPositions && oldest !== undefined) this.#positions.delete(oldest)
  }

  /** Returns the head at `revision` if it is remembered. */
  position(revision: number): ClusterHead | undefined {
    return this.#positions.get(revision)
  }

  /** Throws StoreError `replaced` if the head at a revision differs from the known one. */
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
