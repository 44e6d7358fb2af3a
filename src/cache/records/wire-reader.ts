import { isUtf8 } from 'node:buffer'

/** The error for bytes that are not a valid protobuf message of the expected type. */
export class WireError extends Error {
  override readonly name = 'WireError'
}

/** The protobuf wire types that proto3 uses. */
export const wireType = { varint: 0, fixed64: 1, delimited: 2, fixed32: 5 } as const

/** Reads protobuf's wire format in place, without copying or creating objects per field. Throws WireError if the bytes are malformed. */
export class WireReader {
  buffer: Buffer = Buffer.alloc(0)
  position = 0
  end = 0
  /** Number and wire type of the last field tag read. */
  field = 0
  type = 0

  /** Starts to read a message in `buffer` from `start` to `end`. */
  open(buffer: Buffer, start: number, end: number): this {
    this.buffer = buffer
    this.position = start
    this.end = end
    return this
  }

  /** Reads the next field's tag; returns false at the end of the message. */
  tag(): boolean {
    if (this.position >= this.end) return false
    const tag = this.varint()
    this.field = tag >>> 3
    this.type = tag & 7
    if (this.field === 0) throw new WireError('invalid field number 0')
    return true
  }

  /** Reads an unsigned varint of up to 32 bits, as in tags and lengths. */
  varint(): number {
    const first = this.#byte()
    if (first < 0x80) return first
    let result = first & 0x7f
    for (let shift = 7; shift < 35; shift += 7) {
      const byte = this.#byte()
      result |= (byte & 0x7f) << shift
      if (byte >= 0x80) continue
      if (shift === 28 && byte > 0x0f) break
      return result >>> 0
    }
    throw new WireError('invalid varint')
  }

  /** Reads a varint of up to 64 bits and returns its low 32 bits as a signed number. */
  int32(): number {
    let result = 0
    for (let at = 0; at < 10; at++) {
      const byte = this.#byte()
      if (at < 5) result |= (byte & 0x7f) << (7 * at)
      if (byte < 0x80) return result
    }
    throw new WireError('invalid varint')
  }

  /** Reads a signed 64-bit varint. The number is exact up to 2^53. */
  int64(): number {
    let [low, middle, high] = [0, 0, 0]
    for (let at = 0; at < 10; at++) {
      const byte = this.#byte()
      const bits = byte & 0x7f
      if (at < 4) low |= bits << (7 * at)
      else if (at < 8) middle |= bits << (7 * (at - 4))
      else high |= bits << (7 * (at - 8))
      if (byte < 0x80) return (((high << 24) >> 24) * 2 ** 28 + middle) * 2 ** 28 + low
    }
    throw new WireError('invalid varint')
  }

  /** Reads a length and returns the position of the end of its content, which lies within the message. */
  delimitedEnd(): number {
    const length = this.varint()
    if (length > this.end - this.position) throw new WireError('truncated')
    return this.position + length
  }

  /** Skips the value of the field whose tag was read. */
  skip(type: number): void {
    switch (type) {
      case wireType.varint:
        for (let at = 0; this.#byte() >= 0x80; at++) if (at >= 9) throw new WireError('invalid varint')
        break
      case wireType.fixed64:
        this.#advance(8)
        break
      case wireType.delimited:
        this.position = this.delimitedEnd()
        break
      case wireType.fixed32:
        this.#advance(4)
        break
      default:
        throw new WireError(`unknown wire type ${type}`)
    }
  }

  /** Reads a text, which must be UTF-8. */
  text(): string {
    const end = this.delimitedEnd()
    const start = this.position
    const isAscii = this.#checkText(end)
    return this.buffer.toString(isAscii ? 'latin1' : 'utf8', start, end)
  }

  /** Skips a text, which must be UTF-8. */
  skipText(): void {
    this.#checkText(this.delimitedEnd())
  }

  /** Moves to `end`. Returns true if the skipped bytes are ASCII. Throws if they are not UTF-8. */
  #checkText(end: number): boolean {
    const { buffer } = this
    const start = this.position
    this.position = end
    for (let at = start; at < end; at++) {
      if ((buffer[at] ?? 0) < 0x80) continue
      if (!isUtf8(buffer.subarray(at, end))) throw new WireError('a text is not valid UTF-8')
      return false
    }
    return true
  }

  #byte(): number {
    if (this.position >= this.end) throw new WireError('truncated')
    return this.buffer[this.position++] ?? 0
  }

  #advance(count: number): void {
    if (count > this.end - this.position) throw new WireError('truncated')
    this.position += count
  }
}
