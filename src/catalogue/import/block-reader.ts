import { open, type FileHandle } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { fromRandomAccessReaderPromise, RandomAccessReader, type ZipFile } from 'yauzl'

const blockBytes = 256 * 1024
/** A zip is read in two places at once: its directory, and its files. Each may lie on the border of two blocks. */
const keptBlocks = 4

/** Reads a zip in blocks, and keeps the last ones: its files are small, and each one needs several reads. */
class BlockReader extends RandomAccessReader {
  readonly #handle: FileHandle
  readonly #blocks = new Map<number, Promise<Buffer>>()

  constructor(handle: FileHandle) {
    super()
    this.#handle = handle
  }

  override read(...[buffer, offset, length, position, callback]: Parameters<RandomAccessReader['read']>): void {
    const copy = async (): Promise<void> => {
      let at = offset
      for await (const piece of this.#pieces(position, position + length)) at += piece.copy(buffer, at)
    }
    // An error of the callback must not reach this promise.
    copy().then(
      () => setImmediate(callback, null),
      (error: Error) => setImmediate(callback, error),
    )
  }

  override createReadStream({ start, end }: { start: number; end: number }): Readable {
    return Readable.from(this.#pieces(start, end), { objectMode: false })
  }

  override close(callback: (error: Error | null) => void): void {
    this.#handle.close().then(() => callback(null), callback)
  }

  async *#pieces(start: number, end: number): AsyncGenerator<Buffer, void, undefined> {
    for (let at = start; at < end;) {
      const number = Math.floor(at / blockBytes)
      const from = at - number * blockBytes
      const piece = (await this.#block(number)).subarray(from, from + end - at)
      if (piece.length === 0) throw new Error('the file ends early')
      yield piece
      at += piece.length
    }
  }

  #block(number: number): Promise<Buffer> {
    const block = this.#blocks.get(number) ?? this.#readBlock(number)
    // The block that was used last is the last one to go.
    this.#blocks.delete(number)
    this.#blocks.set(number, block)
    for (const old of this.#blocks.keys()) if (this.#blocks.size > keptBlocks) this.#blocks.delete(old)
    return block
  }

  async #readBlock(number: number): Promise<Buffer> {
    const { buffer, bytesRead } = await this.#handle.read(Buffer.allocUnsafe(blockBytes), 0, blockBytes, number * blockBytes)
    return buffer.subarray(0, bytesRead)
  }
}

/** Opens a zip: close it. Rejects for a file of another format, or with an error of the file system. */
export async function openZip(path: string): Promise<ZipFile> {
  const handle = await open(path)
  try {
    const { size } = await handle.stat()
    // The library refuses the whole archive because of one name that would lead out of a folder. Nothing is written to disk here.
    return await fromRandomAccessReaderPromise(new BlockReader(handle), size, { autoClose: false, decodeStrings: false })
  } catch (error) {
    await handle.close()
    throw error
  }
}
