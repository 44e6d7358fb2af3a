import { parse } from 'yaml'
import { RefusedDocument } from './members.ts'

/** The largest document, in bytes. A larger one is refused without being kept in memory. */
export const maxDocumentBytes = 16 * 1024 * 1024
/** The largest YAML document, in bytes. YAML takes much longer to parse than JSON. */
const maxYamlBytes = 2 * 1024 * 1024
/** The number of aliases that a YAML document may resolve: a few nested ones can make any size. */
const maxAliases = 100

/** A document of a file, or the reason why there is none. `line` is where it starts, from 1. */
export type FoundDocument = { readonly line: number } & ({ readonly value: unknown } | { readonly refused: string })

const newline = 0x0a

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

function parseYaml(text: string): unknown {
  if (text.length > maxYamlBytes) throw new RefusedDocument(`the YAML document is larger than ${maxYamlBytes / 1024 / 1024} MiB`)
  try {
    // The core schema has no dates and no tags: it makes what JSON can say.
    const value: unknown = parse(text, { schema: 'core', maxAliasCount: maxAliases, logLevel: 'silent', stringKeys: true })
    return value
  } catch (error) {
    // A message has a picture of the place after its first line.
    throw new RefusedDocument(`the text is not valid YAML: ${error instanceof Error ? (error.message.split('\n', 1)[0] ?? '') : ''}`)
  }
}

/** Returns the documents of a whole file: one in YAML or JSON, or a JSON list of them. Throws RefusedDocument. */
function parseWhole(bytes: Uint8Array): readonly unknown[] {
  const text = textOf(bytes).trim()
  if (text.startsWith('[')) return parseJson(text) as unknown[] // the text begins a list
  return [text.startsWith('{') ? parseJson(text) : parseYaml(text)]
}

function attempt(line: number, work: () => readonly unknown[]): FoundDocument[] {
  try {
    return work().map((value) => ({ line, value }))
  } catch (error) {
    if (error instanceof RefusedDocument) return [{ line, refused: error.message }]
    throw error
  }
}

/** Collects bytes up to a limit. Bytes beyond it are dropped. */
class BoundedBytes {
  #pieces: Uint8Array[] = []
  #length = 0

  get isOver(): boolean {
    return this.#length > maxDocumentBytes
  }

  get isEmpty(): boolean {
    return this.#length === 0
  }

  add(piece: Uint8Array): void {
    this.#length += piece.length
    if (this.isOver) this.#pieces = []
    else if (piece.length > 0) this.#pieces.push(piece)
  }

  take(): Buffer {
    const bytes = Buffer.concat(this.#pieces)
    this.#pieces = []
    this.#length = 0
    return bytes
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

/**
 * Splits the bytes of one file into documents. The first line that is not blank decides the mode:
 * - `unknown`: no whole line has come yet
 * - `lines`: each line is a document in JSON
 * - `whole`: the file is one document, or a list
 */
class DocumentReader {
  readonly #held = new BoundedBytes()
  #mode: 'unknown' | 'lines' | 'whole' = 'unknown'
  #line = 1

  /** True if the only document of the file is too large: the rest need not be read. */
  get isOver(): boolean {
    return this.#held.isOver && this.#mode !== 'lines'
  }

  *read(piece: Uint8Array): Generator<FoundDocument, void, undefined> {
    let at = this.#skipEmptyLines(piece, 0)
    for (let end = piece.indexOf(newline); end >= 0 && this.#mode !== 'whole' && !this.isOver; end = piece.indexOf(newline, at)) {
      this.#held.add(piece.subarray(at, end))
      at = end + 1
      if (!this.isOver) yield* this.#endLine()
      at = this.#skipEmptyLines(piece, at)
    }
    this.#held.add(piece.subarray(at))
  }

  /** Returns where the next line that is not empty begins. A whole document keeps its empty lines. */
  #skipEmptyLines(piece: Uint8Array, from: number): number {
    let at = from
    if (this.#held.isEmpty) while (piece[at] === newline) at += 1
    this.#line += at - from
    return at
  }

  *end(): Generator<FoundDocument, void, undefined> {
    if (this.#held.isOver) {
      yield { line: this.#mode === 'lines' ? this.#line : 1, refused: tooLarge }
      return
    }
    const bytes = this.#held.take()
    if (isBlank(bytes)) return
    if (this.#mode === 'lines') yield* jsonLine(this.#line, bytes)
    else yield* attempt(1, () => parseWhole(bytes))
  }

  *#endLine(): Generator<FoundDocument, void, undefined> {
    const isTooLong = this.#held.isOver
    const bytes = this.#held.take()
    if (isTooLong) yield { line: this.#line, refused: tooLarge }
    else if (!isBlank(bytes)) {
      if (this.#mode === 'unknown') this.#mode = isJsonLine(bytes) ? 'lines' : 'whole'
      if (this.#mode === 'lines') yield* jsonLine(this.#line, bytes)
      else this.#held.add(Buffer.concat([bytes, Buffer.of(newline)]))
    }
    this.#line += 1
  }
}

function jsonLine(line: number, bytes: Uint8Array): FoundDocument[] {
  return attempt(line, () => [parseJson(textOf(bytes))])
}

/**
 * Yields the documents of a file, recognised by content: JSON lines, one JSON or YAML document, or a JSON list. Memory is bounded by the largest document. Stops
 * reading a file whose only document is too large.
 */
export async function* documentsOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<FoundDocument, void, undefined> {
  const reader = new DocumentReader()
  for await (const piece of pieces) {
    yield* reader.read(piece)
    if (reader.isOver) break
  }
  yield* reader.end()
}
