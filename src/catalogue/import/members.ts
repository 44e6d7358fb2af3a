import { hash as sha256 } from 'node:crypto'
import { timestampFromMs, type Timestamp } from '@bufbuild/protobuf/wkt'
import { firstTimeMs, lastTimeMs } from '../../base/schema/whole-milliseconds.ts'

/** A document that is not imported. The message says why, in words for the person who imports. */
export class RefusedDocument extends Error {
  override readonly name = 'RefusedDocument'
}

/** Bounds of one document: a hostile one must not make one advisory of any size. */
export const maxNameLength = 512
export const maxItems = 1_000

/** A JSON object. */
export type Members = Readonly<Record<string, unknown>>

/** True for a JSON object. */
export function isMembers(value: unknown): value is Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Returns a text that lists filter by. Throws RefusedDocument. */
export function nameAt(members: Members, key: string, where: string): string {
  const value = members[key]
  if (typeof value !== 'string' || value === '') throw new RefusedDocument(`${where} is missing or no text`)
  return checkedName(value, where)
}

/** Returns the text if it has one line of at most `max` characters, so that lists can filter by it. Throws RefusedDocument. */
export function checkedName(value: string, where: string, max = maxNameLength): string {
  if (value.length > max) throw new RefusedDocument(`${where} has more than ${max} characters`)
  if (/[\u0000-\u001f\u007f]/.test(value)) throw new RefusedDocument(`${where} has a control character`)
  if (!value.isWellFormed()) throw new RefusedDocument(`${where} has half a character`)
  return value
}

/** Returns the text at `key` if there is one, or an empty text. It is not empty otherwise. Throws RefusedDocument. */
export function optionalNameAt(members: Members, key: string, where: string): string {
  return members[key] === undefined || members[key] === null ? '' : nameAt(members, key, where)
}

/** Returns a text for people. It may have line breaks and tabs. Throws RefusedDocument. */
export function checkedText(value: string, { where, max }: { readonly where: string; readonly max: number }): string {
  if (value.length > max) throw new RefusedDocument(`${where} has more than ${max} characters`)
  if (/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/.test(value)) throw new RefusedDocument(`${where} has a control character`)
  if (!value.isWellFormed()) throw new RefusedDocument(`${where} has half a character`)
  return value
}

/** Returns the text for people at `key`, empty if there is none. Throws RefusedDocument. */
export function textAt(members: Members, key: string, limits: { readonly where: string; readonly max: number }): string {
  const value = members[key] ?? ''
  if (typeof value !== 'string') throw new RefusedDocument(`${limits.where} is no text`)
  return checkedText(value, limits)
}

/** Returns the names in the list at `key`, each once. Throws RefusedDocument. */
export function namesAt(members: Members, key: string, where: string): string[] {
  return [...new Set(listAt(members, key, { where }))].map((item) => {
    if (typeof item !== 'string' || item === '') throw new RefusedDocument(`${where} has an item that is no text`)
    return checkedName(item, where)
  })
}

/** Returns the list at `key`, empty if there is none. Throws RefusedDocument. */
export function listAt(members: Members, key: string, { where, max = maxItems }: { readonly where: string; readonly max?: number }): readonly unknown[] {
  const value = members[key] ?? []
  if (!Array.isArray(value)) throw new RefusedDocument(`${where} is no list`)
  if (value.length > max) throw new RefusedDocument(`${where} has more than ${max} items`)
  return value
}

/** Returns the value as a JSON object. Throws RefusedDocument. */
export function membersOf(value: unknown, where: string): Members {
  if (!isMembers(value)) throw new RefusedDocument(`${where} is no object`)
  return value
}

const timePattern = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/

/** Returns the RFC 3339 time at `key`, cut to milliseconds. Throws RefusedDocument. */
export function timeAt(members: Members, key: string): Timestamp | undefined {
  const value = members[key]
  if (value === undefined || value === null) return undefined
  const ms = typeof value === 'string' && timePattern.test(value) ? existingTime(value) : NaN
  if (!(ms >= firstTimeMs && ms <= lastTimeMs)) throw new RefusedDocument(`${key} is no time such as 2026-01-31T12:00:00Z`)
  return timestampFromMs(ms)
}

/** The days that each month has. */
const daysOfAllMonths = 28

/** Returns a time in milliseconds since 1970. NaN for a day that does not exist, such as 2026-02-31. */
export function existingTime(text: string): number {
  // The parser goes on into the next month.
  if (Number(text.slice(8, 10)) <= daysOfAllMonths) return Date.parse(text)
  const day = Date.parse(text.slice(0, 10))
  return !Number.isNaN(day) && new Date(day).toISOString().slice(8, 10) === text.slice(8, 10) ? Date.parse(text) : NaN
}

/** Returns the part of an id before the first `-`: the database that assigned it. */
export function databaseOf(id: string): string {
  return id.split('-', 1)[0] ?? id
}

/** 16 hex digits that follow from the texts: the same import twice makes the same uids. */
export function segmentOf(...texts: readonly string[]): string {
  return sha256('sha256', JSON.stringify(texts)).slice(0, 16)
}
