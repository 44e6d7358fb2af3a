/** Where time comes from; passed in, so that tests decide it. */
export interface Clock {
  /** Wall time in milliseconds since 1970. */
  now(): number
}

/** Where ids, keys and jitter come from; passed in, so that tests decide it. */
export interface Random {
  /** `count` unpredictable bytes. */
  bytes(count: number): Uint8Array
}

/** `count` random bytes as lowercase hex. */
export function randomHex(random: Random, count: number): string {
  return Buffer.from(random.bytes(count)).toString('hex')
}

/** A number from 0 up to, without, 1. */
export function fractionOf(random: Random): number {
  const bytes = random.bytes(4)
  return new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0) / 2 ** 32
}
