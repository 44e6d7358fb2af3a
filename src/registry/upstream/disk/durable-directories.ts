import { mkdir, rename } from 'node:fs/promises'
import { dirname } from 'node:path'
import { RecentMap } from '../../../base/recent-map.ts'
import { syncDirectory } from './disk-files.ts'

/** Maximum number of directories known to be on the disk. Others are flushed again when they are next used. */
const mostKnown = 10_000

/**
 * Directories below `root`. Their names and contents are flushed to the disk before a call that needs them resolves. Concurrent calls
 * share flushes.
 */
export class DurableDirectories {
  readonly #root: string
  /** By directory: a promise that resolves when its name, and the names of its parents, are on the disk. */
  readonly #known = new RecentMap<string, Promise<unknown>>(mostKnown)
  /** By directory: the flush in progress. */
  readonly #flushing = new Map<string, Promise<void>>()
  /** By directory: the flush that starts after the one in progress. It covers every change until it starts. */
  readonly #waiting = new Map<string, Promise<void>>()

  constructor(root: string) {
    this.#root = root
  }

  /** Creates a directory and its parents. All of them are on the disk when this resolves, even if another call created them. */
  async make(directory: string): Promise<void> {
    await this.#make(directory)
    await this.#flushName(directory)
  }

  /** Moves a file, whose bytes are on the disk, to its final name. Replaces an existing file. */
  async moveInto(from: string, to: string): Promise<void> {
    const directory = dirname(to)
    await this.#make(directory)
    await rename(from, to)
    await Promise.all([this.#flushName(directory), this.flush(directory)])
  }

  /** Resolves when the names in a directory, as of this call, are on the disk. */
  flush(directory: string): Promise<void> {
    const waiting = this.#waiting.get(directory)
    if (waiting !== undefined) return waiting
    const begun = this.#flushing.get(directory)
    if (begun === undefined) return this.#begin(directory)
    const begin = (): Promise<void> => this.#begin(directory)
    const next = begun.then(begin, begin)
    this.#waiting.set(directory, next)
    return next
  }

  #begin(directory: string): Promise<void> {
    this.#waiting.delete(directory)
    const flush = syncDirectory(directory).finally(() => this.#flushing.delete(directory))
    this.#flushing.set(directory, flush)
    return flush
  }

  async #make(directory: string): Promise<void> {
    const first = await mkdir(directory, { recursive: true, mode: 0o700 })
    if (first === undefined) return
    for (let made = directory; made.length >= first.length; made = dirname(made)) this.#known.delete(made)
  }

  /** Resolves when the names of a directory and of its parents are on the disk. */
  #flushName(directory: string): Promise<unknown> {
    if (directory === this.#root) return Promise.resolve()
    const known = this.#known.get(directory)
    if (known !== undefined) return known
    const parent = dirname(directory)
    const flushed = Promise.all([this.#flushName(parent), this.flush(parent)])
    this.#known.set(directory, flushed)
    flushed.catch(() => this.#known.delete(directory))
    return flushed
  }
}
