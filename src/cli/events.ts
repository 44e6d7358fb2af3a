import { Option, type Command } from 'commander'
import { clientCommand, runClient, type ClientContext } from './client/client-command.ts'
import { textOf, type Json } from './client/client-error.ts'
import { alignedLine, printable } from './client/columns.ts'
import type { ConnectionOptions } from './client/connection.ts'
import { followEvents, readEventPage } from './client/event-stream.ts'
import { jsonLine } from './client/output.ts'
import { findGroup } from './client/places.ts'
import type { ClientQuery } from './client/platform-client.ts'
import { parseCount } from './get.ts'

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
  if (request.follow === true) return followEvents(context, { query, print, from: request.cursor, signal: request.signal ?? new AbortController().signal })
  const size: ClientQuery = request.limit === undefined ? {} : { page_size: String(request.limit) }
  const { events, cursor } = await readEventPage(client, { ...query, ...size, ...(request.cursor === undefined ? {} : { cursor: request.cursor }) })
  for (const event of events) await print(event)
  note(events.length === 0 ? 'no events that you may see' : `continue with --cursor ${cursor}`)
}

function lineOf(event: Json, format: EventsRequest['output']): string {
  if (format === 'json') return `${jsonLine(event)}\n`
  const cells = ['time', 'type', 'subject', 'actor'].map((name) => printable(textOf(event[name])) || '-')
  return `${alignedLine(cells, widths)}\n`
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
