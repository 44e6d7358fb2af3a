import { JsonBoundsError, parseBoundedJson } from '../../base/bounded-json.ts'
import { ContentError, contentLimits } from '../package.ts'
import { isPlainText } from '../package-url.ts'

/** A JSON object of a document. Its values are of any type. */
export type SbomObject = Readonly<Record<string, unknown>>

/** Limits of a document of `contentLimits.documentBytes`: real ones have fewer values for their size. */
const bounds = { maxDepth: 128, maxValues: 6_000_000, maxKeys: 4_000_000 }

function parseText(text: string): unknown {
  try {
    return parseBoundedJson(text, bounds)
  } catch (error) {
    if (error instanceof JsonBoundsError) throw new ContentError('TOO_LARGE', `the document ${error.message}`)
    throw new ContentError('UNREADABLE', 'the document is not valid JSON')
  }
}

function textOf(bytes: Uint8Array): string {
  try {
    // A byte order mark is left out.
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new ContentError('UNREADABLE', 'the document is not UTF-8')
  }
}

/** Returns the JSON object in a text. Throws ContentError. */
export function objectOfText(text: string): SbomObject {
  const start = text.slice(0, 1_024).trimStart()
  if (!start.startsWith('{')) throw new ContentError('UNSUPPORTED_FORM', 'the document is no JSON object: tag-value, XML and YAML are not read')
  return objectOf(parseText(text), 'the document')
}

/** Returns the JSON object in these bytes. Throws ContentError. */
export function objectOfBytes(bytes: Uint8Array): SbomObject {
  const { documentBytes } = contentLimits
  if (bytes.length > documentBytes) throw new ContentError('TOO_LARGE', `the document is larger than ${documentBytes / 1024 / 1024} MiB`)
  return objectOfText(textOf(bytes))
}

/** True for a JSON object. */
export function isObject(value: unknown): value is SbomObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Returns the value as a JSON object. Throws ContentError UNREADABLE. */
export function objectOf(value: unknown, where: string): SbomObject {
  if (!isObject(value)) throw new ContentError('UNREADABLE', `${where} is no JSON object`)
  return value
}

/** Returns the objects in the list at `key`, none if there is no list. Throws ContentError UNREADABLE for other values. */
export function objectsAt(object: SbomObject, key: string): readonly SbomObject[] {
  const value = object[key] ?? []
  if (!Array.isArray(value)) throw new ContentError('UNREADABLE', `${key} is no list`)
  return value.map((item) => objectOf(item, `an item of ${key}`))
}

/** Returns the values of an optional list. A single value counts as a list, and no value as an empty one. */
export function valuesIn(value: unknown): readonly unknown[] {
  if (value === undefined || value === null) return []
  return Array.isArray(value) ? value : [value]
}

/** Returns the objects of an optional list. Other values are left out. */
export function objectsIn(value: unknown): readonly SbomObject[] {
  return valuesIn(value).filter(isObject)
}

/** Returns a value for a message, for example a version; `otherwise` if it is no short text in ASCII. */
export function shown(value: unknown, otherwise: string): string {
  return typeof value === 'string' && /^[!-~]{1,128}$/.test(value) ? value : otherwise
}

/** Returns a text on one line of at most 512 characters; empty for any other value. */
export function textIn(value: unknown): string {
  return isPlainText(value, 512) ? value : ''
}
