import { Option, type Command } from 'commander'
import { clientCommand, runClient, type ClientContext } from './client/client-command.ts'
import { ageText, printable } from './client/columns.ts'
import type { ConnectionOptions } from './client/connection.ts'
import { jsonText, yamlText } from './client/output.ts'
import { alignedLine, columnWidths } from './client/table.ts'
import { readCaller, type Caller } from './whoami-caller.ts'

const formats = ['table', 'json', 'yaml'] as const

/** `taproot whoami`. `program` is what it is called by. */
export function whoamiCommand(program: string): Command {
  return clientCommand('whoami', 'print who the token is, until when, and which roles it has where')
    .addOption(new Option('-o, --output <format>', 'how it is printed').choices(formats).default('table'))
    .action((options: ConnectionOptions & { output: (typeof formats)[number] }) => runClient(program, options, (context) => whoami(context, options.output)))
}

/** Prints who the caller is. Rejects with ClientError. */
export async function whoami({ client, token, output, clock }: ClientContext, format: (typeof formats)[number]): Promise<void> {
  const caller = await readCaller(client, token)
  const text = { table: () => factsText(caller, clock.now()), json: () => `${jsonText(caller)}\n`, yaml: () => yamlText(caller) }[format]()
  await output.write(text)
}

function factsText(caller: Caller, nowMs: number): string {
  const { identity, signedInAs, organisation, audience, expirationTime, email, roles } = caller
  const leftMs = Date.parse(expirationTime) - nowMs
  const facts: [string, string][] = [
    ['identity', namedText(identity)],
    ['signed in as', signedInAs === undefined ? 'not told' : `${signedInAs.subject} at ${signedInAs.issuer}`],
    ['e-mail', email],
    ['organisation', organisation === undefined ? 'none' : namedText(organisation)],
    ['audience', audience.join(', ')],
    ['expires', `${expirationTime}${leftMs > 0 ? `, in ${ageText(leftMs)}` : ''}`],
    ['roles', roles.length === 0 ? 'none' : ''],
  ]
  const lines = facts
    .filter(([name, value]) => value !== '' || (name === 'roles' && roles.length > 0))
    .map(([name, value]) => `${name.padEnd(14)}${printable(value)}`.trimEnd())
  return `${[...lines, ...roleLines(roles)].join('\n')}\n`
}

function roleLines(roles: Caller['roles']): string[] {
  const rows = roles.map(({ role, group, groupUid }) => [role, group, groupUid].map(printable))
  const widths = columnWidths(rows)
  return rows.map((row) => `  ${alignedLine(row, widths)}`)
}

function namedText({ uid, name }: { readonly uid: string; readonly name: string | undefined }): string {
  return name === undefined ? uid : `${name} (${uid})`
}
