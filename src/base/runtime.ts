/** The source of the current time. Callers pass it in, so that tests can control it. */
export interface Clock {
  /** Returns the wall-clock time in milliseconds since 1970. */
  now(): number
}

/** The source of random bytes for ids, keys and jitter. Callers pass it in, so that tests can control it. */
export interface Random {
  /** Returns `count` unpredictable bytes. */
  bytes(count: number): Uint8Array
}

/** Returns `count` random bytes as lowercase hex digits. */
export function randomHex(random: Random, count: number): string {
  return Buffer.from(random.bytes(count)).toString('hex')
}

/** Returns a random number that is at least 0 and less than 1. */
export function fractionOf(random: Random): number {
  const bytes = random.bytes(4)
  return new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0) / 2 ** 32
}
