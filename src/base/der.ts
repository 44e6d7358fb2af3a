/** A DER value: a tag, a length, the parts (X.690 8.1, 10.1). */
export function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts)
  return Buffer.concat([Uint8Array.of(tag), lengthOf(body.length), body])
}

/** SEQUENCE */
export function sequence(...parts: readonly Uint8Array[]): Buffer {
  return der(0x30, ...parts)
}

/** OBJECT IDENTIFIER from its dotted form. */
export function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number)
  return der(0x06, Buffer.from([40 * first + second, ...rest].flatMap(base128)))
}

/** A positive INTEGER from its big-endian bytes. */
export function integer(bytes: Uint8Array): Buffer {
  const start = bytes.findIndex((byte) => byte !== 0)
  const significant = start < 0 ? Uint8Array.of(0) : bytes.subarray(start)
  return der(0x02, (significant[0] ?? 0) > 127 ? Buffer.concat([Uint8Array.of(0), significant]) : significant)
}

/** BOOLEAN TRUE */
export const isTrue = der(0x01, Uint8Array.of(255))

/** UTF8String */
export function utf8(text: string): Buffer {
  return der(0x0c, Buffer.from(text))
}

/** OCTET STRING */
export function octets(bytes: Uint8Array): Buffer {
  return der(0x04, bytes)
}

/** BIT STRING with this many unused bits at its end. */
export function bits(bytes: Uint8Array, unused = 0): Buffer {
  return der(0x03, Uint8Array.of(unused), bytes)
}

/** A time to the second: UTCTime until 2049, GeneralizedTime from 2050 on (RFC 5280 4.1.2.5). */
export function time(ms: number): Buffer {
  const text = `${new Date(ms).toISOString().replaceAll(/[-:T]/g, '').slice(0, 14)}Z`
  const isShort = new Date(ms).getUTCFullYear() < 2050
  return isShort ? der(0x17, Buffer.from(text.slice(2))) : der(0x18, Buffer.from(text))
}

function lengthOf(length: number): Uint8Array {
  if (length < 0x80) return Uint8Array.of(length)
  return length < 0x100 ? Uint8Array.of(0x81, length) : Uint8Array.of(0x82, length >> 8, length & 255)
}

function base128(value: number): number[] {
  const digits = [value & 127]
  for (let rest = value >> 7; rest > 0; rest >>= 7) digits.unshift(128 | (rest & 127))
  return digits
}
