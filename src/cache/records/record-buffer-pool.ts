/** An object whose bytes are stored in a shared buffer. */
export interface BufferItem {
  /** Called with the position of the item's bytes when they are stored, and again when they move. Only the buffer uses `index`. */
  place(pooled: PooledBuffer, offset: number, index: number): void
  readonly offset: number
  readonly length: number
  readonly index: number
}

/** A buffer with the bytes of many records. Bytes never change once written, so a reader may keep a reference to them. */
export class PooledBuffer {
  readonly buffer: Buffer
  /** The items in the buffer that are still used. */
  readonly items: BufferItem[] = []
  used = 0
  live = 0

  constructor(buffer: Buffer) {
    this.buffer = buffer
  }
}

const bufferBytes = 256 * 1024
/** Size in bytes above which an item gets a buffer of its own. */
const largeBytes = bufferBytes / 8

/**
 * Stores many small byte arrays in a few large buffers outside the JavaScript heap. If less than half of a buffer is used, its items move to another buffer,
 * and its memory is freed once nothing references it. So the memory is at most about twice the bytes in use.
 */
export class RecordBufferPool {
  #open = new PooledBuffer(Buffer.alloc(0))

  /** Copies the bytes into a buffer and informs the item of their position. */
  put(item: BufferItem, bytes: Uint8Array): void {
    const pooled = this.#bufferFor(bytes.length)
    const offset = pooled.used
    pooled.buffer.set(bytes, offset)
    pooled.used += bytes.length
    pooled.live += bytes.length
    item.place(pooled, offset, pooled.items.push(item) - 1)
  }

  /** Marks an item's bytes as no longer used. They can still be read. */
  release(pooled: PooledBuffer, item: BufferItem): void {
    const last = pooled.items.pop()
    if (last !== undefined && last !== item) {
      pooled.items[item.index] = last
      last.place(pooled, last.offset, item.index)
    }
    pooled.live -= item.length
    if (pooled !== this.#open && pooled.live < pooled.used / 2) this.#empty(pooled)
  }

  #bufferFor(bytes: number): PooledBuffer {
    if (bytes > largeBytes) return new PooledBuffer(Buffer.allocUnsafeSlow(bytes))
    if (this.#open.used + bytes > this.#open.buffer.length) {
      const full = this.#open
      this.#open = new PooledBuffer(Buffer.allocUnsafeSlow(bufferBytes))
      // Check the buffer that just became full: items that were released while it was being filled were not considered. At most half a buffer moves, so there
      // is room.
      if (full.live < full.used / 2) this.#empty(full)
    }
    return this.#open
  }

  #empty(pooled: PooledBuffer): void {
    for (const item of pooled.items.splice(0)) this.put(item, pooled.buffer.subarray(item.offset, item.offset + item.length))
    pooled.live = 0
  }
}
