import { isDigest, type Digest } from '../../../base/digest.ts'
import { RegistryError } from '../../registry-error.ts'

/** A JSON object with unknown fields. */
export type JsonRecord = Readonly<Record<string, unknown>>

/** A descriptor (OCI image specification, "Content descriptors"): its required fields, and all others. */
export interface Descriptor {
  readonly mediaType: string
  readonly digest: Digest
  readonly size: number
  readonly fields: JsonRecord
}

/** Returns the error MANIFEST_INVALID; `what` says what is wrong. */
export function invalidManifest(what: string, cause?: unknown): RegistryError {
  return new RegistryError('MANIFEST_INVALID', what, { cause })
}

/** The known keys of each kind of JSON object in a manifest (OCI image specification). */
const keysOf = {
  manifest: ['schemaVersion', 'mediaType', 'artifactType', 'config', 'layers', 'manifests', 'subject', 'annotations'],
  descriptor: ['mediaType', 'digest', 'size', 'urls', 'annotations', 'data', 'artifactType', 'platform'],
  platform: ['architecture', 'os', 'os.version', 'os.features', 'variant'],
} as const

/** A kind of JSON object in a manifest. */
type KeyedObject = keyof typeof keysOf

/** Returns the key in one letter case. Also maps the few letters that Go's JSON parser accepts in place of `k` and `s`. */
const folded = (key: string): string => key.toUpperCase().toLowerCase()

const known = Object.fromEntries(Object.entries(keysOf).map(([sort, keys]) => [sort, new Map(keys.map((key) => [folded(key), key]))])) as unknown as Readonly<
  Record<KeyedObject, ReadonlyMap<string, string>>
> // a cast: it has the keys of `keysOf`

/**
 * Throws MANIFEST_INVALID if a key differs from a known key only in letter case, since some clients accept it and others ignore it. `path`
 * is the path of the object.
 */
export function assertPlainKeys(fields: JsonRecord, sort: KeyedObject, path = ''): void {
  for (const key of Object.keys(fields)) {
    const right = known[sort].get(folded(key))
    if (right !== undefined && right !== key)
      throw invalidManifest(`${path}${key} must be written as ${right}: clients differ in how they read other spellings`)
  }
}

/**
 * Returns the string in the field `name`; empty if absent. Throws MANIFEST_INVALID if the field is not a string. `path` is the path of the
 * object.
 */
export function optionalText(fields: JsonRecord, name: string, path: string): string {
  const value = fields[name]
  if (value === undefined || value === null) return ''
  if (typeof value === 'string') return value.toWellFormed()
  throw invalidManifest(`${path}${name} must be a string`)
}

/** Returns the value if it is an object of strings, as annotations are; undefined otherwise. */
export function textsIn(value: unknown): Record<string, string> | undefined {
  if (value === undefined || value === null) return {}
  if (typeof value !== 'object' || Array.isArray(value)) return undefined
  const texts: [string, string][] = []
  for (const [name, text] of Object.entries(value as JsonRecord)) {
    if (typeof text !== 'string') return undefined
    texts.push([name.toWellFormed(), text.toWellFormed()])
  }
  return Object.fromEntries(texts)
}

/** Like `textsIn`, but throws MANIFEST_INVALID if the value is not an object of strings. */
export function textMap(value: unknown, path: string): Record<string, string> {
  const texts = textsIn(value)
  if (texts === undefined) throw invalidManifest(`${path} must be an object of strings`)
  return texts
}

/**
 * Returns the digest of a value that looks like a descriptor: an object with a supported digest and a size in bytes. Returns undefined for
 * anything else.
 */
export function digestIn(value: unknown): Digest | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const { digest, size } = value as JsonRecord // a cast: a list has no such fields
  return typeof digest === 'string' && isDigest(digest) && Number.isSafeInteger(size) && Number(size) >= 0 ? digest : undefined
}

/** Returns the digests of all objects that look like descriptors, at any depth of a JSON document. */
export function digestsWithin(document: unknown): Set<Digest> {
  const found = new Set<Digest>()
  // Uses a list instead of recursion: a document may be nested more deeply than the call stack allows.
  const open = [document]
  for (let value = open.pop(); value !== undefined; value = open.pop()) {
    const digest = digestIn(value)
    if (digest !== undefined) found.add(digest)
    for (const inner of Object.values(value as object)) if (typeof inner === 'object' && inner !== null) open.push(inner) // a cast: only objects and lists are open
  }
  return found
}

/** Parses `value` as a descriptor. Throws MANIFEST_INVALID if a field is missing or invalid. */
export function descriptorIn(value: unknown, path: string): Descriptor {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalidManifest(`${path} must be a descriptor`)
  const fields = value as JsonRecord // a cast: what is no array and not null is an object of JSON
  assertPlainKeys(fields, 'descriptor', `${path}.`)
  const { digest, size, mediaType } = fields
  if (typeof mediaType !== 'string' || mediaType === '') throw invalidManifest(`${path}.mediaType must be a string`)
  if (typeof digest !== 'string' || !isDigest(digest)) throw invalidManifest(`${path}.digest must be a sha256 or sha512 digest`)
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) throw invalidManifest(`${path}.size must be a number of bytes`)
  return { mediaType: mediaType.toWellFormed(), digest, size, fields }
}
