import { filledTo, readMemory } from '../../release.ts'

/** Up to so many bytes are copied, and the memory takes the next read. */
const smallRead = 32 * 1024
/** So many reads, each within so many milliseconds of the one before, are made by a connection that flows. */
const flowingReads = 32
const flowingMs = 250

/** Memory for the reads of one connection, in large pieces where bytes flow: with Node's own reads a blob takes nearly twice the processor time. */
export class ReadPieces {
  #memory = readMemory('narrow')
  #reads = 0
  #lastMs = 0

  /** Where the next bytes go. */
  get memory(): Buffer {
    return this.#memory
  }

  /** Returns the bytes that were just read: a copy of a small read, else the memory itself, which is replaced. The receiver may release them. */
  take(length: number): Buffer {
    const nowMs = performance.now()
    this.#reads = nowMs - this.#lastMs < flowingMs ? this.#reads + 1 : 0
    this.#lastMs = nowMs
    const memory = this.#memory
    if (length <= smallRead) return Buffer.from(memory.subarray(0, length))
    this.#memory = readMemory(this.#reads < flowingReads ? 'narrow' : 'wide')
    return filledTo(memory, length)
  }
}
