/** An item that keeps its bytes in a slab. */
export interface SlabItem {
  /** Receives the position of the item's bytes when they are stored, and again when they move. `index` is for the slab's own use. */
  place(slab: Slab, offset: number, index: number): void
  readonly offset: number
  readonly length: number
  readonly index: number
}

/** A buffer that holds the bytes of many records. Written bytes never change: a reader that still references them may read them. */
export class Slab {
  readonly buffer: Buffer
  /** The items in the slab that are still in use. */
  readonly items: SlabItem[] = []
  used = 0
  live = 0

  constructor(buffer: Buffer) {
    this.buffer = buffer
  }
}

const slabBytes = 256 * 1024
/** Size above which an item gets a slab of its own, in bytes. */
const largeBytes = slabBytes / 8

/**
 * Keeps many small byte arrays in a few large buffers outside the JavaScript heap. A slab with less than half in use is emptied: its items move to another
 * slab. Its memory is freed once nothing references it. So the memory is at most about twice the bytes in use.
 */
export class RecordBufferPool {
  #open = new Slab(Buffer.alloc(0))

  /** Copies the bytes and places the item. */
  put(item: SlabItem, bytes: Uint8Array): void {
    const slab = this.#slabFor(bytes.length)
    const offset = slab.used
    slab.buffer.set(bytes, offset)
    slab.used += bytes.length
    slab.live += bytes.length
    item.place(slab, offset, slab.items.push(item) - 1)
  }

  /** Marks an item of `slab` as no longer in use. Its bytes can still be read. */
  release(slab: Slab, item: SlabItem): void {
    const last = slab.items.pop()
    if (last !== undefined && last !== item) {
      slab.items[item.index] = last
      last.place(slab, last.offset, item.index)
    }
    slab.live -= item.length
    if (slab !== this.#open && slab.live < slab.used / 2) this.#empty(slab)
  }

  #slabFor(bytes: number): Slab {
    if (bytes > largeBytes) return new Slab(Buffer.allocUnsafeSlow(bytes))
    if (this.#open.used + bytes > this.#open.buffer.length) {
      const full = this.#open
      this.#open = new Slab(Buffer.allocUnsafeSlow(slabBytes))
      // Items released while the slab was open were not checked. At most half a slab moves, so there is room.
      if (full.live < full.used / 2) this.#empty(full)
    }
    return this.#open
  }

  #empty(slab: Slab): void {
    for (const item of slab.items.splice(0)) this.put(item, slab.buffer.subarray(item.offset, item.offset + item.length))
    slab.live = 0
  }
}
