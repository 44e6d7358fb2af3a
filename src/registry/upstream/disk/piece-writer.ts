import type { FileHandle } from 'node:fs/promises'
import { isTransferred, release } from '../../release.ts'

/** Maximum number of bytes that wait for an earlier write to end. */
const mostGathered = 512 * 1024

/**
 * Writes pieces to the end of a file, in order, with one write at a time. Pieces that arrive during a write share the next one. So a fast
 * client costs few calls, and the piece of a slow client does not wait. Releases the memory of transferred pieces once they are written.
 */
export class PieceWriter {
  readonly #handle: FileHandle
  #position: number
  #gathered: Uint8Array[] = []
  #gatheredBytes = 0
  #writing: Promise<void> | undefined
  #failure: { readonly cause: unknown } | undefined

  constructor(handle: FileHandle, position: number) {
    this.#handle = handle
    this.#position = position
  }

  /** Adds a piece. Resolves when there is room for another one. Rejects with the error of an earlier write. */
  async add(piece: Uint8Array): Promise<void> {
    this.#check()
    this.#gathered.push(piece)
    this.#gatheredBytes += piece.length
    if (this.#writing === undefined) this.#write()
    else if (this.#gatheredBytes >= mostGathered) await this.#writing
  }

  /** Resolves when all pieces are written. Rejects with the first error of a write. */
  async end(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing
    this.#check()
  }

  /** Writes the waiting pieces, then those that arrived meanwhile. */
  #write(): void {
    const pieces = this.#gathered
    this.#gathered = []
    this.#gatheredBytes = 0
    const ended = (cause?: { readonly cause: unknown }): void => {
      this.#writing = undefined
      this.#failure = cause
      if (cause === undefined && this.#gathered.length > 0) this.#write()
    }
    this.#writing = this.#writeAll(pieces).then(
      () => ended(),
      (cause: unknown) => ended({ cause }),
    )
  }

  async #writeAll(pieces: readonly Uint8Array[]): Promise<void> {
    for (let rest = pieces; rest.length > 0;) {
      const { bytesWritten } = await this.#handle.writev(rest, this.#position)
      this.#position += bytesWritten
      rest = after(rest, bytesWritten)
    }
    for (const piece of pieces) if (isTransferred(piece)) release(piece)
  }

  #check(): void {
    if (this.#failure !== undefined) throw this.#failure.cause
  }
}

/** Returns the pieces without their first `bytes` bytes. */
function after(pieces: readonly Uint8Array[], bytes: number): readonly Uint8Array[] {
  let skipped = 0
  for (const [at, piece] of pieces.entries()) {
    if (skipped + piece.length > bytes) return [piece.subarray(bytes - skipped), ...pieces.slice(at + 1)]
    skipped += piece.length
  }
  return []
}
