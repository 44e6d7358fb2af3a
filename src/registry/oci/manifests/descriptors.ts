import { isDigest, type Digest } from '../../../base/digest.ts'
import { RegistryError } from '../../registry-error.ts'

/** An object of JSON that nothing is known of yet. */
export type JsonRecord = Readonly<Record<string, unknown>>

/** A descriptor (OCI image specification, "Content descriptors"): what is needed of it, and the rest. */
export interface Descriptor {
  readonly mediaType: string
  readonly digest: Digest
  readonly size: number
  readonly fields: JsonRecord
}

/** MANIFEST_INVALID with what is wrong. */
export function invalidManifest(what: string, cause?: unknown): RegistryError {
  return new RegistryError('MANIFEST_INVALID', what, { cause })
}

/** The keys of a document by what it is (OCI image specification). */
const keysOf = {
  manifest: ['schemaVersion', 'mediaType', 'artifactType', 'config', 'layers', 'manifests', 'subject', 'annotations'],
  descriptor: ['mediaType', 'digest', 'size', 'urls', 'annotations', 'data', 'artifactType', 'platform'],
  platform: ['architecture', 'os', 'os.version', 'os.features', 'variant'],
} as const

/** What an object of a manifest is. */
type KeyedObject = keyof typeof keysOf

/** Upper and lower case are one; so are the few letters that Go's JSON takes for `k` and `s`. */
const folded = (key: string): string => key.toUpperCase().toLowerCase()

const known = Object.fromEntries(Object.entries(keysOf).map(([sort, keys]) => [sort, new Map(keys.map((key) => [folded(key), key]))])) as unknown as Readonly<
  Record<KeyedObject, ReadonlyMap<string, string>>
> // a cast: it has the keys of `keysOf`

/** Throws MANIFEST_INVALID for a key that differs from a known one only in case: some clients take it for that one, others ignore it. `path` leads to the object. */
export function assertPlainKeys(fields: JsonRecord, sort: KeyedObject, path = ''): void {
  for (const key of Object.keys(fields)) {
    const right = known[sort].get(folded(key))
    if (right !== undefined && right !== key)
      throw invalidManifest(`${path}${key} must be written as ${right}: clients differ in how they read other spellings`)
  }
}

/** Returns the text under `name`; empty if absent. Throws MANIFEST_INVALID if it is not a text; `path` leads to it. */
export function optionalText(fields: JsonRecord, name: string, path: string): string {
  const value = fields[name]
  if (value === undefined || value === null) return ''
  if (typeof value === 'string') return value.toWellFormed()
  throw invalidManifest(`${path}${name} must be a string`)
}

/** Annotations: texts under texts; undefined where they are something else. */
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

/** As `textsIn`; throws MANIFEST_INVALID where they are something else. */
export function textMap(value: unknown, path: string): Record<string, string> {
  const texts = textsIn(value)
  if (texts === undefined) throw invalidManifest(`${path} must be an object of strings`)
  return texts
}

/** The digest in what looks like a descriptor: an object with a digest that is understood and a number of bytes. Undefined in anything else. */
export function digestIn(value: unknown): Digest | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const { digest, size } = value as JsonRecord // a cast: a list has no such fields
  return typeof digest === 'string' && isDigest(digest) && Number.isSafeInteger(size) && Number(size) >= 0 ? digest : undefined
}

/** The digests of all that look like descriptors, at any depth of a document of JSON. */
export function digestsWithin(document: unknown): Set<Digest> {
  const found = new Set<Digest>()
  // Documents may be deeper than calls.
  const open = [document]
  for (let value = open.pop(); value !== undefined; value = open.pop()) {
    const digest = digestIn(value)
    if (digest !== undefined) found.add(digest)
    for (const inner of Object.values(value as object)) if (typeof inner === 'object' && inner !== null) open.push(inner) // a cast: only objects and lists are open
  }
  return found
}

/** The descriptor that `value` is. Throws MANIFEST_INVALID with what it lacks. */
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
