import { createWriteStream } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import type { ReadEntry } from 'tar'
import { ContentError } from '../package.ts'

/** A regular file in a layer. Only one of its methods may be called, and only once. */
export interface LayerFile {
  /** The path without a slash at the start, for example `usr/bin/env`. */
  readonly path: string
  /** The bytes in order. The rest is skipped if the reader stops. */
  pieces(): AsyncIterable<Buffer>
  /** Returns all bytes. Rejects with ContentError TOO_LARGE if there are more than `most`. */
  bytes(most: number): Promise<Buffer>
  /** Writes the file to the disk and returns that path, which is good until the reader returns. Rejects as `bytes` does. */
  saved(most: number): Promise<string>
}

/** A file from the entry of a tar. */
export class EntryFile implements LayerFile {
  readonly path: string
  readonly #entry: ReadEntry
  readonly #target: string
  #isSaved = false

  /** `folder` is a folder on the disk where a file can be saved. */
  constructor(entry: ReadEntry, { path, folder }: { readonly path: string; readonly folder: string }) {
    this.#entry = entry
    this.path = path
    this.#target = join(folder, 'file')
  }

  pieces(): AsyncIterable<Buffer> {
    // An entry has bytes as long as no encoding is set.
    return this.#entry as AsyncIterable<Buffer>
  }

  async bytes(most: number): Promise<Buffer> {
    this.#check(most)
    const pieces: Buffer[] = []
    for await (const piece of this.pieces()) pieces.push(piece)
    return Buffer.concat(pieces)
  }

  async saved(most: number): Promise<string> {
    this.#check(most)
    this.#isSaved = true
    await pipeline(this.pieces(), createWriteStream(this.#target))
    return this.#target
  }

  /** Deletes what `saved` has written. */
  async close(): Promise<void> {
    if (this.#isSaved) await rm(this.#target, { force: true })
  }

  #check(most: number): void {
    if (this.#entry.size > most) throw new ContentError('TOO_LARGE', `the file has ${this.#entry.size} bytes, more than ${most}`)
  }
}
