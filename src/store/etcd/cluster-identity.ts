import { StoreError } from '../store.ts'
import type { ResponseHeader } from './etcd-messages.ts'

/** The highest revision and raft term that etcd answers had shown before a call began. */
export interface SeenCluster {
  readonly revision: number
  readonly term: number
}

/** The last commit on the watched keys at some revision: its own revision, and a unique mark that it wrote. The revision is 0 if there was no commit yet. */
export interface ClusterHead {
  readonly revision: number
  readonly mark: string
}

/** Maximum number of revisions whose ClusterHead is remembered. */
const maxPositions = 32

/**
 * Detects that the etcd cluster was replaced, or restored from a backup. The signs are another cluster id, or a linearizable answer with a lower revision or
 * raft term than an earlier one. Once a restored cluster has passed the earlier revision, the sign is a different last commit at a known revision. Each
 * replacement starts a new epoch.
 */
export class ClusterIdentity {
  #clusterId: string | undefined
  #seen: SeenCluster = { revision: 0, term: 0 }
  #epoch = 0
  #replaced = new AbortController()
  #head: ClusterHead = { revision: 0, mark: '' }
  /** The last commit on the watched keys at each revision from which a watch may start. */
  readonly #positions = new Map<number, ClusterHead>()

  /** The number of detected replacements of the cluster. */
  get epoch(): number {
    return this.#epoch
  }

  /** The highest revision and raft term seen so far. Pass it to `observe` with the answer of a call that starts now. */
  get seen(): SeenCluster {
    return this.#seen
  }

  /** A signal that aborts with StoreError `replaced` when the next replacement of the cluster is detected. */
  get replaced(): AbortSignal {
    return this.#replaced.signal
  }

  /** Checks the header of an answer for a replaced cluster. `before` is the value of `seen` before the call began; undefined if the answer is not linearizable. */
  observe(header: ResponseHeader, before: SeenCluster | undefined): void {
    const revision = Number(header.revision)
    const term = Number(header.raft_term)
    const other = this.#clusterId !== undefined && this.#clusterId !== header.cluster_id
    const wentBack = before !== undefined && (revision < before.revision || term < before.term)
    this.#clusterId = header.cluster_id
    if (other || wentBack) {
      this.#replace(other ? 'etcd answered with another cluster id' : 'the etcd cluster returned to an earlier revision', { revision, term })
    } else if (before !== undefined) {
      this.#seen = { revision: Math.max(revision, this.#seen.revision), term: Math.max(term, this.#seen.term) }
    }
  }

  /** The newest commit on the watched keys that a watch has shown. Pass it to `assertHead` with the answer of a read that starts now. */
  get head(): ClusterHead {
    return this.#head
  }

  /** Records the newest commit that a watch has shown. */
  showHead(head: ClusterHead): void {
    if (head.revision > this.#head.revision) this.#head = head
  }

  /**
   * Throws StoreError `replaced` if a linearizable read shows an older last commit than `before`, or a different one at the same revision. `before` is the
   * value of `head` before the read began.
   */
  assertHead(head: ClusterHead, before: ClusterHead): void {
    if (head.revision > before.revision || (head.revision === before.revision && head.mark === before.mark)) return
    throw this.#replace('the commits of the etcd cluster are not those seen before: it was replaced or restored', this.#seen)
  }

  /** Remembers the last commit on the watched keys as of a revision from which a watch may start. */
  notePosition(revision: number, head: ClusterHead): void {
    this.#positions.set(revision, head)
    const [oldest] = this.#positions.keys()
    if (this.#positions.size > maxPositions && oldest !== undefined) this.#positions.delete(oldest)
  }

  /** Returns the last commit on the watched keys as of `revision`; undefined if it is not remembered. */
  position(revision: number): ClusterHead | undefined {
    return this.#positions.get(revision)
  }

  /** Throws StoreError `replaced` if the last commit as of a revision differs from the one remembered for it. */
  assertPosition(head: ClusterHead, known: ClusterHead): void {
    if (head.revision !== known.revision || head.mark !== known.mark)
      throw this.#replace('the commits of the etcd cluster are not those seen before: it was replaced or restored', this.#seen)
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
