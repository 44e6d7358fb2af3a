/**
 * Gives the memory of bytes back at once, where nothing else lies in it. Left to the collector a gigabyte of pieces costs a full collection for every 64 MiB of
 * them: more than half of the time that a blob takes. For whoever owns the bytes alone and has no use for them any more: they are gone afterwards.
 */
export function release({ buffer, byteLength }: Uint8Array): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength && !buffer.detached) buffer.transfer(0)
}
