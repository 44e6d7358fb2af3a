import { InvalidArgumentError, Option, type Command } from 'commander'
import { clientCommand, runClient } from './client/client-command.ts'
import type { ConnectionOptions } from './client/connection.ts'
import { clientKinds } from './client/kinds.ts'
import { recordFormats, type RecordFormat } from './client/records.ts'
import { get, type Selection } from './get-records.ts'

type GetOptions = ConnectionOptions & Selection & { readonly output: RecordFormat }

/** `taproot get`. `program` is what it is called by: `taproot` or `kubectl taproot`. */
export function getCommand(program: string): Command {
  return clientCommand('get', 'print records: one, or all of a kind that you may see')
    .argument('<kind>', 'groups, group or pg; the list is below')
    .argument('[record]', 'a name, a path such as acme/team/app, or a uid')
    .option('--in <place>', 'only what lies directly in this group or repo: a path or a uid')
    .option('-A, --descendants', 'with --in: at any depth below it')
    .addOption(new Option('--filter <field=value>', 'only records with this value; may be repeated').argParser(collectFilter).default([], 'none'))
    .option('--order-by <fields>', 'such as "name desc,created_at"')
    .option('--limit <number>', 'print so many at most', parseCount)
    .addOption(new Option('-o, --output <format>', 'how it is printed').choices(recordFormats).default('table'))
    .addHelpText('after', () => `\n${kindList()}\n\nExamples:\n${examples(program)}`)
    .action((kind: string, record: string | undefined, options: GetOptions) =>
      runClient(program, options, (context) => get(context, { kind, record, ...options, format: options.output })),
    )
}

/** Reads a whole number from 1 on; commander names the option where it is none. */
export function parseCount(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('It takes a whole number from 1 on.')
  return Number(text)
}

function collectFilter(text: string, filters: readonly string[]): readonly string[] {
  if (text.indexOf('=') < 1) throw new InvalidArgumentError('It takes field=value.')
  return [...filters, text]
}

function kindList(): string {
  const rows = clientKinds.flatMap(({ names: [plural = '', ...others], filters }) => {
    const names = `  ${plural.padEnd(width)} ${others.join(', ')}`
    return filters.length === 0 ? [names] : [names, `    --filter ${filters.join(', ')}`]
  })
  return ['Kinds, their other names, and what they can be filtered by:', ...rows].join('\n')
}

const width = Math.max(...clientKinds.map(({ names: [plural = ''] }) => plural.length))

function examples(program: string): string {
  const lines = ['get groups', 'get repos --in acme -A', 'get tag acme/team/app:1.0 -o yaml', 'get rolebindings --filter role=<uid> -o json']
  return lines.map((line) => `  ${program} ${line}`).join('\n')
}
