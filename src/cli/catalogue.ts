import { Command, Option } from 'commander'
import { clientCommand, runClient, type ClientContext } from './client/client-command.ts'
import { isJson, textOf, type Json } from './client/client-error.ts'
import { ageText, alignedLine, columnWidths, printable } from './client/columns.ts'
import type { ConnectionOptions } from './client/connection.ts'
import { jsonLine } from './client/output.ts'
import { UsageError, exitAfterParsing } from './exit-codes.ts'

const path = '/catalogue/v2/catalogues'
const feedsPath = '/catalogue/v2/feeds'
const formats = ['table', 'json'] as const

/** How records are printed. */
export interface CatalogueOutput {
  readonly output: (typeof formats)[number]
}

async function printTable({ output }: ClientContext, rows: readonly (readonly string[])[]): Promise<void> {
  const widths = columnWidths(rows)
  for (const row of rows) await output.write(`${alignedLine(row, widths)}\n`)
}

function recordsIn(answer: Json, member: string): readonly Json[] {
  const records = answer[member]
  return Array.isArray(records) ? records.filter(isJson) : []
}

/** Prints records as a table with these columns, or as JSON lines. */
async function printAll(
  context: ClientContext,
  { records, output }: { readonly records: readonly Json[]; readonly output: CatalogueOutput['output'] },
  columns: Readonly<Record<string, (record: Json) => string>>,
): Promise<void> {
  if (output === 'json') for (const record of records) await context.output.write(`${jsonLine(record)}\n`)
  else await printTable(context, [Object.keys(columns), ...records.map((record) => Object.values(columns).map((cell) => printable(cell(record))))])
}

function catalogueColumns(nowMs: number): Readonly<Record<string, (record: Json) => string>> {
  return {
    KIND: ({ kind }) => textOf(kind),
    CURRENT: ({ current }) => (current === true ? 'yes' : ''),
    SIZE: ({ sizeBytes }) => `${(Number(sizeBytes) / 1e6).toFixed(1)} MB`,
    AGE: ({ publishTime }) => ageText(nowMs - Date.parse(textOf(publishTime))),
    DIGEST: ({ digest }) => textOf(digest),
  }
}

/** Prints the catalogues that are kept. */
export async function printCatalogues(context: ClientContext, { output }: CatalogueOutput): Promise<void> {
  const records = recordsIn(await context.client.call({ method: 'GET', path }), 'catalogues')
  if (records.length === 0 && output === 'table') context.note('no catalogues: import one with "taproot import"')
  else await printAll(context, { records, output }, catalogueColumns(context.clock.now()))
}

/** Resolves with the digest that begins with `text`, with or without `sha256:`. Rejects with UsageError unless exactly one does. */
async function digestOf({ client }: ClientContext, text: string): Promise<Json> {
  const records = recordsIn(await client.call({ method: 'GET', path }), 'catalogues')
  const found = records.filter(({ digest }) => textOf(digest).startsWith(text) || textOf(digest).startsWith(`sha256:${text}`))
  const [only] = found
  if (only === undefined) throw new UsageError(`no catalogue ${text} is kept: see "taproot catalogue list"`)
  if (found.length > 1) throw new UsageError(`${found.length} catalogues begin with ${text}: give more of the digest`)
  return only
}

/** Prints what is known of one catalogue. */
export async function showCatalogue(context: ClientContext, digest: string): Promise<void> {
  await context.output.write(`${JSON.stringify(await digestOf(context, digest), undefined, 2)}\n`)
}

/** Makes a catalogue the current one of its kind. */
export async function switchCatalogue(context: ClientContext, text: string): Promise<void> {
  const { digest } = await digestOf(context, text)
  const { kind } = await context.client.call({ method: 'POST', path: `${path}/${encodeURIComponent(textOf(digest))}:use`, body: {} })
  await context.output.write(`current ${textOf(kind)}: ${textOf(digest)}\n`)
}

/** Deletes all catalogues but the current ones. */
export async function prune(context: ClientContext, { yes }: { readonly yes?: true }): Promise<void> {
  if (yes !== true) throw new UsageError('earlier catalogues cannot be brought back: repeat the command with --yes')
  const deleted = recordsIn(await context.client.call({ method: 'POST', path: `${path}:prune`, body: {} }), 'catalogues')
  for (const { kind, digest } of deleted) await context.output.write(`deleted ${textOf(kind)} ${textOf(digest)}\n`)
  if (deleted.length === 0) context.note('nothing to delete')
}

/** Prints the configured feeds with their state. */
export async function printFeeds(context: ClientContext, { output }: CatalogueOutput): Promise<void> {
  const nowMs = context.clock.now()
  const records = recordsIn(await context.client.call({ method: 'GET', path: feedsPath }), 'feeds')
  const age = (time: unknown): string => (time === undefined ? 'never' : ageText(nowMs - Date.parse(textOf(time))))
  if (records.length === 0 && output === 'table') context.note('no feeds are configured (catalogues.feeds)')
  else
    await printAll(
      context,
      { records, output },
      {
        NAME: ({ name }) => textOf(name),
        STATE: ({ state }) => textOf(state).toLowerCase(),
        'LAST SUCCESS': ({ lastSuccessTime }) => age(lastSuccessTime),
        DOCUMENTS: ({ documents = '0' }) => textOf(documents),
        REFUSED: ({ refused = '0' }) => textOf(refused),
        SOURCE: ({ source }) => textOf(source),
        ERROR: ({ lastError }) => textOf(lastError),
      },
    )
}

/** Asks the server to run a feed. */
export async function runFeed(context: ClientContext, name: string): Promise<void> {
  await context.client.call({ method: 'POST', path: `${feedsPath}/${encodeURIComponent(name)}:run`, body: {} })
  await context.output.write(`feed ${name} runs: see "taproot catalogue feeds"\n`)
}

/** Creates the command `catalogue`. `program` is the name on the command line. */
export function catalogueCommand(program: string): Command {
  const format = (): Option => new Option('-o, --output <format>', 'output format').choices(formats).default('table')
  const command = new Command('catalogue').description('catalogues of imported data, and their feeds; for operators').exitOverride(exitAfterParsing)
  command.addCommand(
    clientCommand('list', 'list the catalogues that are kept, the current one of each kind first')
      .addOption(format())
      .action((options: ConnectionOptions & CatalogueOutput) => runClient(program, options, (context) => printCatalogues(context, options))),
  )
  command.addCommand(
    clientCommand('show', 'print one catalogue as JSON')
      .argument('<digest>', 'digest, or the beginning of it')
      .action((digest: string, options: ConnectionOptions) => runClient(program, options, (context) => showCatalogue(context, digest))),
  )
  command.addCommand(
    clientCommand('use', 'answer from this catalogue: goes back to an earlier one, or forward again')
      .argument('<digest>', 'digest, or the beginning of it')
      .action((digest: string, options: ConnectionOptions) => runClient(program, options, (context) => switchCatalogue(context, digest))),
  )
  command.addCommand(
    clientCommand('prune', 'delete all catalogues but the current ones')
      .option('--yes', 'confirm: it cannot be undone')
      .action((options: ConnectionOptions & { readonly yes?: true }) => runClient(program, options, (context) => prune(context, options))),
  )
  command.addCommand(
    clientCommand('feeds', 'list the configured feeds and how they do')
      .addOption(format())
      .action((options: ConnectionOptions & CatalogueOutput) => runClient(program, options, (context) => printFeeds(context, options))),
  )
  command.addCommand(
    clientCommand('run', 'run a feed now')
      .argument('<feed>', 'name of the feed')
      .action((name: string, options: ConnectionOptions) => runClient(program, options, (context) => runFeed(context, name))),
  )
  return command
}
