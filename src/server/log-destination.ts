import { write, writeSync } from 'node:fs'

/** Lines that can't be written are kept up to this size together; what comes after is dropped. */
const maxKeptBytes = 4 * 1024 * 1024
/** When a failed write is tried again, in milliseconds. */
const retryMs = 1_000
/** How often a reader that does not keep up is given another millisecond when everything is flushed. */
const maxFlushWaits = 100

/**
 * Appends lines to an open file. A full disk, or a reader that does not keep up, neither ends the process nor makes it wait: lines are kept and written
 * later, in order and whole; those for which there is no room are dropped. pino's own destination ends the process then, and waits forever while it ends.
 */
export class LogDestination {
  readonly #fd: number
  #lines: string[] = []
  #keptBytes = 0
  #dropped = 0
  /** What is being written, or was not written yet the last time. */
  #writing: Buffer | undefined
  #busy = false
  #retry: NodeJS.Timeout | undefined

  constructor(fd: number) {
    this.#fd = fd
  }

  /** Takes one line, with its end. Never throws. */
  write(line: string): void {
    if (this.#keptBytes + line.length > maxKeptBytes) {
      this.#dropped += 1
      return
    }
    this.#lines.push(line)
    this.#keptBytes += line.length
    if (this.#retry === undefined) this.#writeOn()
  }

  /** Writes what is kept, as far as that can be done now. Never throws, and takes 0.1 s at most where nobody reads. */
  flush(): void {
    // A write that is under way may or may not have happened: its lines are rather written twice than lost.
    for (let waits = 0; ;) {
      const bytes = this.#next()
      if (bytes === undefined) return
      try {
        this.#wrote(bytes, writeSync(this.#fd, bytes))
      } catch (error) {
        if (!isBusy(error) || waits === maxFlushWaits) return
        waits += 1
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1)
      }
    }
  }

  #writeOn(): void {
    const bytes = this.#busy ? undefined : this.#next()
    if (bytes === undefined) return
    this.#busy = true
    write(this.#fd, bytes, (error, count) => {
      this.#busy = false
      this.#wrote(bytes, error === null ? count : 0)
      if (error === null) this.#writeOn()
      else this.#writeLater(isBusy(error) ? 10 : retryMs)
    })
  }

  #writeLater(delayMs: number): void {
    this.#retry = setTimeout(() => {
      this.#retry = undefined
      this.#writeOn()
    }, delayMs)
    this.#retry.unref()
  }

  #next(): Buffer | undefined {
    if (this.#writing === undefined && this.#lines.length > 0) {
      if (this.#dropped > 0)
        this.#lines.push(`${JSON.stringify({ level: 40, time: new Date().toISOString(), lines: this.#dropped, message: 'log lines were dropped' })}\n`)
      this.#dropped = 0
      this.#writing = Buffer.from(this.#lines.join(''))
      this.#lines = []
    }
    return this.#writing
  }

  #wrote(bytes: Buffer, count: number): void {
    // Flushed meanwhile.
    if (this.#writing !== bytes) return
    this.#writing = count < bytes.length ? bytes.subarray(count) : undefined
    if (this.#writing === undefined) this.#keptBytes = this.#lines.reduce((sum, line) => sum + line.length, 0)
  }
}

function isBusy(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EAGAIN'
}
