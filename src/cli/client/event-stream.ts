import { backoffMs, pause } from '../../base/timing.ts'
import { systemRandom } from '../../server/runtime.ts'
import { UsageError } from '../exit-codes.ts'
import type { ClientContext } from './client-command.ts'
import { ClientError, isJson, refusalOf, type Json } from './client-error.ts'
import type { ClientQuery, PlatformClient } from './platform-client.ts'

const path = '/events/v2/events'
/** Time without any data after which a connection counts as lost, in milliseconds. The server sends something every 15 seconds. */
const silentMs = 45_000
const timeoutMs = 30_000
const backoff = { firstMs: 500, maxMs: 30_000 }
/** gRPC status codes after which a later attempt may succeed: too many streams, a timeout, or a server that is stopping. */
const passing: ReadonlySet<number> = new Set([4, 8, 14])
/** Number of consecutive attempts with a refused token before the command ends, about a minute. A new token may be written to the file late. */
const maxRefused = 8
const cutNote = 'the connection was cut: connecting again'
const tokenNote = 'the token was refused or cannot be read: reading it again'

/** A message of a stream of server-sent events. */
interface StreamRecord {
  readonly id: string
  readonly type: string
  /** The data of the message; empty for a comment. */
  readonly data: string
}

/** Reads a page of the feed, and the cursor after it. Rejects with ClientError. */
export async function readEventPage(client: PlatformClient, query: ClientQuery): Promise<{ events: readonly Json[]; cursor: string }> {
  try {
    const response = await client.open(path, { query, accept: 'application/cloudevents-batch+json', signal: AbortSignal.timeout(timeoutMs) })
    const events: unknown = await response.json()
    return { events: Array.isArray(events) ? events.filter(isJson) : [], cursor: response.headers.get('next-cursor') ?? '' }
  } catch (error) {
    throw explained(error)
  }
}

/** Adds advice to the error for an expired cursor. */
function explained(error: unknown): unknown {
  if (!(error instanceof ClientError) || error.code !== 11) return error
  const { code, reason, requestId } = error
  return new ClientError('events after this cursor have expired: start again without --cursor, and expect a gap', { code, reason, requestId })
}

/** Parameters of a stream to follow. */
export interface Following {
  readonly query: ClientQuery
  readonly print: (event: Json) => Promise<void>
  readonly from: string | undefined
  readonly signal: AbortSignal
}

/**
 * Prints events until `signal` aborts. If the connection is lost, connects again and continues with the last cursor. Each connection reads a
 * token file again. The first attempt to connect must succeed.
 */
export async function followEvents({ client, note, source }: ClientContext, { query, print, from, signal }: Following): Promise<void> {
  let cursor = from
  let hasBegun = false
  const retries = new Retries({ note, source }, cutNote)
  const read = async (): Promise<void> => {
    for await (const { id, type, data } of recordsOf(client, { ...query, ...(cursor === undefined ? {} : { cursor }) }, signal)) {
      if (type === 'error') throw refusalOf(jsonOf(data)) ?? new ClientError('the stream ended with an unknown error')
      hasBegun = true
      retries.succeeded()
      if (data !== '') await print(jsonOf(data))
      cursor = id
    }
  }
  while (!signal.aborted) {
    const error = await read().then(
      () => undefined,
      (failure: unknown) => failure,
    )
    if (signal.aborted) return
    if (!hasBegun && (isUnanswered(error) || isOfToken(error))) throw explained(error)
    try {
      await retries.wait(error, signal)
    } catch (final) {
      throw explained(final)
    }
  }
}

/** Decides whether an attempt is repeated, waits before it, and prints a note for each new reason. */
export class Retries {
  readonly #context: Pick<ClientContext, 'note' | 'source'>
  readonly #note: string
  #failures = 0
  #noted = ''

  /** `note` is printed if the connection was cut, or if the server says that a later attempt may succeed. */
  constructor(context: Pick<ClientContext, 'note' | 'source'>, note: string) {
    this.#context = context
    this.#note = note
  }

  /** Says that an attempt succeeded. */
  succeeded(): void {
    this.#failures = 0
  }

  /** Waits before the next attempt. `error` is undefined if the connection just ended. Rejects with an error that is final. */
  async wait(error: unknown, signal: AbortSignal): Promise<void> {
    const { note, source } = this.#context
    const isRenewed = source !== 'token' && this.#failures < maxRefused && isOfToken(error)
    if (error !== undefined && !isRenewed && !isPassing(error)) throw error as Error // what was thrown is an error
    const reason = isRenewed ? tokenNote : this.#note
    this.#failures += 1
    if (this.#failures === 1 || this.#noted !== reason) note(reason)
    this.#noted = reason
    await pause(backoffMs(backoff, this.#failures, systemRandom), signal)
  }
}

/** True if a later attempt may succeed: the connection was cut, or the server says so. */
function isPassing(error: unknown): boolean {
  return error instanceof ClientError && (error.code === undefined || passing.has(error.code))
}

function isUnanswered(error: unknown): boolean {
  return error instanceof ClientError && error.code === undefined
}

/** Returns true if the server refused the token, or if its file cannot be read now. */
function isOfToken(error: unknown): boolean {
  return error instanceof UsageError || (error instanceof ClientError && error.code === 16)
}

function jsonOf(data: string): Json {
  const parsed: unknown = JSON.parse(data)
  return isJson(parsed) ? parsed : {}
}

/** Yields the messages of a stream. Ends, or throws ClientError, when the connection ends. */
async function* recordsOf(client: PlatformClient, query: ClientQuery, signal: AbortSignal): AsyncGenerator<StreamRecord, void> {
  const silent = new AbortController()
  const watch = setTimeout(() => silent.abort(), silentMs)
  try {
    const response = await client.open(path, { query, accept: 'text/event-stream', signal: AbortSignal.any([signal, silent.signal]) })
    let text = ''
    for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      watch.refresh()
      const records = (text + chunk).split('\n\n')
      text = records.pop() ?? ''
      for (const record of records) yield recordIn(record)
    }
  } catch (error) {
    throw error instanceof ClientError || error instanceof UsageError ? error : new ClientError('the connection was cut', {}, error)
  } finally {
    clearTimeout(watch)
  }
}

function recordIn(record: string): StreamRecord {
  const valueOf = (name: string): string =>
    record
      .split('\n')
      .find((line) => line.startsWith(`${name}: `))
      ?.slice(name.length + 2) ?? ''
  return { id: valueOf('id'), type: valueOf('event'), data: valueOf('data') }
}
