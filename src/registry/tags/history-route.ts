import type { Services } from '../../engine/services.ts'
import type { Gate } from '../gate.ts'
import { readHistory } from './tag-history.ts'
import type { RegistryExchange } from '../oci/exchange.ts'
import type { HistoryRoute } from '../oci/oci-handler.ts'
import { RegistryError } from '../registry-error.ts'

const calendar = /^(?<year>\d{4})(?:-(?<month>\d{2})(?:-(?<day>\d{2}))?|(?<month2>\d{2})(?<day2>\d{2}))?$/
const ordinal = /^(?<year>\d{4})-?(?<ordinal>\d{3})$/
const week = /^(?<year>\d{4})-?W(?<week>\d{2})(?:-?(?<weekday>[1-7]))?$/
const clock = /^(?<hour>\d{2})(?::?(?<minute>\d{2})(?::?(?<second>\d{2}))?)?(?:[.,](?<fraction>\d{1,18}))?$/
const zone = /(?:Z|(?<sign>[+\-\u2212])(?<hours>\d{2})(?::?(?<minutes>\d{2}))?)$/i

const dayMs = 86_400_000

/** Number of time units in one millisecond. A unit is 10^-18 s, so that 18 decimals of a second are exact. */
export const perMillisecond = 10n ** 15n

/**
 * Parses an ISO 8601 text into an instant, in 10^-18 s since 1970. Accepts calendar, week and ordinal dates in basic and extended form.
 * They may end after the year, month, day, hour or minute. Accepts a decimal fraction of the last part, and `Z` or an offset. A date
 * without a time means its first moment; without a zone, UTC. Accepts a space in place of `T`, and in place of the `+` of an offset, as in
 * a query whose `+` was not encoded. Returns undefined for anything else, including a day or time that does not exist.
 */
export function parseInstant(given: string): bigint | undefined {
  if (given.length > 64) return undefined
  const text = given.trim().replace(/ (?=\d{2}(?::?\d{2})?$)/, (space, at: number, whole: string) => (/[T ]\d/i.test(whole.slice(0, at)) ? '+' : space))
  const [date = '', time, ...rest] = text.split(/[Tt ]/)
  if (rest.length > 0) return undefined
  const day = readDate(date)
  if (day === undefined) return undefined
  if (time === undefined) return BigInt(day.startMs) * perMillisecond
  const offset = zone.exec(time)
  const within = withinDay(offset === null ? time : time.slice(0, offset.index))
  const shift = offset === null ? 0 : offsetMs(offset.groups ?? {})
  return within === undefined || shift === undefined || !day.isWhole ? undefined : BigInt(day.startMs - shift) * perMillisecond + within
}

type Parts = Readonly<Record<string, string | undefined>>

/** Parses a date into its first moment. `isWhole` is false if the date ends after the year or month: then no time may follow. */
function readDate(date: string): { readonly startMs: number; readonly isWhole: boolean } | undefined {
  const parts: Parts | undefined = (calendar.exec(date) ?? ordinal.exec(date) ?? week.exec(date))?.groups
  const startMs = parts === undefined ? undefined : startOfParts(parts)
  if (parts === undefined || startMs === undefined) return undefined
  return { startMs, isWhole: ['day', 'day2', 'ordinal', 'weekday'].some((name) => parts[name] !== undefined) }
}

function startOfParts(parts: Parts): number | undefined {
  const year = Number(parts['year'])
  if (parts['ordinal'] !== undefined) return startOfOrdinal(year, Number(parts['ordinal']))
  if (parts['week'] !== undefined) return startOfWeekDate(year, Number(parts['week']), Number(parts['weekday'] ?? 1))
  return startOfDay(year, Number(parts['month'] ?? parts['month2'] ?? 1), Number(parts['day'] ?? parts['day2'] ?? 1))
}

function startOfDay(year: number, month: number, day: number): number | undefined {
  const date = new Date(0)
  date.setUTCFullYear(year, month - 1, day)
  return date.getUTCFullYear() === year && date.getUTCMonth() === month - 1 && date.getUTCDate() === day ? date.getTime() : undefined
}

function startOfOrdinal(year: number, ordinalDay: number): number | undefined {
  const first = startOfDay(year, 1, 1)
  if (first === undefined || ordinalDay < 1) return undefined
  const date = first + (ordinalDay - 1) * dayMs
  return new Date(date).getUTCFullYear() === year ? date : undefined
}

/** Returns the first moment of a day in an ISO week. Week 1 contains 4 January; weeks begin on Monday. */
function startOfWeekDate(year: number, weekNumber: number, weekday: number): number | undefined {
  const fourth = startOfDay(year, 1, 4)
  if (fourth === undefined || weekNumber < 1) return undefined
  const monday = fourth - ((new Date(fourth).getUTCDay() + 6) % 7) * dayMs
  const date = monday + ((weekNumber - 1) * 7 + weekday - 1) * dayMs
  // The year of a week is the year of its Thursday.
  const thursday = monday + ((weekNumber - 1) * 7 + 3) * dayMs
  return new Date(thursday).getUTCFullYear() === year ? date : undefined
}

/** Parses a time of day into the time since midnight; 24:00 is the end of the day. A leap second counts as the second before it. */
function withinDay(time: string): bigint | undefined {
  const parts: Parts | undefined = clock.exec(time)?.groups
  if (parts === undefined) return undefined
  const hour = Number(parts['hour'])
  const minute = Number(parts['minute'] ?? 0)
  const second = Math.min(Number(parts['second'] ?? 0), 59)
  if (hour > 24 || minute > 59 || Number(parts['second'] ?? 0) > 60) return undefined
  const unitMs = parts['second'] !== undefined ? 1000 : parts['minute'] !== undefined ? 60_000 : 3_600_000
  const digits = parts['fraction'] ?? '0'
  // Exact: a unit has at least 1,000 ms, and there are at most 18 digits.
  const fraction = (BigInt(digits) * BigInt(unitMs) * perMillisecond) / 10n ** BigInt(digits.length)
  const since = BigInt(hour * 3_600_000 + minute * 60_000 + second * 1000) * perMillisecond + fraction
  return since > BigInt(dayMs) * perMillisecond ? undefined : since
}

function offsetMs({ sign, hours = '0', minutes = '0' }: Parts): number | undefined {
  if (sign === undefined) return 0
  if (Number(hours) > 23 || Number(minutes) > 59) return undefined
  return (sign === '+' ? 1 : -1) * (Number(hours) * 60 + Number(minutes)) * 60_000
}

/** Maximum number of records in one response (docs/spec/registry.md#history-endpoint). */
export const historyPageSize = 1000

/** Dependencies of the history route. */
export interface HistoryRouteOptions {
  readonly services: Services
  readonly gate: Gate
}

/** The period that a request asks for, in milliseconds since 1970. */
interface HistoryWindow {
  readonly startMs?: number
  readonly endMs?: number
}

/**
 * Handler for `GET /v2/<organization>/<image>/_service/history/<tag>` (docs/spec/registry.md#history-endpoint). Returns what the tag
 * pointed to in [start, end), oldest first. If more records follow a full page, `Link` has the URL of the next page. Needs `pull`. Throws
 * RegistryError: NAME_UNKNOWN or MANIFEST_UNKNOWN (404), or 400 if a time is invalid or the end is not after the start.
 */
export function createHistoryRoute({ services, gate }: HistoryRouteOptions): HistoryRoute {
  return async (exchange, { repository, tag }) => {
    const { target } = await gate.enter(exchange, { repository, actions: ['pull'] })
    if (target.kind === 'absent') throw new RegistryError('NAME_UNKNOWN', 'there is no such repository')
    const window = windowOf(exchange.query)
    const found = await readHistory(services, { repo: target.uid, name: tag, ...window, limit: historyPageSize }, exchange.signal)
    if (found === undefined) throw new RegistryError('MANIFEST_UNKNOWN', 'there is no such tag')
    const history = found.records.map(({ timeMs, digest }) => ({ updateTimestamp: new Date(timeMs).toISOString(), digest }))
    const body = JSON.stringify({ history })
    const last = found.records.at(-1)
    const link = found.more && last !== undefined ? ['Link', `<${nextPage(exchange, last.timeMs + 1)}>; rel="next"`] : []
    exchange.send(200, ['Content-Type', 'application/json', 'Content-Length', Buffer.byteLength(body), 'Cache-Control', 'no-store', ...link], body)
  }
}

function windowOf(query: URLSearchParams): HistoryWindow {
  const start = boundOf(query, 'start')
  const end = boundOf(query, 'end')
  if (start !== undefined && end !== undefined && end <= start) throw badTime('end', 'must be after start')
  return { ...(start === undefined ? {} : { startMs: toMs(start) }), ...(end === undefined ? {} : { endMs: toMs(end) }) }
}

function boundOf(query: URLSearchParams, name: 'start' | 'end'): bigint | undefined {
  const [text, ...more] = query.getAll(name)
  if (text === undefined || (text === '' && more.length === 0)) return undefined
  const instant = more.length > 0 ? undefined : parseInstant(text)
  if (instant === undefined) throw badTime(name, 'must be one ISO 8601 time, such as 2026-01-31T12:00:00Z')
  return instant
}

/** Rounds an instant up to whole milliseconds, the precision of records. */
function toMs(instant: bigint): number {
  return instant <= 0n ? 0 : Number((instant + perMillisecond - 1n) / perMillisecond)
}

function badTime(name: string, description: string): RegistryError {
  return new RegistryError('UNSUPPORTED', `${name} ${description}`, { status: 400, detail: { parameter: name } })
}

/** Returns the URL of the same request from `startMs` on, without a host, since the host may have several names. */
function nextPage(exchange: RegistryExchange, startMs: number): string {
  const end = exchange.query.get('end')
  const query = new URLSearchParams({ start: new Date(startMs).toISOString(), ...(end === null || end === '' ? {} : { end }) })
  return `${exchange.path}?${query.toString()}`
}
