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

/** Returns a version 4 uuid (RFC 9562) made of 16 random bytes in hex. Overwrites the bits of version and variant. */
export function uuidOfHex(hex: string): string {
  const version = `4${hex.slice(13, 16)}`
  const variant = `${((Number.parseInt(hex.charAt(16), 16) & 0b0011) | 0b1000).toString(16)}${hex.slice(17, 20)}`
  return [hex.slice(0, 8), hex.slice(8, 12), version, variant, hex.slice(20, 32)].join('-')
}
