import type { Timestamp } from '@bufbuild/protobuf/wkt'

const perMillisecond = 1_000_000

/** The first whole millisecond since 1970 that is not before the time: records have whole ones, so what is at or after the time is at or after it. */
export function millisecondFrom({ seconds, nanos }: Timestamp): number {
  return Number(seconds) * 1_000 + Math.ceil(nanos / perMillisecond)
}

/** The last whole millisecond since 1970 that is not after the time: what is not later than the time is not later than it. */
export function millisecondUpTo({ seconds, nanos }: Timestamp): number {
  return Number(seconds) * 1_000 + Math.floor(nanos / perMillisecond)
}

/** True where `one` is before `other`, to the nanosecond. */
export function isBefore(one: Timestamp, other: Timestamp): boolean {
  return one.seconds === other.seconds ? one.nanos < other.nanos : one.seconds < other.seconds
}
