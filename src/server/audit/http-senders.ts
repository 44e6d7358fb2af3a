import { hostname } from 'node:os'
import { FetchError, type FetchRequest, type SafeFetch } from '../../auth/safe-fetch.ts'
import { isTree } from '../../config/tree.ts'
import type { SendEvents } from './remote-sink.ts'
import { RefusedEvents } from './sink.ts'
import type { SpooledEvent } from './spool.ts'

/** A receiver to which events are posted. */
export interface HttpReceiver {
  readonly fetch: SafeFetch
  readonly url: string
  /** Returns the bearer token, which may change. */
  readonly token?: () => string
  /** Returns the CA certificates to trust in place of the system's. They may change. */
  readonly ca?: () => string
}

/** Statuses with which a receiver permanently refuses a body. */
const refusals: ReadonlySet<number> = new Set([400, 413, 422])

/** Posts a batch of events. Throws RefusedEvents or FetchError. */
async function post(
  { fetch, url, token, ca }: HttpReceiver,
  request: Pick<FetchRequest, 'headers' | 'body' | 'discardBody'>,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const bearer = token === undefined ? {} : { authorization: `Bearer ${token()}` }
  const trust = ca === undefined ? {} : { ca: ca() }
  try {
    const answer = await fetch.send({ url, method: 'POST', allowPrivate: true, ...trust, ...request, headers: { ...request.headers, ...bearer } }, signal)
    return answer.body
  } catch (error) {
    if (error instanceof FetchError && error.status !== undefined && refusals.has(error.status))
      throw new RefusedEvents(`the receiver answers ${error.status}`, { cause: error })
    throw error
  }
}

/** Returns a function that posts events as lines of JSON. */
export function createJsonLinesSender(receiver: HttpReceiver): SendEvents {
  const headers = { 'content-type': 'application/x-ndjson' }
  return async (events, signal) => {
    await post(receiver, { headers, body: events.map(({ text }) => `${text}\n`).join(''), discardBody: true }, signal)
    return 0
  }
}

/** Returns a function that posts events as OTLP logs in JSON (OTLP/HTTP 1.0). */
export function createOtlpSender(receiver: HttpReceiver): SendEvents {
  const headers = { 'content-type': 'application/json' }
  return async (events, signal) => {
    const answer = await post(receiver, { headers, body: JSON.stringify(exportRequest(events)) }, signal)
    return rejectedOf(Buffer.from(answer).toString('utf8'))
  }
}

type OtlpValue = { readonly stringValue: string } | { readonly boolValue: boolean } | { readonly intValue: string }

function otlpValue(value: unknown): OtlpValue {
  if (typeof value === 'boolean') return { boolValue: value }
  return typeof value === 'number' ? { intValue: String(value) } : { stringValue: String(value) }
}

function attributes(fields: object): { readonly key: string; readonly value: OtlpValue }[] {
  return Object.entries(fields).map(([key, value]) => ({ key, value: otlpValue(value) }))
}

function exportRequest(events: readonly SpooledEvent[]): object {
  const logRecords = events.map(({ event: { time, ...fields } }) => {
    const isDone = fields.outcome === 'done'
    return {
      timeUnixNano: `${Date.parse(time)}000000`,
      severityNumber: isDone ? 9 : 13,
      severityText: isDone ? 'INFO' : 'WARN',
      eventName: 'taproot.audit',
      body: { stringValue: `${fields.method} ${fields.outcome}` },
      attributes: attributes(fields),
    }
  })
  const resource = { attributes: attributes({ 'service.name': 'taproot', 'host.name': hostname() }) }
  return { resourceLogs: [{ resource, scopeLogs: [{ scope: { name: 'taproot.audit' }, logRecords }] }] }
}

/** Returns how many events the receiver rejects, which must not be sent again. */
function rejectedOf(answer: string): number {
  try {
    const parsed: unknown = JSON.parse(answer)
    const partial = isTree(parsed) ? parsed['partialSuccess'] : undefined
    const rejected = isTree(partial) ? Number(partial['rejectedLogRecords'] ?? 0) : 0
    return Number.isInteger(rejected) ? rejected : 0
  } catch {
    return 0
  }
}
