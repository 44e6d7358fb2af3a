/** What keeps its bytes in a slab. */
export interface SlabItem {
  /** Called with the place of the item's bytes, when they are put there and again when they are moved; `index` is for the slab's own use. */
  place(slab: Slab, offset: number, index: number): void
  readonly offset: number
  readonly length: number
  readonly index: number
}

/** A piece of memory that holds the bytes of many records. What was written once stays as it is: whoever still holds it may read it. */
export class Slab {
  readonly buffer: Buffer
  /** What lies in it and is still in use. */
  readonly items: SlabItem[] = []
  used = 0
  live = 0

  constructor(buffer: Buffer) {
    this.buffer = buffer
  }
}

const slabBytes = 256 * 1024
/** What is larger gets a slab of its own. */
const largeBytes = slabBytes / 8

/**
 * Keeps many small byte arrays in few large pieces of memory outside of the JavaScript heap. A slab of which less than half is in use is emptied: what
 * lives in it moves, and the slab goes once nobody holds it any more. So the memory is at most about twice what is in use.
 */
export class RecordBufferPool {
  #open = new Slab(Buffer.alloc(0))

  /** Copies the bytes and gives the item its place. */
  put(item: SlabItem, bytes: Uint8Array): void {
    const slab = this.#slabFor(bytes.length)
    const offset = slab.used
    slab.buffer.set(bytes, offset)
    slab.used += bytes.length
    slab.live += bytes.length
    item.place(slab, offset, slab.items.push(item) - 1)
  }

  /** Tells that an item of `slab` is no longer in use. Its bytes can still be read. */
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
      // What died in it while it was open was not looked at. Half a slab at most moves: there is room left.
      if (full.live < full.used / 2) this.#empty(full)
    }
    return this.#open
  }

  #empty(slab: Slab): void {
    for (const item of slab.items.splice(0)) this.put(item, slab.buffer.subarray(item.offset, item.offset + item.length))
    slab.live = 0
  }
}
