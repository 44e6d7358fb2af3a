import { backoffMs, pause, type Backoff, type Timers } from '../../base/timing.ts'

/** Maximum size of the lines that wait in memory for the disk, in bytes. */
const maxWaitingBytes = 4 * 1024 * 1024
const backoff: Backoff = { firstMs: 100, maxMs: 10_000 }

/** Settings of a line queue. */
export interface LineQueueOptions {
  /** Appends complete lines durably. If it throws, later reads must not find any of them. */
  readonly store: (bytes: Buffer) => Promise<void>
  readonly failed: (error: unknown) => void
  readonly timers: Timers
}

/** Appends lines to a file in order and in batches. A failed write is repeated. No caller waits for the disk. */
export class LineQueue {
  readonly #options: LineQueueOptions
  readonly #closing = new AbortController()
  #lines: Buffer[] = []
  #bytes = 0
  #writing: Promise<void> | undefined

  constructor(options: LineQueueOptions) {
    this.#options = options
  }

  /** Size of the lines that are not stored yet, in bytes. */
  get bytes(): number {
    return this.#bytes
  }

  /** Queues a line without its line end. Returns false if the queue is full. */
  append(line: string): boolean {
    const bytes = Buffer.from(`${line}\n`)
    if (this.#closing.signal.aborted || this.#bytes + bytes.length > maxWaitingBytes) return false
    this.#lines.push(bytes)
    this.#bytes += bytes.length
    this.#writing ??= this.#write().finally(() => (this.#writing = undefined))
    return true
  }

  /** Writes the waiting lines if possible. Later lines are ignored. Resolves with the number of lines that could not be written. */
  async close(): Promise<number> {
    this.#closing.abort()
    await this.#writing
    return this.#lines.length
  }

  async #write(): Promise<void> {
    // Collects the lines that are queued in the same turn of the event loop, to write them together.
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
