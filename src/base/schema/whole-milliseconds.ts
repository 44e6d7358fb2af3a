import type { Timestamp } from '@bufbuild/protobuf/wkt'

const perMillisecond = 1_000_000
/** The times that a timestamp can have, in milliseconds since 1970: the years 1 to 9999. Messages in binary form may have others. */
export const firstTimeMs = Date.parse('0001-01-01T00:00:00Z')
export const lastTimeMs = Date.parse('9999-12-31T23:59:59.999Z')

/** Returns the time in milliseconds since 1970, rounded up. Use it as a lower bound for records, whose times are whole milliseconds. */
export function millisecondFrom({ seconds, nanos }: Timestamp): number {
  return Number(seconds) * 1_000 + Math.ceil(nanos / perMillisecond)
}

/** Returns the time in milliseconds since 1970, rounded down. Use it as an upper bound for records, whose times are whole milliseconds. */
export function millisecondUpTo({ seconds, nanos }: Timestamp): number {
  return Number(seconds) * 1_000 + Math.floor(nanos / perMillisecond)
}

/** True if `one` is earlier than `other`, compared to the nanosecond. */
export function isBefore(one: Timestamp, other: Timestamp): boolean {
  return one.seconds === other.seconds ? one.nanos < other.nanos : one.seconds < other.seconds
}

/** True for a time that a timestamp can have. */
export function isTime(timestamp: Timestamp): boolean {
  const { nanos } = timestamp
  return nanos >= 0 && nanos < 1_000 * perMillisecond && millisecondUpTo(timestamp) >= firstTimeMs && millisecondUpTo(timestamp) <= lastTimeMs
}
