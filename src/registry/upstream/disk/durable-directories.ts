import { mkdir, rename } from 'node:fs/promises'
import { dirname } from 'node:path'
import { RecentMap } from '../../../base/recent-map.ts'
import { syncDirectory } from './disk-files.ts'

/** Maximum number of directories known to be on the disk; others are flushed again at their next use. */
const mostKnown = 10_000

/** The directories below `root`, whose names and contents reach the disk before a call that needs them resolves. Calls at one time share their flushes. */
export class DurableDirectories {
  readonly #root: string
  /** By directory: settles when its name, and those of the directories above it, are on the disk. */
  readonly #known = new RecentMap<string, Promise<unknown>>(mostKnown)
  /** By directory: the flush that has begun. */
  readonly #flushing = new Map<string, Promise<void>>()
  /** By directory: the flush that begins when that one ends. It covers every change until then. */
  readonly #waiting = new Map<string, Promise<void>>()

  constructor(root: string) {
    this.#root = root
  }

  /** Makes a directory and those above it. All of them are on the disk when this resolves, whichever call has made them. */
  async make(directory: string): Promise<void> {
    await this.#make(directory)
    await this.#flushName(directory)
  }

  /** Gives a file, whose bytes are on the disk, its final name; a file of that name is replaced. */
  async moveInto(from: string, to: string): Promise<void> {
    const directory = dirname(to)
    await this.#make(directory)
    await rename(from, to)
    await Promise.all([this.#flushName(directory), this.flush(directory)])
  }

  /** Resolves when the names in a directory are on the disk, as they were at the call. */
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

  /** Resolves when the names of a directory and of those above it are on the disk. */
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
