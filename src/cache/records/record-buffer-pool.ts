/** An item that keeps its bytes in a buffer. */
export interface BufferItem {
  /** Receives the position of the item's bytes when they are stored, and again when they move. `index` is for the buffer's own use. */
  place(pooled: PooledBuffer, offset: number, index: number): void
  readonly offset: number
  readonly length: number
  readonly index: number
}

/** A buffer that holds the bytes of many records. Written bytes never change: a reader that still references them may read them. */
export class PooledBuffer {
  readonly buffer: Buffer
  /** The items in the buffer that are still in use. */
  readonly items: BufferItem[] = []
  used = 0
  live = 0

  constructor(buffer: Buffer) {
    this.buffer = buffer
  }
}

const bufferBytes = 256 * 1024
/** Size above which an item gets a buffer of its own, in bytes. */
const largeBytes = bufferBytes / 8

/**
 * Keeps many small byte arrays in a few large buffers outside the JavaScript heap. A buffer with less than half in use is emptied: its items move to another
 * buffer. Its memory is freed once nothing references it. So the memory is at most about twice the bytes in use.
 */
export class RecordBufferPool {
  #open = new PooledBuffer(Buffer.alloc(0))

  /** Copies the bytes and places the item. */
  put(item: BufferItem, bytes: Uint8Array): void {
    const pooled = this.#bufferFor(bytes.length)
    const offset = pooled.used
    pooled.buffer.set(bytes, offset)
    pooled.used += bytes.length
    pooled.live += bytes.length
    item.place(pooled, offset, pooled.items.push(item) - 1)
  }

  /** Marks an item of `pooled` as no longer in use. Its bytes can still be read. */
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
      // Items released while the buffer was open were not checked. At most half a buffer moves, so there is room.
      if (full.live < full.used / 2) this.#empty(full)
    }
    return this.#open
  }

  #empty(pooled: PooledBuffer): void {
    for (const item of pooled.items.splice(0)) this.put(item, pooled.buffer.subarray(item.offset, item.offset + item.length))
    pooled.live = 0
  }
}
