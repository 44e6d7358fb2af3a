import { createCipheriv, createDecipheriv, createHash } from 'node:crypto'
import type { Random } from './runtime.ts'

/** Where the next page starts: the sort values of the last record given, ending with its uid. */
export type CursorKey = readonly (string | number)[]

/** What a page token says. */
export interface Cursor {
  readonly key: CursorKey
  /** Hash of everything that must stay the same between pages: method, filters, order, caller. */
  readonly queryHash: string
  /** When the token was made, in milliseconds since 1970. */
  readonly issuedMs: number
}

/** A page-token key: 32 secret bytes under a short id. */
export interface PageKey {
  readonly id: string
  readonly secret: Uint8Array
}

/** Page tokens live three days (docs/spec/conventions.md#page-tokens). */
export const pageTokenLifeMs = 3 * 24 * 3600 * 1000

/** A short stable hash of what a page token is bound to. */
export function hashQuery(parts: unknown): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('base64url').slice(0, 22)
}

/** `cursor` as an opaque URL-safe text, encrypted and authenticated under `key`. */
export function sealCursor(cursor: Cursor, key: PageKey, random: Random): string {
  const nonce = random.bytes(12)
  const cipher = createCipheriv('aes-256-gcm', key.secret, nonce)
  cipher.setAAD(Buffer.from(key.id))
  const body = Buffer.concat([cipher.update(JSON.stringify([cursor.key, cursor.queryHash, cursor.issuedMs]), 'utf8'), cipher.final()])
  return `${key.id}.${Buffer.concat([nonce, body, cipher.getAuthTag()]).toString('base64url')}`
}

/** The id of the key that a token names, or undefined where the text is no token. */
export function pageTokenKeyId(token: string): string | undefined {
  return token.length <= 8192 ? /^([A-Za-z0-9_-]{1,64})\.[A-Za-z0-9_-]{40,}$/.exec(token)?.[1] : undefined
}

/** The cursor in a token made with `key`, or undefined where it was not. */
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
  // Authenticated by the tag, so only sealCursor can have made it.
  const [cursorKey, queryHash, issuedMs] = JSON.parse(text) as [CursorKey, string, number]
  return { key: cursorKey, queryHash, issuedMs }
}
