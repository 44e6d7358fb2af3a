import { Option, type Command } from 'commander'
import { backoffMs, pause } from '../base/timing.ts'
import { systemRandom } from '../server/runtime.ts'
import { clientCommand, runClient, type ClientContext } from './client/client-command.ts'
import { ClientError, isJson, refusalOf, textOf, type Json } from './client/client-error.ts'
import { alignedLine, printable } from './client/columns.ts'
import type { ConnectionOptions } from './client/connection.ts'
import { jsonLine } from './client/output.ts'
import { findGroup } from './client/places.ts'
import type { ClientQuery, PlatformClient } from './client/platform-client.ts'
import { UsageError } from './exit-codes.ts'
import { parseCount } from './get.ts'

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
/** Column widths of time, type and subject, in characters. A longer cell shifts the rest of its line. */
const widths = [24, 48, 57]

const formats = ['table', 'json'] as const

/** Selects the events to print. */
export interface EventsRequest {
  /** A group, by path or uid; if absent, all groups that the caller can see. */
  readonly in?: string
  readonly type: readonly string[]
  readonly includePulls?: true
  readonly cursor?: string
  readonly limit?: number
  readonly follow?: true
  readonly output: (typeof formats)[number]
  /** Stops `follow`. If absent, it never stops. */
  readonly signal?: AbortSignal
}

/** A message of a stream of server-sent events. */
interface StreamRecord {
  readonly id: string
  readonly type: string
  /** The data of the message; empty for a comment. */
  readonly data: string
}

/**
 * Prints a page of events, or with `follow` all events as they happen. Rejects with ClientError if the API refuses, or if events after the
 * cursor have expired.
 */
export async function printEvents(context: ClientContext, request: EventsRequest): Promise<void> {
  const { client, note } = context
  const query = {
    ...(request.in === undefined ? {} : { 'uidp.descendants_of': await findGroup(client, request.in) }),
    ...(request.type.length === 0 ? {} : { types: request.type }),
    ...(request.includePulls === true ? { include_pulls: 'true' } : {}),
  }
  const print = (event: Json): Promise<void> => context.output.write(lineOf(event, request.output))
  if (request.follow === true) return follow(context, { query, print, from: request.cursor, signal: request.signal ?? new AbortController().signal })
  const size: ClientQuery = request.limit === undefined ? {} : { page_size: String(request.limit) }
  const { events, cursor } = await readPage(client, { ...query, ...size, ...(request.cursor === undefined ? {} : { cursor: request.cursor }) })
  for (const event of events) await print(event)
  note(events.length === 0 ? 'no events that you may see' : `continue with --cursor ${cursor}`)
}

function lineOf(event: Json, format: EventsRequest['output']): string {
  if (format === 'json') return `${jsonLine(event)}\n`
  const cells = ['time', 'type', 'subject', 'actor'].map((name) => printable(textOf(event[name])) || '-')
  return `${alignedLine(cells, widths)}\n`
}

async function readPage(client: PlatformClient, query: ClientQuery): Promise<{ events: readonly Json[]; cursor: string }> {
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
interface Following {
  readonly query: ClientQuery
  readonly print: (event: Json) => Promise<void>
  readonly from: string | undefined
  readonly signal: AbortSignal
}

/**
 * Prints events until `signal` aborts. If the connection is lost, connects again and continues with the last cursor. Each connection reads a
 * token file again. The first attempt to connect must succeed.
 */
async function follow({ client, note, source }: ClientContext, { query, print, from, signal }: Following): Promise<void> {
  let cursor = from
  let failures = 0
  let hasBegun = false
  const read = async (): Promise<void> => {
    for await (const { id, type, data } of recordsOf(client, { ...query, ...(cursor === undefined ? {} : { cursor }) }, signal)) {
      if (type === 'error') throw refusalOf(jsonOf(data)) ?? new ClientError('the stream ended with an unknown error')
      hasBegun = true
      failures = 0
      if (data !== '') await print(jsonOf(data))
      cursor = id
    }
  }
  let noted = ''
  while (!signal.aborted) {
    const reason = await read().then(
      () => cutNote,
      (error: unknown) => {
        const isRenewed = source !== 'token' && hasBegun && failures < maxRefused && isOfToken(error)
        if (!isRenewed && !isCut(error, hasBegun)) throw explained(error)
        return isRenewed ? tokenNote : cutNote
      },
    )
    if (signal.aborted) return
    failures += 1
    if (failures === 1 || noted !== reason) note(reason)
    noted = reason
    await pause(backoffMs(backoff, failures, systemRandom), signal)
  }
}

/** True if a later attempt may succeed. */
function isCut(error: unknown, hasBegun: boolean): boolean {
  return error instanceof ClientError && (error.code === undefined ? hasBegun : passing.has(error.code))
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

/** Creates the command `events`. `program` is the name on the command line. */
export function eventsCommand(program: string): Command {
  return clientCommand('events', 'print events, oldest first')
    .option('-f, --follow', 'print each event when it happens, until the command is stopped')
    .option('--in <group>', 'only events of this group and the groups below it: a path or a uid')
    .addOption(new Option('--type <prefix>', 'only events whose type starts with this; may be repeated').argParser(addType).default([], 'all types'))
    .option('--include-pulls', 'also print pull events')
    .option('--cursor <cursor>', 'continue after the cursor of an earlier call; "now" prints only new events')
    .addOption(new Option('--limit <number>', 'maximum number of events; not with --follow').argParser(parseCount).conflicts('follow'))
    .addOption(new Option('-o, --output <format>', 'output format').choices(formats).default('table'))
    .action((options: ConnectionOptions & EventsRequest) => runClient(program, options, (context) => printEvents(context, options)))
}

function addType(type: string, types: readonly string[]): readonly string[] {
  return [...types, type]
}
