import { timestampMs } from '@bufbuild/protobuf/wkt'
import { checkedName, RefusedDocument, timeAt, type Members } from '../members.ts'

/** The largest number of versions of one artifact, and of files of all versions together. */
export const maxVersions = 20_000
export const maxFiles = 200_000
/** The longest description, in characters. A longer one is cut: it is for people. */
const maxDescription = 1_000

/** Returns a text for people on one line: without control characters, and cut. Empty for what is no text. */
export function descriptionOf(value: unknown): string {
  if (typeof value !== 'string') return ''
  const line = value
    .slice(0, maxDescription * 4)
    .replaceAll(/[\p{Cc}\s]+/gu, ' ')
    .trim()
    .toWellFormed()
  return line.length > maxDescription ? `${line.slice(0, maxDescription - 1).toWellFormed()}…` : line
}

/** Returns the name of an artifact: printable ASCII, as all registries ask. Throws RefusedDocument. */
export function artifactName(value: unknown, where: string): string {
  if (typeof value !== 'string' || value === '') throw new RefusedDocument(`${where} is missing or no text`)
  if (!/^[!-~]+$/.test(value)) throw new RefusedDocument(`${where} has other characters than printable ASCII`)
  return checkedName(value, where)
}

/** Returns a number of bytes; 0 for any other value. */
export function sizeOf(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 0
}

/** Returns the time at `key` in milliseconds since 1970; undefined if there is none. Throws RefusedDocument. */
export function msAt(members: Members, key: string): number | undefined {
  const time = timeAt(members, key)
  return time === undefined ? undefined : timestampMs(time)
}

/** Throws RefusedDocument if there are too many versions. */
export function assertFewVersions(count: number): void {
  if (count > maxVersions) throw new RefusedDocument(`the artifact has more than ${maxVersions} versions`)
}
