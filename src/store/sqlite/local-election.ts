import type { Leadership, StoreError } from '../store.ts'
import { untilAborted } from '../../base/timing.ts'

/** The abort reason of `lost` if the leader itself resigned. */
const resigned = 'resigned'

/** A candidate of an election. The first one in the list leads; the others wait in order. */
interface ElectionCandidate {
  readonly won: PromiseWithResolvers<void>
  readonly lost: AbortController
}

/** Leader elections among the callers of one process, for a store that only one process can use. */
export class LocalElections {
  readonly #queues = new Map<string, ElectionCandidate[]>()

  /** Resolves when the caller leads the election `name`. Rejects with the signal's reason if it aborts, or with StoreError `closed`. */
  async elect(name: string, signal: AbortSignal): Promise<Leadership> {
    signal.throwIfAborted()
    const candidate: ElectionCandidate = { won: Promise.withResolvers(), lost: new AbortController() }
    const queue = this.#queues.get(name) ?? []
    this.#queues.set(name, queue)
    queue.push(candidate)
    if (queue[0] === candidate) candidate.won.resolve()
    try {
      await untilAborted(candidate.won.promise, signal)
    } catch (error) {
      this.#leave(name, candidate)
      throw error
    }
    return {
      lost: candidate.lost.signal,
      resign: async () => {
        candidate.lost.abort(resigned)
        this.#leave(name, candidate)
      },
    }
  }

  /** Ends every leadership and rejects all waiting candidates with `error`. */
  close(error: StoreError): void {
    for (const candidate of [...this.#queues.values()].flat()) {
      candidate.won.reject(error)
      candidate.lost.abort(error)
    }
    this.#queues.clear()
  }

  #leave(name: string, candidate: ElectionCandidate): void {
    const queue = this.#queues.get(name)
    const at = queue?.indexOf(candidate) ?? -1
    if (queue === undefined || at < 0) return
    queue.splice(at, 1)
    if (queue.length === 0) this.#queues.delete(name)
    else if (at === 0) queue[0]?.won.resolve()
  }
}
