import type { Services } from '../../engine/services.ts'
import { readHistory } from './tag-history.ts'
import type { Gate } from '../gate.ts'
import { parseInstant, perMillisecond } from './instant.ts'
import type { Exchange } from '../oci/exchange.ts'
import type { HistoryRoute } from '../oci/oci-handler.ts'
import { RegistryError } from '../registry-error.ts'

/** Records that one answer holds at most (docs/spec/registry.md#history-endpoint). */
export const historyPageSize = 1000

/** What the history route is made of. */
export interface HistoryRouteOptions {
  readonly services: Services
  readonly gate: Gate
}

/** The window that a request asks for, in milliseconds. */
interface Window {
  readonly startMs?: number
  readonly endMs?: number
}

/**
 * `GET /v2/<organization>/<image>/_service/history/<tag>` (docs/spec/registry.md#history-endpoint): what the tag pointed to, oldest first, in [start, end). A full page that others follow names the next one in
 * `Link`. Needs `pull`. Throws RegistryError: NAME_UNKNOWN or MANIFEST_UNKNOWN (404), 400 for a time that can't be read or an end that is not after the start.
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

function windowOf(query: URLSearchParams): Window {
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

/** Records have whole milliseconds: a bound between two of them means the later one. */
function toMs(instant: bigint): number {
  return instant <= 0n ? 0 : Number((instant + perMillisecond - 1n) / perMillisecond)
}

function badTime(name: string, description: string): RegistryError {
  return new RegistryError('UNSUPPORTED', `${name} ${description}`, { status: 400, detail: { parameter: name } })
}

/** The same request from `startMs` on; a path, since the host may have several names. */
function nextPage(exchange: Exchange, startMs: number): string {
  const end = exchange.query.get('end')
  const query = new URLSearchParams({ start: new Date(startMs).toISOString(), ...(end === null || end === '' ? {} : { end }) })
  return `${exchange.path}?${query.toString()}`
}
