import { write, writeSync } from 'node:fs'

/** Maximum size of unwritten lines, in bytes. Further lines are dropped. */
const maxKeptBytes = 4 * 1024 * 1024
/** Delay before a failed write is retried, in milliseconds. */
const retryMs = 1_000
/** How long an end waits for a running write, in milliseconds. */
const closeMs = 1_000
/** Maximum number of times that a flush waits one more millisecond for a slow reader. */
const maxFlushWaits = 100

/**
 * Appends lines to an open file. A full disk or a slow reader neither ends nor blocks the process. Unwritten lines are kept and written
 * later, complete and in order. Beyond the size limit, lines are dropped. pino's own destination would end the process, and could wait
 * forever at exit.
 */
export class LogDestination {
  readonly #fd: number
  readonly #format: (line: string) => string
  #lines: string[] = []
  #keptBytes = 0
  #dropped = 0
  /** The bytes that are being written, or whose write failed last. */
  #writing: Buffer | undefined
  #busy = false
  /** Called when the running write has ended. */
  #onWritten: (() => void) | undefined
  #retry: NodeJS.Timeout | undefined

  /** `format` makes the line to write from a line of JSON. By default, JSON is written. */
  constructor(fd: number, format = (line: string): string => line) {
    this.#fd = fd
    this.#format = format
  }

  /** Queues a line of JSON, including its line end. Never throws. */
  write(json: string): void {
    const line = this.#format(json)
    if (this.#keptBytes + line.length > maxKeptBytes) {
      this.#dropped += 1
      return
    }
    this.#lines.push(line)
    this.#keptBytes += line.length
    if (this.#retry === undefined) this.#writeOn()
  }

  /** Writes as many of the kept lines as possible now. Never throws. If nothing reads them, takes at most 0.1 s. */
  flush(): void {
    // The result of a running write is unknown. Writing its lines twice is better than losing them.
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

  /** Waits for a running write, at most 1 s, and then flushes. So each line is written once. Never rejects. */
  async close(): Promise<void> {
    if (this.#busy) {
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#onWritten = resolve
      const timer = setTimeout(resolve, closeMs)
      await promise
      clearTimeout(timer)
      this.#onWritten = undefined
    }
    this.flush()
  }

  #writeOn(): void {
    const bytes = this.#busy ? undefined : this.#next()
    if (bytes === undefined) return
    this.#busy = true
    write(this.#fd, bytes, (error, count) => {
      this.#busy = false
      this.#wrote(bytes, error === null ? count : 0)
      if (this.#onWritten !== undefined) this.#onWritten()
      else if (error === null) this.#writeOn()
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
        this.#lines.push(
          this.#format(`${JSON.stringify({ level: 40, time: new Date().toISOString(), lines: this.#dropped, message: 'log lines were dropped' })}\n`),
        )
      this.#dropped = 0
      this.#writing = Buffer.from(this.#lines.join(''))
      this.#lines = []
    }
    return this.#writing
  }

  #wrote(bytes: Buffer, count: number): void {
    // A flush has written these bytes meanwhile.
    if (this.#writing !== bytes) return
    this.#writing = count < bytes.length ? bytes.subarray(count) : undefined
    if (this.#writing === undefined) this.#keptBytes = this.#lines.reduce((sum, line) => sum + line.length, 0)
  }
}

function isBusy(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EAGAIN'
}
