import { InvalidArgumentError, Option, type Command } from 'commander'
import { clientCommand, runClient, type ClientContext } from './client/client-command.ts'
import { textOf, type Json } from './client/client-error.ts'
import { alignedLine, printable } from './client/columns.ts'
import type { ConnectionOptions } from './client/connection.ts'
import { jsonLine } from './client/output.ts'
import { isUid } from '../base/uid.ts'
import { findGroup, findPlace } from './client/places.ts'
import { parseCount } from './get.ts'

const formats = ['table', 'json'] as const
const outcomes = ['done', 'denied', 'failed'] as const
/** Column widths of time, outcome, method and resource, in characters. A longer cell shifts the rest of its line. */
const widths = [24, 7, 40, 57]
const unitMs: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 24 * 3_600_000 }
const defaultLimit = 50
const maxPageSize = 200

/** Selects the audit events to print. */
export interface AuditRequest {
  /** A group, by path or uid; if absent, all groups whose events the caller can see. */
  readonly in?: string
  readonly actor?: string
  readonly resource?: string
  readonly capability?: string
  readonly method?: string
  readonly outcome?: (typeof outcomes)[number]
  /** Age of the oldest event, in milliseconds. */
  readonly since?: number
  readonly limit: number
  readonly output: (typeof formats)[number]
}

/** Prints audit events, newest first. Rejects with ClientError if the API refuses. */
export async function printAudit({ client, clock, output, note }: ClientContext, request: AuditRequest): Promise<void> {
  const { actor, resource, capability, method, outcome, since, limit } = request
  const filters = {
    actor,
    resource: resource === undefined ? undefined : (await findPlace(client, resource, ['Group', 'Repo'])).uid,
    capability,
    method,
    outcome: outcome?.toUpperCase(),
    start: since === undefined ? undefined : new Date(clock.now() - since).toISOString(),
    'uidp.descendants_of': request.in === undefined ? undefined : await findGroup(client, request.in),
    page_size: String(Math.min(limit, maxPageSize)),
  }
  const query = Object.fromEntries(Object.entries(filters).filter((pair): pair is [string, string] => pair[1] !== undefined))
  let left = limit
  for await (const event of client.list('/audit/v2/events', 'events', query)) {
    await output.write(lineOf(event, request.output))
    left -= 1
    if (left === 0) break
  }
  if (left === limit) note('no audit events that you may see')
}

function lineOf(event: Json, format: AuditRequest['output']): string {
  if (format === 'json') return `${jsonLine(event)}\n`
  const { time, outcome, method, name, resource, actor } = event
  const cells = [time, textOf(outcome).toLowerCase(), shortName(textOf(method)), name ?? resource, actor]
  return `${alignedLine(
    cells.map((cell) => printable(textOf(cell)) || '-'),
    widths,
  )}\n`
}

/** Returns the name of a method without the package of its service. */
function shortName(method: string): string {
  return method.replace(/^[\w.]+\.(?=\w+\/)/, '')
}

/** Parses an age such as `30m`, `24h` or `7d`, to milliseconds. */
export function parseAge(text: string): number {
  const [, count = '', unit = ''] = /^([1-9]\d{0,5})([mhd])$/.exec(text) ?? []
  const unitLength = unitMs[unit]
  if (unitLength === undefined) throw new InvalidArgumentError('Use an age such as 30m, 24h or 7d.')
  return Number(count) * unitLength
}

function parseUid(text: string): string {
  if (!isUid(text)) throw new InvalidArgumentError('Use the uid of an identity, as "taproot get identities -o name" prints it.')
  return text
}

/** Creates the command `audit`. `program` is the name on the command line. */
export function auditCommand(program: string): Command {
  return clientCommand('audit', 'print who did what, and what was denied, newest first')
    .option('--in <group>', 'only events of this group and the groups below it: a path or a uid')
    .addOption(new Option('--actor <uid>', 'only events of this identity').argParser(parseUid))
    .option('--resource <resource>', 'only events about this resource: a uid, or the path of a group or repo')
    .option('--capability <name>', 'only events of calls that need this capability, such as groups.delete')
    .option('--method <name>', 'only events of this method, such as login/browser')
    .addOption(new Option('--outcome <outcome>', 'only events with this outcome').choices(outcomes))
    .addOption(new Option('--since <age>', 'only events of this age or newer, such as 30m, 24h or 7d').argParser(parseAge))
    .addOption(new Option('--limit <number>', 'maximum number of events').argParser(parseCount).default(defaultLimit))
    .addOption(new Option('-o, --output <format>', 'output format').choices(formats).default('table'))
    .action((options: ConnectionOptions & AuditRequest) => runClient(program, options, (context) => printAudit(context, options)))
}
