/**
 * Maximum number of bytes per read from a fast connection. Each system call has a cost, measured in processor time for 64 MiB that are passed on. Reads of 256
 * KiB take 49 ms, 512 KiB 42 ms, 1 MiB 37 ms. Node's own reads of 64 KiB take 55 ms.
 */
const largeReadBytes = 512 * 1024
/** Elsewhere: a connection that waits for a slow client holds several pieces. */
const smallReadBytes = 64 * 1024
/** Memory for wide reads that is kept at hand. */
const maxFree = 32

/** Marks a piece: a set of them would cost more than all else that is done with a piece. */
const given = Symbol('given away')
const free: ArrayBuffer[] = []
/** Of memory for reads that bytes were read into: how far. */
const filled = new WeakMap<ArrayBuffer, number>()

/** Memory to read into, with whatever was in it. It comes back by `release` of what was read into it, where `filledTo` said how much that is. */
export function readMemory(kind: 'wide' | 'narrow'): Buffer {
  const kept = kind === 'wide' ? free.pop() : undefined
  return kept === undefined ? Buffer.allocUnsafeSlow(kind === 'wide' ? largeReadBytes : smallReadBytes) : Buffer.from(kept)
}

/** The first `length` bytes of memory for reads: what was read. */
export function filledTo(memory: Buffer, length: number): Buffer {
  // Made by readMemory.
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
  // Moved, not copied: a stale reference to it finds nothing there.
  if (buffer.byteLength === largeReadBytes && free.length < maxFree && filled.has(buffer)) free.push(buffer.transfer())
  else buffer.transfer(0)
}

/** Marks that the receiver of this very piece may release it: it has no other user. */
export function transferOwnership<T extends Uint8Array>(piece: T): T {
  return Object.assign(piece, { [given]: true })
}

/** True where the piece was given away. */
export function isTransferred(piece: Uint8Array): boolean {
  return given in piece
}
