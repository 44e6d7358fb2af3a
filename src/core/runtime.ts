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
