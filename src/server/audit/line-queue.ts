import { backoffMs, pause, type Backoff, type Timers } from '../../base/timing.ts'

/** Total size of lines that wait in memory for a slow or full disk. */
const maxWaitingBytes = 4 * 1024 * 1024
const backoff: Backoff = { firstMs: 100, maxMs: 10_000 }

/** The parts of a queue. */
export interface LineQueueOptions {
  /** Appends whole lines durably, or throws and has appended none that later reads find. */
  readonly store: (bytes: Buffer) => Promise<void>
  readonly failed: (error: unknown) => void
  readonly timers: Timers
}

/** Appends lines to a disk in order and in batches. A failed write is repeated. No caller waits for the disk. */
export class LineQueue {
  readonly #options: LineQueueOptions
  readonly #closing = new AbortController()
  #lines: Buffer[] = []
  #bytes = 0
  #writing: Promise<void> | undefined

  constructor(options: LineQueueOptions) {
    this.#options = options
  }

  /** Size of the lines that are not stored yet. */
  get bytes(): number {
    return this.#bytes
  }

  /** Queues a line without its end. Returns false if the queue is full. */
  append(line: string): boolean {
    const bytes = Buffer.from(`${line}\n`)
    if (this.#closing.signal.aborted || this.#bytes + bytes.length > maxWaitingBytes) return false
    this.#lines.push(bytes)
    this.#bytes += bytes.length
    this.#writing ??= this.#write().finally(() => (this.#writing = undefined))
    return true
  }

  /** Tries to write what waits. Takes no further lines. Returns the number of lines that could not be written. */
  async close(): Promise<number> {
    this.#closing.abort()
    await this.#writing
    return this.#lines.length
  }

  async #write(): Promise<void> {
    // Lines of one turn are written together.
    await Promise.resolve()
    for (let failures = 0; this.#lines.length > 0;) {
      const lines = this.#lines.splice(0)
      const bytes = Buffer.concat(lines)
      try {
        await this.#options.store(bytes)
        this.#bytes -= bytes.length
        failures = 0
      } catch (error) {
        this.#lines.unshift(...lines)
        this.#options.failed(error)
        if (this.#closing.signal.aborted) return
        failures += 1
        await pause(backoffMs(backoff, failures), this.#closing.signal, this.#options.timers)
      }
    }
  }
}
