import { isDigest, type Digest } from '../../core/digest.ts'
import { RegistryError } from '../registry-error.ts'

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

/** The text under `name`; empty where there is none. Throws MANIFEST_INVALID where it is something else; `path` leads to it. */
export function optionalText(fields: JsonRecord, name: string, path: string): string {
  const value = fields[name]
  if (value === undefined || value === null) return ''
  if (typeof value === 'string') return value.toWellFormed()
  throw invalidManifest(`${path}${name} must be a text`)
}

/** Annotations: texts under texts. Throws MANIFEST_INVALID where they are something else. */
export function textMap(value: unknown, path: string): Record<string, string> {
  if (value === undefined || value === null) return {}
  if (typeof value !== 'object' || Array.isArray(value)) throw invalidManifest(`${path} must be an object of texts`)
  const texts: [string, string][] = []
  for (const [name, text] of Object.entries(value as JsonRecord)) {
    if (typeof text !== 'string') throw invalidManifest(`${path} must be an object of texts`)
    texts.push([name.toWellFormed(), text.toWellFormed()])
  }
  return Object.fromEntries(texts)
}

/** The descriptor that `value` is. Throws MANIFEST_INVALID with what it lacks. */
export function descriptorIn(value: unknown, path: string): Descriptor {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalidManifest(`${path} must be a descriptor`)
  const fields = value as JsonRecord // a cast: what is no array and not null is an object of JSON
  const { digest, size, mediaType } = fields
  if (typeof mediaType !== 'string' || mediaType === '') throw invalidManifest(`${path}.mediaType must be a text`)
  if (typeof digest !== 'string' || !isDigest(digest)) throw invalidManifest(`${path}.digest must be a sha256 or sha512 digest`)
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) throw invalidManifest(`${path}.size must be a number of bytes`)
  return { mediaType: mediaType.toWellFormed(), digest, size, fields }
}
