import { open, rename, rm, type FileHandle } from 'node:fs/promises'
import type { AuditEvent } from '../../base/audit-line.ts'
import type { Timers } from '../../base/timing.ts'
import { LineQueue } from './line-queue.ts'
import type { AuditSink, SinkObserver } from './sink.ts'

/** Settings of a file sink. */
export interface FileSinkOptions {
  readonly name: string
  readonly path: string
  /** Size at which a new file is started, in bytes. */
  readonly maxBytes: number
  /** Maximum number of files to keep, including the current one. */
  readonly maxFiles: number
  readonly observer: SinkObserver
  readonly timers: Timers
}

/** Appends events to a file, as one line of JSON each. A full file becomes `<path>.1`, and the number of each older file increases by one. */
export class FileSink implements AuditSink {
  readonly name: string
  readonly #options: FileSinkOptions
  readonly #queue: LineQueue
  #file: FileHandle
  #size: number
  /** Times of the waiting events, oldest first. */
  readonly #times: string[] = []

  private constructor(options: FileSinkOptions, file: FileHandle, size: number) {
    this.name = options.name
    this.#options = options
    this.#file = file
    this.#size = size
    this.#queue = new LineQueue({ store: (bytes) => this.#store(bytes), failed: options.observer.failed, timers: options.timers })
  }

  /** Opens the file. Rejects if it cannot be written. */
  static async open(options: FileSinkOptions): Promise<FileSink> {
    const file = await open(options.path, 'a', 0o600)
    return new FileSink(options, file, (await file.stat()).size)
  }

  get waitingBytes(): number {
    return this.#queue.bytes
  }

  get oldestMs(): number | undefined {
    const [first] = this.#times
    return first === undefined ? undefined : Date.parse(first)
  }

  write({ time }: AuditEvent, json: () => string): void {
    const text = json()
    if (this.#queue.append(text)) this.#times.push(time)
    else this.#options.observer.counted('dropped', 1)
  }

  async close(): Promise<void> {
    const lost = await this.#queue.close()
    if (lost > 0) this.#options.observer.counted('dropped', lost)
    await this.#file.close()
  }

  async #store(bytes: Buffer): Promise<void> {
    if (this.#size > 0 && this.#size + bytes.length > this.#options.maxBytes) await this.#rotate()
    try {
      await this.#file.appendFile(bytes)
      await this.#file.datasync()
    } catch (error) {
      // Removes a line that was written only in part.
      await this.#file.truncate(this.#size).catch(() => undefined)
      throw error
    }
    this.#size += bytes.length
    let count = 0
    for (const byte of bytes) if (byte === 10) count += 1
    this.#times.splice(0, count)
    this.#options.observer.counted('delivered', count)
  }

  async #rotate(): Promise<void> {
    const { path, maxFiles } = this.#options
    await rm(`${path}.${maxFiles - 1}`, { force: true })
    for (let number = maxFiles - 2; number >= 1; number--) await rename(`${path}.${number}`, `${path}.${number + 1}`).catch(ignoreMissing)
    await (maxFiles > 1 ? rename(path, `${path}.1`) : rm(path, { force: true })).catch(ignoreMissing)
    const file = await open(path, 'a', 0o600)
    await this.#file.close()
    this.#file = file
    this.#size = (await file.stat()).size
  }
}

function ignoreMissing(error: unknown): void {
  if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error
}
