/**
 * Maximum number of bytes per read from a fast connection. Each system call has a cost, measured in processor time for 64 MiB that are passed on. Reads of 256
 * KiB take 49 ms, 512 KiB 42 ms, 1 MiB 37 ms. Node's own reads of 64 KiB take 55 ms.
 */
const largeReadBytes = 512 * 1024
/** Maximum number of bytes per read from other connections: one that waits for a slow client holds several pieces. */
const smallReadBytes = 64 * 1024
/** Maximum number of free buffers for wide reads to keep. */
const maxFree = 32

/** Property that marks a piece as transferred. A Set of pieces would cost more than all other work on a piece. */
const given = Symbol('given away')
const free: ArrayBuffer[] = []
/** Number of bytes read into each memory for reads. */
const filled = new WeakMap<ArrayBuffer, number>()

/** Returns memory to read into; its content is undefined. After `filledTo`, `release` of the bytes makes it available again. */
export function readMemory(kind: 'wide' | 'narrow'): Buffer {
  const kept = kind === 'wide' ? free.pop() : undefined
  return kept === undefined ? Buffer.allocUnsafeSlow(kind === 'wide' ? largeReadBytes : smallReadBytes) : Buffer.from(kept)
}

/** Returns the first `length` bytes of memory for reads: those that were read. */
export function filledTo(memory: Buffer, length: number): Buffer {
  // a cast: readMemory allocated it
  filled.set(memory.buffer as ArrayBuffer, length)
  return memory.subarray(0, length)
}

/**
 * Frees the memory of these bytes at once, if the buffer holds nothing else, or nothing that comes later. Without this, a gigabyte of pieces costs a full
 * garbage collection for every 64 MiB: more than half of the time that a blob takes. Call it only as the sole owner of the bytes, without further use for them
 * or for what came before them. They are gone afterwards.
 */
export function release({ buffer, byteOffset, byteLength }: Uint8Array): void {
  if (!(buffer instanceof ArrayBuffer) || buffer.detached) return
  if (buffer.byteLength !== byteLength && filled.get(buffer) !== byteOffset + byteLength) return
  // Transferred, not copied, so that a stale reference has no bytes.
  if (buffer.byteLength === largeReadBytes && free.length < maxFree && filled.has(buffer)) free.push(buffer.transfer())
  else buffer.transfer(0)
}

/** Marks that the receiver of this piece may release it, because nothing else uses it. */
export function transferOwnership<T extends Uint8Array>(piece: T): T {
  return Object.assign(piece, { [given]: true })
}

/** True if the sender marked the piece with `transferOwnership`. */
export function isTransferred(piece: Uint8Array): boolean {
  return given in piece
}
