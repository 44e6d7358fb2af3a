import { BoundedBytes } from './bounded-bytes.ts'
import { isMembers, type Members } from './members.ts'

/** One value of a sequence: its bytes, or undefined if there are too many. `line` is where it starts. */
export interface SequenceItem {
  readonly line: number
  readonly bytes: Buffer | undefined
}

/** A JSON object that only holds a list of documents: the member with the list, and what tells such an object from other ones. */
interface ListForm {
  readonly list: string
  isForm(object: Members): boolean
}

const listForms: readonly ListForm[] = [
  // A feed or a page of NVD.
  { list: 'vulnerabilities', isForm: ({ format }) => format === 'NVD_CVE' },
  // The KEV catalogue.
  { list: 'vulnerabilities', isForm: ({ catalogVersion }) => typeof catalogVersion === 'string' },
  // All products of endoflife.date.
  { list: 'result', isForm: ({ schema_version: version }) => typeof version === 'string' },
]

/** Returns the documents in a JSON value: those of its list if it only holds one, else the value itself. */
export function documentsIn(value: unknown): readonly unknown[] {
  if (!isMembers(value)) return [value]
  for (const { list, isForm } of listForms) {
    const items = value[list]
    if (Array.isArray(items) && isForm(value)) return items
  }
  return [value]
}

/** True if the start of an object, up to the opening bracket of a list, belongs to an object that only holds that list. */
function opensList(start: string): boolean {
  for (const { list, isForm } of listForms) {
    const [tail] = new RegExp(`,?\\s*"${list}"\\s*:\\s*$`).exec(start) ?? []
    if (tail === undefined) continue
    try {
      const object: unknown = JSON.parse(`${start.slice(0, -tail.length)}}`)
      if (isMembers(object) && isForm(object)) return true
    } catch {
      // What is before the list is no JSON: the whole is refused at its end.
    }
  }
  return false
}

/** Length of the start of an object that is looked at, in bytes. */
const maxStartBytes = 4_096

const [quote, backslash, comma, newline] = [0x22, 0x5c, 0x2c, 0x0a]
const [openBrace, closeBrace, openBracket, closeBracket] = [0x7b, 0x7d, 0x5b, 0x5d]
/** Bytes between values: blanks, and those of a byte order mark. */
const blanks: ReadonlySet<number> = new Set([0x20, 0x09, 0x0d, newline, 0xef, 0xbb, 0xbf])

/** Finds the quotes and backslashes of a piece. Each byte is searched once, however many there are. */
class StringMarks {
  readonly #piece: Buffer
  #quote = -1
  #backslash = -1

  constructor(piece: Uint8Array) {
    this.#piece = Buffer.from(piece.buffer, piece.byteOffset, piece.length)
  }

  /** Returns the next quote or backslash, at this place or after it; the end of the piece if there is none. */
  from(place: number): { readonly at: number; readonly byte: number | undefined } {
    if (this.#quote < place) this.#quote = this.#next(quote, place)
    if (this.#backslash < place) this.#backslash = this.#next(backslash, place)
    const at = Math.min(this.#quote, this.#backslash)
    return { at, byte: this.#piece[at] }
  }

  #next(byte: number, place: number): number {
    const at = this.#piece.indexOf(byte, place)
    return at < 0 ? this.#piece.length : at
  }
}

/** True for bytes that begin a JSON object or list. */
export function beginsSequence(bytes: Uint8Array): boolean {
  const first = bytes.find((byte) => !blanks.has(byte))
  return first === openBrace || first === openBracket
}

/**
 * Splits JSON into values without keeping more than one. Values are the items of a list, also of the only list of an object, or objects one after the other. Only
 * brackets and strings are looked at, which is much faster than a parser of streams, and memory is bounded by one value. `JSON.parse` then checks each value.
 */
export class JsonSequence {
  readonly #held = new BoundedBytes()
  #depth = 0
  /** The depth at which values begin: 0 for objects, more within a list. */
  #level = 0
  #isInValue = false
  #isInString = false
  #isEscaped = false
  /** True after the list, within the object that holds it. */
  #isAfterList = false
  #line: number
  #startLine = 0

  /** `line` is where the bytes begin. */
  constructor(line: number) {
    this.#line = line
  }

  /** True if the only value so far is too large: the rest need not be read. */
  get isOver(): boolean {
    return this.#level === 0 && this.#held.isOver
  }

  /** True if the bytes may end here. */
  get isComplete(): boolean {
    return this.#depth === 0 && !this.#isInString && !this.#isInValue
  }

  *read(piece: Uint8Array): Generator<SequenceItem, void, undefined> {
    // Where the bytes of the value begin that are not held yet.
    let from = 0
    const marks = new StringMarks(piece)
    for (let at = 0; at < piece.length; at++) {
      if (this.#isInString) {
        at = this.#inString(marks, at)
        continue
      }
      const byte = piece[at] ?? 0
      if (byte === newline) this.#line += 1
      if (this.#isAfterList) this.#afterList(byte)
      else if (this.#isInValue || this.#begins(byte)) {
        if (!this.#isInValue) {
          from = at
          this.#isInValue = true
          this.#startLine = this.#line
        }
        if (byte === openBracket && this.#beginsList(piece.subarray(from, at))) continue
        const end = this.#endOf(byte)
        if (end !== undefined) yield this.#take(piece.subarray(from, end === 'here' ? at + 1 : at))
      }
    }
    if (this.#isInValue) this.#held.add(piece.subarray(from))
  }

  /** Goes on in a string. Returns the last byte that was looked at. */
  #inString(marks: StringMarks, at: number): number {
    if (this.#isEscaped) {
      this.#isEscaped = false
      return at
    }
    const mark = marks.from(at)
    this.#isEscaped = mark.byte === backslash
    this.#isInString = mark.byte !== quote
    return mark.at
  }

  #afterList(byte: number): void {
    if (byte === quote) this.#isInString = true
    else if (isOpening(byte)) this.#depth += 1
    else if (isClosing(byte)) this.#depth -= 1
    this.#isAfterList = this.#depth > 0
  }

  /** True if a value begins with this byte. */
  #begins(byte: number): boolean {
    if (this.#depth > 0 && isClosing(byte)) {
      this.#closeList()
      return false
    }
    return byte !== comma && !blanks.has(byte)
  }

  /** Returns where the value ends, if it does: with this byte, or before it. */
  #endOf(byte: number): 'here' | 'before' | undefined {
    if (byte === quote) this.#isInString = true
    else if (isOpening(byte)) this.#depth += 1
    else if (isClosing(byte)) {
      if (this.#depth === this.#level) {
        this.#closeList()
        return 'before'
      }
      this.#depth -= 1
      if (this.#depth === this.#level) return 'here'
    } else if (byte === comma && this.#depth === this.#level) return 'before'
    return undefined
  }

  #closeList(): void {
    if (this.#depth > 0) this.#depth -= 1
    this.#level = 0
    this.#isAfterList = this.#depth > 0
  }

  #take(rest: Uint8Array): SequenceItem {
    this.#held.add(rest)
    const isOver = this.#held.isOver
    const bytes = this.#held.take()
    this.#isInValue = false
    return { line: this.#startLine, bytes: isOver ? undefined : bytes }
  }

  /** Returns true if the bracket after these bytes opens a list of documents: the values are then its items. */
  #beginsList(rest: Uint8Array): boolean {
    if (this.#level > 0 || this.#depth > 1) return false
    const isLong = this.#held.length + rest.length > maxStartBytes
    if (this.#depth === 1 && (isLong || !opensList(Buffer.concat([this.#held.peek(), rest]).toString()))) return false
    this.#held.take()
    this.#isInValue = false
    this.#depth += 1
    this.#level = this.#depth
    return true
  }
}

function isOpening(byte: number): boolean {
  return byte === openBrace || byte === openBracket
}

function isClosing(byte: number): boolean {
  return byte === closeBrace || byte === closeBracket
}
