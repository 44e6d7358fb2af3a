import { createCipheriv, createDecipheriv, createHash } from 'node:crypto'
import type { Random } from './runtime.ts'

/** The position after which the next page of a list starts: the sort values of the last returned record, ending with its uid. */
export type CursorKey = readonly (string | number)[]

/** The content of a page token. */
export interface Cursor {
  readonly key: CursorKey
  /** Hash of everything that must not change between pages: method, filters, order, caller. */
  readonly queryHash: string
  /** Time at which the token was made, in milliseconds since 1970. */
  readonly issuedMs: number
}

/** A key that encrypts page tokens: 32 secret bytes and a short id. */
export interface PageKey {
  readonly id: string
  readonly secret: Uint8Array
}

/** Lifetime of a page token in milliseconds: three days (docs/spec/conventions.md#page-tokens). */
export const pageTokenLifeMs = 3 * 24 * 3600 * 1000

/** Returns a short, stable hash of the query to which a page token belongs. */
export function hashQuery(parts: unknown): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('base64url').slice(0, 22)
}

/** Returns the page token of `cursor`: URL-safe text, encrypted and authenticated with `key`. */
export function sealCursor(cursor: Cursor, key: PageKey, random: Random): string {
  const nonce = random.bytes(12)
  const cipher = createCipheriv('aes-256-gcm', key.secret, nonce)
  cipher.setAAD(Buffer.from(key.id))
  const body = Buffer.concat([cipher.update(JSON.stringify([cursor.key, cursor.queryHash, cursor.issuedMs]), 'utf8'), cipher.final()])
  return `${key.id}.${Buffer.concat([nonce, body, cipher.getAuthTag()]).toString('base64url')}`
}

/** Returns the id of the key that encrypted a page token; undefined if the text does not have the form of a page token. */
export function pageTokenKeyId(token: string): string | undefined {
  return token.length <= 8192 ? /^([A-Za-z0-9_-]{1,64})\.[A-Za-z0-9_-]{40,}$/.exec(token)?.[1] : undefined
}

/** Returns the content of a page token that was made with `key`; undefined for any other text. */
export function openCursor(token: string, key: PageKey): Cursor | undefined {
  const bytes = Buffer.from(token.slice(key.id.length + 1), 'base64url')
  if (bytes.length < 29) return undefined
  const decipher = createDecipheriv('aes-256-gcm', key.secret, bytes.subarray(0, 12))
  decipher.setAAD(Buffer.from(key.id))
  decipher.setAuthTag(bytes.subarray(bytes.length - 16))
  let text: string
  try {
    text = decipher.update(bytes.subarray(12, bytes.length - 16), undefined, 'utf8') + decipher.final('utf8')
  } catch {
    return undefined
  }
  // The authentication tag proves that sealCursor made this text.
  const [cursorKey, queryHash, issuedMs] = JSON.parse(text) as [CursorKey, string, number]
  return { key: cursorKey, queryHash, issuedMs }
}
