import { compile, JSONPathError, type JSONPathQuery } from 'json-p3'
import { UsageError } from '../exit-codes.ts'
import type { Json } from './client-error.ts'

/** A path of a template. */
interface TemplatePath {
  /** As the template has it. */
  readonly text: string
  readonly query: JSONPathQuery
}

/** A part of a template: text, what a path finds, or parts for each thing that a path finds. */
type Part = string | { readonly path: TemplatePath } | { readonly range: TemplatePath; readonly parts: readonly Part[] }

/** A compiled template. */
export interface JsonPathTemplate {
  /** Returns the text for one record. */
  ofRecord(record: Json): string
  /** Returns the text for a list, which has its records in `items`. Throws UsageError for a path to another member. */
  ofList(records: readonly Json[]): string
}

/**
 * Compiles a template such as `{.name}` or `{range .items[*]}{.uid}{"\n"}{end}`, as kubectl takes it. Without braces it is one path. Throws UsageError.
 */
export function compileJsonPath(text: string): JsonPathTemplate {
  const pieces = text.includes('{') ? piecesOf(text) : [{ inside: text }]
  const parts = partsOf(pieces, false)
  return {
    ofRecord: (record) => textOfParts(parts, record),
    ofList(records) {
      for (const part of parts) if (typeof part !== 'string') assertOfList('path' in part ? part.path : part.range)
      return textOfParts(parts, { items: records })
    },
  }
}

/** Text of a template as it is written: outside of braces, or inside. */
type Piece = { readonly outside: string } | { readonly inside: string }

/** Splits a template at its braces. Braces in quotes do not count. */
function piecesOf(text: string): Piece[] {
  const found = text.matchAll(/\{((?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^{}"'])*)\}|([^{}]+)|[{}]/gs)
  return [...found].map(([all, inside, outside]) => {
    if (inside === undefined && outside === undefined) throw new UsageError(`jsonpath: the "${all}" has no other brace: ${text}`)
    return inside === undefined ? { outside: outside ?? '' } : { inside: inside.trim() }
  })
}

/** Takes the pieces up to the end of a range, or all. */
function partsOf(pieces: Piece[], isRange: boolean): readonly Part[] {
  const parts: Part[] = []
  for (let piece = pieces.shift(); piece !== undefined; piece = pieces.shift()) {
    if ('outside' in piece) {
      parts.push(piece.outside)
      continue
    }
    const { inside } = piece
    if (inside === 'end') {
      if (isRange) return parts
      throw new UsageError('jsonpath: {end} has no {range}')
    }
    const [, ranged] = /^range\s+(.+)$/s.exec(inside) ?? []
    if (ranged !== undefined) parts.push({ range: pathOf(ranged), parts: partsOf(pieces, true) })
    else parts.push(/^["']/.test(inside) ? quoted(inside) : { path: pathOf(inside) })
  }
  if (isRange) throw new UsageError('jsonpath: {range} has no {end}')
  return parts
}

const escapes: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r' }

/** Returns the text in quotes. */
function quoted(text: string): string {
  if (text.length < 2 || text.at(-1) !== text[0]) throw new UsageError(`jsonpath: ${text} has no other quotation mark`)
  // JSON has the escapes that templates mostly have.
  if (/^"(?:[^"\\\n]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"$/.test(text)) return JSON.parse(text) as string // a cast: it is a text in quotes
  return text.slice(1, -1).replaceAll(/\\(.)/gs, (_, one: string) => escapes[one] ?? one)
}

/** Compiles a path. It starts at the record, or at the thing of a range: with `.`, `[`, `$`, `@` or a name. */
function pathOf(text: string): TemplatePath {
  if (text === '') throw new UsageError('jsonpath: there is no path')
  const [, union = ''] = /\[\s*('(?:[^'\\]|\\.)*'(?:\s*,\s*'(?:[^'\\]|\\.)*')+)\s*\]/.exec(text) ?? []
  if (/[^\\]\./.test(union)) throw new UsageError(`jsonpath: ${text} joins paths: write each in braces of its own`)
  const path = text
    // kubectl escapes dots within a name, also in quotes.
    .replaceAll(
      /(\.\.?)((?:[\w/-]|\\.)*\\.(?:[\w/-]|\\.)*)/g,
      (_, dots: string, name: string) => `${dots === '..' ? dots : ''}[${JSON.stringify(name.replaceAll('\\', ''))}]`,
    )
    .replaceAll(/(?<=\[\s*)'(?:[^'\\]|\\.)*'/g, (name) => name.replaceAll('\\.', '.'))
  const rooted = path === '.' ? '$' : path.replace(/^[$@]?/, '$').replace(/^\$(?=[^.[])/, '$.')
  try {
    return { text, query: compile(rooted) }
  } catch (error) {
    if (error instanceof JSONPathError) throw new UsageError(`jsonpath: ${text} is not a path: ${error.message}`, { cause: error })
    throw error
  }
}

function textOfParts(parts: readonly Part[], value: Json): string {
  return parts
    .map((part) => {
      if (typeof part === 'string') return part
      if ('path' in part) return found(part.path, value).map(textOfValue).join(' ')
      const things = found(part.range, value)
      // A path to one list is a range of what is in it.
      return (isOfOne(part.range) ? things.flatMap((one) => one) : things)
        .map((one) => textOfParts(part.parts, one as Json)) // a cast: a path finds nothing in a value that is no object
        .join('')
    })
    .join('')
}

/** True if a path leads to one value at most. */
function isOfOne({ text }: TemplatePath): boolean {
  return !/[*?:,]|\.\./.test(text)
}

function found({ query }: TemplatePath, value: unknown): readonly unknown[] {
  return query.query(value as Parameters<JSONPathQuery['query']>[0]).values() // a cast: the value is JSON
}

/** Formats a value: text as it is, objects and lists as JSON. Control characters of records do not reach a terminal; line ends and tabs do. */
function textOfValue(value: unknown): string {
  const text = typeof value === 'string' ? value : value === null ? '' : JSON.stringify(value)
  return text.replaceAll(/[^\P{Cc}\n\t]|[\p{Bidi_Control}\u2028\u2029]/gu, ' ')
}

function assertOfList({ text }: TemplatePath): void {
  if (!/^[$@]?(?:\.?items\b|\['items'\]|\["items"\]|\.\.|\.?$)/.test(text))
    throw new UsageError(`jsonpath: ${text} is not in a list: its records are in .items[*]`)
}
