import { BoundedBytes, maxDocumentBytes } from './bounded-bytes.ts'
import { beginsSequence, documentsIn, JsonSequence } from './json-sequence.ts'
import { RefusedDocument } from './members.ts'
import { parseXml } from './xml.ts'
import { parseYaml } from './yaml.ts'

/** A document of a file, or the reason why there is none. `line` is where it starts, from 1. */
export type FoundDocument = { readonly line: number } & ({ readonly value: unknown } | { readonly refused: string })

const newline = 0x0a
const byteOrderMark = Buffer.from('\ufeff')

/** Returns the bytes as text. Throws RefusedDocument. */
function textOf(bytes: Uint8Array): string {
  try {
    // A byte order mark is left out.
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new RefusedDocument('the text is not UTF-8')
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new RefusedDocument('the text is not valid JSON')
  }
}

/** Returns the documents of a whole file: one in XML, all in YAML, one in JSON, or a JSON list of them. Throws RefusedDocument. */
function parseWhole(bytes: Uint8Array): readonly unknown[] {
  const text = textOf(bytes).trim()
  if (text.startsWith('<')) return [parseXml(text)]
  if (text.startsWith('[')) return (parseJson(text) as unknown[]).flatMap(documentsIn) // the text begins a list
  return (text.startsWith('{') ? [parseJson(text)] : parseYaml(text)).flatMap(documentsIn)
}

function attempt(line: number, work: () => readonly unknown[]): FoundDocument[] {
  try {
    return work().map((value) => ({ line, value }))
  } catch (error) {
    if (error instanceof RefusedDocument) return [{ line, refused: error.message }]
    throw error
  }
}

function isBlank(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d || byte === newline)
}

/** True if the first line of a file is a JSON object: then each line is a document. */
function isJsonLine(line: Buffer): boolean {
  if (!line.toString('latin1', 0, 64).trimStart().startsWith('{')) return false
  try {
    JSON.parse(line.toString())
    return true
  } catch {
    return false
  }
}

const tooLarge = `the document is larger than ${maxDocumentBytes / 1024 / 1024} MiB`
const cutOff = 'the JSON does not end: the file was cut off, or a bracket is missing'
/** The size from which JSON is split into its documents while it is read. Smaller files are parsed whole. */
const splitBytes = 1024 * 1024

/**
 * How the documents of a file are found:
 * - `unknown`: no whole line has come yet
 * - `lines`: each line is a document in JSON
 * - `table`: each line is a row in CSV, and `columns` are their names
 * - `whole`: the file is one document, or a list
 * - `sequence`: the same for large JSON, whose documents are read one by one
 */
type ReadingMode =
  | { readonly name: 'unknown' | 'lines' | 'whole' }
  | { readonly name: 'table'; readonly columns: readonly string[] }
  | { readonly name: 'sequence'; readonly sequence: JsonSequence }

/** Splits the bytes of one file into documents. The first line that is not blank, or the size, decides the mode. */
class DocumentReader {
  readonly #held = new BoundedBytes()
  #mode: ReadingMode = { name: 'unknown' }
  #line = 1
  /** Where the held bytes begin. */
  #startLine = 1

  /** True if the only document of the file is too large: the rest need not be read. */
  get isOver(): boolean {
    return this.#mode.name === 'sequence' ? this.#mode.sequence.isOver : this.#held.isOver && !this.#hasLines
  }

  /** True if each line is a document. */
  get #hasLines(): boolean {
    return this.#mode.name === 'lines' || this.#mode.name === 'table'
  }

  *read(piece: Uint8Array): Generator<FoundDocument, void, undefined> {
    if (this.#mode.name === 'sequence') {
      yield* readSequence(this.#mode.sequence, piece)
      return
    }
    let at = this.#skipEmptyLines(piece, 0)
    for (let end = piece.indexOf(newline); end >= 0 && this.#mode.name !== 'whole' && !this.isOver; end = piece.indexOf(newline, at)) {
      this.#held.add(piece.subarray(at, end))
      at = end + 1
      if (!this.isOver) yield* this.#endLine()
      at = this.#skipEmptyLines(piece, at)
    }
    const isSmall = this.#held.length <= splitBytes
    this.#held.add(piece.subarray(at))
    // Looked at once, when the size is reached.
    if (isSmall && this.#held.length > splitBytes && !this.#hasLines && beginsSequence(this.#held.peek())) {
      const sequence = new JsonSequence(this.#startLine)
      this.#mode = { name: 'sequence', sequence }
      yield* readSequence(sequence, this.#held.take())
    }
  }

  *end(): Generator<FoundDocument, void, undefined> {
    if (this.#mode.name === 'sequence') {
      const { sequence } = this.#mode
      if (!sequence.isComplete) yield { line: this.#startLine, refused: sequence.isOver ? tooLarge : cutOff }
    } else if (this.#held.isOver) yield { line: this.#hasLines ? this.#line : 1, refused: tooLarge }
    else {
      const bytes = this.#held.take()
      if (!isBlank(bytes)) yield* this.#documentsOf(bytes)
    }
  }

  /** Returns where the next line that is not empty begins. A whole document keeps its empty lines. */
  #skipEmptyLines(piece: Uint8Array, from: number): number {
    let at = from
    if (this.#held.isEmpty) while (piece[at] === newline) at += 1
    this.#line += at - from
    if (this.#held.isEmpty) this.#startLine = this.#line
    return at
  }

  *#endLine(): Generator<FoundDocument, void, undefined> {
    const isTooLong = this.#held.isOver
    const isFirst = this.#mode.name === 'unknown'
    const line = this.#held.take()
    const bytes = isFirst && line.indexOf(byteOrderMark) === 0 ? line.subarray(byteOrderMark.length) : line
    if (isTooLong) yield { line: this.#line, refused: tooLarge }
    else if (!isBlank(bytes) && !isTableComment(bytes)) {
      if (isFirst) this.#mode = modeOf(bytes)
      if (this.#mode.name === 'whole') this.#held.add(Buffer.concat([bytes, Buffer.of(newline)]))
      // The first line of a table has the names of its columns.
      else if (!isFirst || this.#mode.name === 'lines') yield* this.#documentsOf(bytes)
    }
    this.#line += 1
  }

  #documentsOf(bytes: Uint8Array): FoundDocument[] {
    const mode = this.#mode
    if (mode.name === 'table') return attempt(this.#line, () => [csvRow(mode.columns, textOf(bytes))])
    return mode.name === 'lines' ? jsonLine(this.#line, bytes) : attempt(1, () => parseWhole(bytes))
  }
}

/** The columns of the tables that are read: EPSS. */
const knownColumns: readonly (readonly string[])[] = [['cve', 'epss', 'percentile']]

/** True for the line before the columns, in which EPSS names its model. */
function isTableComment(line: Buffer): boolean {
  return line.toString('latin1', 0, 64).startsWith('#model_version:')
}

function cellsOf(line: string): string[] {
  return line.split(',').map((cell) => cell.trim())
}

/** Returns a row with its columns' names. Throws RefusedDocument. */
function csvRow(columns: readonly string[], text: string): unknown {
  const cells = cellsOf(text)
  if (cells.length !== columns.length) throw new RefusedDocument(`the row has ${cells.length} cells, and the table has ${columns.length} columns`)
  return Object.fromEntries(columns.map((column, at) => [column, cells[at]]))
}

/** Returns how to go on after the first line of a file. */
function modeOf(line: Buffer): ReadingMode {
  const cells = cellsOf(line.toString('latin1', 0, 1_024))
  const columns = knownColumns.find((known) => known.join() === cells.join())
  return columns === undefined ? { name: isJsonLine(line) ? 'lines' : 'whole' } : { name: 'table', columns }
}

function* readSequence(sequence: JsonSequence, piece: Uint8Array): Generator<FoundDocument, void, undefined> {
  for (const { line, bytes } of sequence.read(piece)) {
    if (bytes === undefined) yield { line, refused: tooLarge }
    else yield* jsonLine(line, bytes)
  }
}

function jsonLine(line: number, bytes: Uint8Array): FoundDocument[] {
  return attempt(line, () => documentsIn(parseJson(textOf(bytes))))
}

/**
 * Yields the documents of a file, recognised by content. Documents are JSON lines, rows of CSV, one JSON, YAML or XML document, or the items of a JSON list. The
 * list may be the only one of an object. Memory is bounded by the largest document. Stops reading a file whose only document is too large.
 */
export async function* documentsOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<FoundDocument, void, undefined> {
  const reader = new DocumentReader()
  for await (const piece of pieces) {
    yield* reader.read(piece)
    if (reader.isOver) break
  }
  yield* reader.end()
}
