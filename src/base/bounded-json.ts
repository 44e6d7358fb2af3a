/** How much a JSON text may hold. */
export interface JsonBounds {
  /** How deep objects and lists may nest. */
  readonly maxDepth: number
  /** How many values there may be, those of all objects and lists together. */
  readonly maxValues: number
  /** How many keys all objects may have together: a parser needs ten times as long for an object of many keys as for a list. */
  readonly maxKeys: number
}

/** Bounds of every JSON text that the API takes. */
export const requestBounds: JsonBounds = { maxDepth: 64, maxValues: 16_384, maxKeys: 4096 }

/** A JSON text that is beyond a bound; the message is a predicate: `must not nest deeper than 64 levels`. */
export class JsonBoundsError extends Error {
  override readonly name = 'JsonBoundsError'
}

const backslash = 0x5c

/** The index of the quote that ends the string that begins at `start`; the length of the text where none does. */
function endOfString(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let escapes = 0
    while (text.charCodeAt(at - 1 - escapes) === backslash) escapes += 1
    if (escapes % 2 === 0) return at
  }
  return text.length
}

/** Throws JsonBoundsError where the text nests too deep or holds too much. Looks at brackets, commas and colons only: whether it is JSON the parser says. */
function assertBounded(text: string, { maxDepth, maxValues, maxKeys }: JsonBounds): void {
  let [depth, values, keys] = [0, 1, 0]
  for (let at = 0; at < text.length; at += 1) {
    // By numbers and in one switch: this looks at every character.
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
 * Parses JSON whose bounds are checked before: a parser needs a hundred times as long for a text of brackets as for one of words. Throws JsonBoundsError, and
 * SyntaxError for text that is no JSON.
 */
export function parseBoundedJson(text: string, bounds: JsonBounds = requestBounds): unknown {
  assertBounded(text, bounds)
  return JSON.parse(text)
}

/** The first key that an object of the text has twice, however it is escaped; undefined where there is none. The text must be JSON: parsers differ in which of the two counts. */
export function repeatedKey(text: string): string | undefined {
  // A set of keys for each open object, undefined for each open list.
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
  return quoted.includes('\\') ? (JSON.parse(quoted) as string) : quoted.slice(1, -1) // a cast: a quoted text is a text
}
