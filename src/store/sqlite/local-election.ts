import type { Leadership, StoreError } from '../store.ts'
import { untilAborted } from '../../base/timing.ts'

/** The reason of `lost` if the leader itself resigned. */
const resigned = 'resigned'

/** One name's candidates: the first leads, the others wait in order. */
interface ElectionCandidate {
  readonly won: PromiseWithResolvers<void>
  readonly lost: AbortController
}

/** Elections among the callers of one process, for a store that only one process uses. */
export class LocalElections {
  readonly #queues = new Map<string, ElectionCandidate[]>()

  /** Waits for leadership; rejects with the signal's reason once it aborts, or with `closed`. */
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

  /** Ends every leadership and rejects all waiting calls. */
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
