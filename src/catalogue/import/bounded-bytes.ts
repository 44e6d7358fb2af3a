/** The largest document, in bytes. A larger one is refused without being kept in memory. */
export const maxDocumentBytes = 16 * 1024 * 1024

/** Collects bytes up to a limit. Bytes beyond it are dropped. */
export class BoundedBytes {
  #pieces: Uint8Array[] = []
  #length = 0

  get isOver(): boolean {
    return this.#length > maxDocumentBytes
  }

  get isEmpty(): boolean {
    return this.#length === 0
  }

  get length(): number {
    return this.#length
  }

  /** Returns the bytes, and keeps them. */
  peek(): Buffer {
    return Buffer.concat(this.#pieces)
  }

  add(piece: Uint8Array): void {
    this.#length += piece.length
    if (this.isOver) this.#pieces = []
    else if (piece.length > 0) this.#pieces.push(piece)
  }

  take(): Buffer {
    const bytes = Buffer.concat(this.#pieces)
    this.#pieces = []
    this.#length = 0
    return bytes
  }
}
