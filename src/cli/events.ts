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
import { parseCount } from './get.ts'

const path = '/events/v2/events'
/** The server sends something every 15 seconds. A connection that is silent for longer was cut, in milliseconds. */
const silentMs = 45_000
const timeoutMs = 30_000
const backoff = { firstMs: 500, maxMs: 30_000 }
/** Codes after which a later attempt may succeed: too many streams, a deadline, a server that stops. */
const passing: ReadonlySet<number> = new Set([4, 8, 14])
/** The widths of time, type and subject. A longer cell shifts its line. */
const widths = [24, 48, 40]

const formats = ['table', 'json'] as const

/** A request for events. */
export interface EventsRequest {
  /** A group, by path or uid; all visible ones if absent. */
  readonly in?: string
  readonly type: readonly string[]
  readonly includePulls?: true
  readonly cursor?: string
  readonly limit?: number
  readonly follow?: true
  readonly output: (typeof formats)[number]
  /** Ends `follow`; nothing does if absent. */
  readonly signal?: AbortSignal
}

/** A record of a stream of events. */
interface StreamRecord {
  readonly id: string
  readonly type: string
  /** Empty for a comment. */
  readonly data: string
}

/** Prints a page of events, or with `follow` all that happen. Rejects with ClientError if the API refuses, and if a cursor is too old. */
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

/** Names what to do about a cursor that is too old. */
function explained(error: unknown): unknown {
  if (!(error instanceof ClientError) || error.code !== 11) return error
  const { code, reason, requestId } = error
  return new ClientError('events after this cursor have expired: start again without --cursor, and expect a gap', { code, reason, requestId })
}

/** The parts of a stream that is followed. */
interface Following {
  readonly query: ClientQuery
  readonly print: (event: Json) => Promise<void>
  readonly from: string | undefined
  readonly signal: AbortSignal
}

/** Prints events until `signal` aborts. After a cut it connects again, and continues with the last cursor. The first connection must succeed. */
async function follow({ client, note }: ClientContext, { query, print, from, signal }: Following): Promise<void> {
  let cursor = from
  let failures = 0
  let hasBegun = false
  while (!signal.aborted) {
    try {
      for await (const { id, type, data } of recordsOf(client, { ...query, ...(cursor === undefined ? {} : { cursor }) }, signal)) {
        if (type === 'error') throw refusalOf(jsonOf(data)) ?? new ClientError('the stream ended with an unknown error')
        hasBegun = true
        failures = 0
        if (data !== '') await print(jsonOf(data))
        cursor = id
      }
    } catch (error) {
      const isCut = error instanceof ClientError && (error.code === undefined ? hasBegun : passing.has(error.code))
      if (!isCut) throw explained(error)
    }
    if (signal.aborted) return
    failures += 1
    if (failures === 1) note('the connection was cut: connecting again')
    await pause(backoffMs(backoff, failures, systemRandom), signal)
  }
}

function jsonOf(data: string): Json {
  const parsed: unknown = JSON.parse(data)
  return isJson(parsed) ? parsed : {}
}

/** Yields the records of a stream. Ends, or throws ClientError, when the connection does. */
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
    throw error instanceof ClientError ? error : new ClientError('the connection was cut', {}, error)
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

/** The command `events`. `program` is the name on the command line. */
export function eventsCommand(program: string): Command {
  return clientCommand('events', 'print what happened, oldest first')
    .option('-f, --follow', 'print each event when it happens, until the command is stopped')
    .option('--in <group>', 'only events of this group and of all below it: a path or a uid')
    .addOption(new Option('--type <prefix>', 'only events whose type starts so; may be repeated').argParser(addType).default([], 'all types'))
    .option('--include-pulls', 'also print events of pulls')
    .option('--cursor <cursor>', 'continue with the cursor of an earlier call; "now" prints only what follows')
    .addOption(new Option('--limit <number>', 'print so many at most; not with --follow').argParser(parseCount).conflicts('follow'))
    .addOption(new Option('-o, --output <format>', 'how it is printed').choices(formats).default('table'))
    .action((options: ConnectionOptions & EventsRequest) => runClient(program, options, (context) => printEvents(context, options)))
}

function addType(type: string, types: readonly string[]): readonly string[] {
  return [...types, type]
}
