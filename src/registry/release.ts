/**
 * Bytes that one read from a fast connection takes in at most. Every call to the system has its price: measured here, 64 MiB that are passed on take 49 ms of
 * processor time by reads of 256 KiB, 42 ms by 512 KiB, 37 ms by 1 MiB, and 55 ms by Node's own of 64 KiB.
 */
const wideBytes = 512 * 1024
/** Elsewhere: a connection that waits for a slow client holds several pieces. */
const narrowBytes = 64 * 1024
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
  return kept === undefined ? Buffer.allocUnsafeSlow(kind === 'wide' ? wideBytes : narrowBytes) : Buffer.from(kept)
}

/** The first `length` bytes of memory for reads: what was read. */
export function filledTo(memory: Buffer, length: number): Buffer {
  // Made by readMemory.
  filled.set(memory.buffer as ArrayBuffer, length)
  return memory.subarray(0, length)
}

/**
 * Gives the memory of bytes back at once, where nothing else lies in it, or nothing that comes later. Left to the collector a gigabyte of pieces costs a full
 * collection for every 64 MiB of them: more than half of the time that a blob takes. For whoever owns the bytes alone, and has no use for them any more nor for
 * what came before them: they are gone afterwards.
 */
export function release({ buffer, byteOffset, byteLength }: Uint8Array): void {
  if (!(buffer instanceof ArrayBuffer) || buffer.detached) return
  if (buffer.byteLength !== byteLength && filled.get(buffer) !== byteOffset + byteLength) return
  // Moved, not copied: whoever still had the old name for it would find nothing there.
  if (buffer.byteLength === wideBytes && free.length < maxFree && filled.has(buffer)) free.push(buffer.transfer())
  else buffer.transfer(0)
}

/** Says that whoever gets this very piece may release it: nobody else has a use for it. */
export function giveAway<T extends Uint8Array>(piece: T): T {
  return Object.assign(piece, { [given]: true })
}

/** True where the piece was given away. */
export function isGivenAway(piece: Uint8Array): boolean {
  return given in piece
}
