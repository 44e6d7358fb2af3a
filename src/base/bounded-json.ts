/** Limits of a JSON text. */
export interface JsonBounds {
  /** Maximum nesting depth of objects and lists. */
  readonly maxDepth: number
  /** Maximum number of values in all objects and lists together. */
  readonly maxValues: number
  /** Maximum number of keys in all objects together. It is lower than `maxValues`, because an object takes ten times as long to parse as a list. */
  readonly maxKeys: number
}

/** Limits of every JSON text sent to the API. */
export const requestBounds: JsonBounds = { maxDepth: 64, maxValues: 16_384, maxKeys: 4096 }

/** The error for a JSON text that exceeds a limit. The message is a predicate without its subject: `must not nest deeper than 64 levels`. */
export class JsonBoundsError extends Error {
  override readonly name = 'JsonBoundsError'
}

const backslash = 0x5c

/** Returns the index of the quote that ends the string at `start`, or the length of the text without one. */
function endOfString(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let escapes = 0
    while (text.charCodeAt(at - 1 - escapes) === backslash) escapes += 1
    if (escapes % 2 === 0) return at
  }
  return text.length
}

/**
 * Throws JsonBoundsError if the text nests too deeply, or has too many values or keys. It looks only at brackets, commas and colons; the parser checks the
 * syntax.
 */
function assertBounded(text: string, { maxDepth, maxValues, maxKeys }: JsonBounds): void {
  let [depth, values, keys] = [0, 1, 0]
  for (let at = 0; at < text.length; at += 1) {
    // A switch over character codes is fast; it runs for every character.
    switch (text.charCodeAt(at)) {
      case 0x22: // "
        at = endOfString(text, at)
        break
      case 0x5d: // ]
      case 0x7d: // }
        depth -= 1
        break
      case 0x5b: // [
      case 0x7b: // {
        depth += 1
        values += 1
        if (depth > maxDepth) throw new JsonBoundsError(`must not nest deeper than ${maxDepth} levels`)
        break
      case 0x2c: // ,
        values += 1
        break
      case 0x3a: // :
        keys += 1
        if (keys > maxKeys) throw new JsonBoundsError(`must not hold more than ${maxKeys} keys`)
    }
    if (values > maxValues) throw new JsonBoundsError(`must not hold more than ${maxValues} values`)
  }
}

/**
 * Checks the limits, then parses the JSON. Without the check, deeply nested brackets take a hundred times as long to parse as other text. Throws
 * JsonBoundsError, and SyntaxError for invalid JSON.
 */
export function parseBoundedJson(text: string, bounds: JsonBounds = requestBounds): unknown {
  assertBounded(text, bounds)
  return JSON.parse(text)
}

/**
 * Returns the first key that occurs twice in one object, however its characters are escaped; undefined if there is none. The text must be valid JSON. Parsers
 * differ in which value of a repeated key they use.
 */
export function repeatedKey(text: string): string | undefined {
  // The keys read so far of each open object; undefined for an open list.
  const open: (Set<string> | undefined)[] = []
  let isKey = false
  for (let at = 0; at < text.length; at += 1) {
    switch (text.charCodeAt(at)) {
      case 0x22: {
        const end = endOfString(text, at)
        const keys = isKey ? open.at(-1) : undefined
        if (keys !== undefined) {
          const key = keyIn(text.slice(at, end + 1))
          if (keys.has(key)) return key
          keys.add(key)
          isKey = false
        }
        at = end
        break
      }
      case 0x7b: // {
        open.push(new Set())
        isKey = true
        break
      case 0x5b: // [
        open.push(undefined)
        isKey = false
        break
      case 0x5d: // ]
      case 0x7d: // }
        open.pop()
        isKey = false
        break
      case 0x2c: // ,
        isKey = open.at(-1) !== undefined
    }
  }
  return undefined
}

function keyIn(quoted: string): string {
  return quoted.includes('\\') ? (JSON.parse(quoted) as string) : quoted.slice(1, -1) // A JSON string parses to a string.
}
