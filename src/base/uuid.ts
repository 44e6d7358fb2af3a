/** Returns a version 4 uuid (RFC 9562) made of 16 random bytes in hex. Overwrites the bits of version and variant. */
export function uuidOfHex(hex: string): string {
  const version = `4${hex.slice(13, 16)}`
  const variant = `${((Number.parseInt(hex.charAt(16), 16) & 0b0011) | 0b1000).toString(16)}${hex.slice(17, 20)}`
  return [hex.slice(0, 8), hex.slice(8, 12), version, variant, hex.slice(20, 32)].join('-')
}
