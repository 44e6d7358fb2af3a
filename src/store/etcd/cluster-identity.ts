import type { IResponseHeader } from 'etcd3'
import { StoreError } from '../store.ts'

/** What had been seen of the cluster when a call began. */
export interface Seen {
  readonly revision: number
  readonly term: number
}

/**
 * Tells whether the cluster is still the one that it was: another cluster id, or a linearizable answer with a revision or raft term below
 * what had been seen before the call began, means that it was replaced or restored. Each replacement starts an epoch.
 */
export class ClusterIdentity {
  #clusterId: string | undefined
  #seen: Seen = { revision: 0, term: 0 }
  #epoch = 0
  #replaced = new AbortController()

  /** Counts replacements. */
  get epoch(): number {
    return this.#epoch
  }

  /** What has been seen so far, for `observe`. */
  get seen(): Seen {
    return this.#seen
  }

  /** Aborts, with StoreError `replaced` as the reason, when the present epoch ends. */
  get replaced(): AbortSignal {
    return this.#replaced.signal
  }

  /** Takes note of an answer. `before` is what had been seen when its call began; undefined where the answer isn't linearizable. */
  observe(header: IResponseHeader, before: Seen | undefined): void {
    const revision = Number(header.revision)
    const term = Number(header.raft_term)
    const other = this.#clusterId !== undefined && this.#clusterId !== header.cluster_id
    const wentBack = before !== undefined && (revision < before.revision || term < before.term)
    this.#clusterId = header.cluster_id
    if (other || wentBack) {
      this.#seen = { revision, term }
      this.#epoch++
      this.#replaced.abort(new StoreError('replaced', other ? 'the etcd cluster is another one' : 'the etcd cluster went back in time'))
      this.#replaced = new AbortController()
    } else if (before !== undefined) {
      this.#seen = { revision: Math.max(revision, this.#seen.revision), term: Math.max(term, this.#seen.term) }
    }
  }
}
