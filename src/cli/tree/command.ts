import { InvalidArgumentError, Option, type Command } from 'commander'
import { clientCommand, runClient, type ClientContext } from '../client/client-command.ts'
import type { ConnectionOptions } from '../client/connection.ts'
import { jsonText, yamlText } from '../client/output.ts'
import { findGroup } from '../client/places.ts'
import { parseCount } from '../get.ts'
import { closedCount, drawForest } from './draw.ts'
import { gatherAll, gatherBelow, type TreeBounds } from './gather.ts'

const formats = ['table', 'json', 'yaml'] as const
const limits = { default: 20, most: 200 } as const
/** Groups that are opened at most. */
const maxOpened = 500

interface TreeOptions extends ConnectionOptions {
  readonly depth?: number
  readonly limit: number
  readonly output: (typeof formats)[number]
}

/** `taproot tree`. `program` is what it is called by. */
export function treeCommand(program: string): Command {
  return clientCommand('tree', 'draw groups and what hangs in them: identities, roles, role bindings, repos with their number of tags')
    .argument('[group]', 'from this group on: a path such as acme/team, or a uid; all that you may see if absent')
    .option('--depth <levels>', `how many levels of groups are opened; all if absent, but ${maxOpened} groups at most`, parseCount)
    .addOption(
      new Option('--limit <number>', `how many of a kind are shown in one group, ${limits.most} at most`).argParser(parseLimit).default(limits.default),
    )
    .addOption(new Option('-o, --output <format>', 'how it is printed').choices(formats).default('table'))
    .action((group: string | undefined, options: TreeOptions) => runClient(program, options, (context) => tree(context, requestOf(group, options))))
}

/** What is drawn, how much of it, and how. */
export interface TreeRequest {
  /** All that the caller may see if undefined. */
  readonly group: string | undefined
  readonly bounds: TreeBounds
  readonly format: (typeof formats)[number]
}

/** Prints groups and what hangs in them. Rejects with UsageError, ClientError. */
export async function tree({ client, output, note }: ClientContext, { group, bounds, format }: TreeRequest): Promise<void> {
  const forest = group === undefined ? await gatherAll(client, bounds) : await gatherBelow(client, await findGroup(client, group), bounds)
  const texts = {
    table: () =>
      drawForest(forest, output.style)
        .map((line) => `${line}\n`)
        .join(''),
    json: () => `${jsonText(forest)}\n`,
    yaml: () => yamlText(forest),
  }
  await output.write(texts[format]())
  const closed = closedCount(forest.groups)
  if (forest.groups.length === 0) note('no groups that you may see')
  else if (closed > 0 && bounds.depth === Infinity)
    note(`${bounds.opened} groups were opened; ${closed} more are drawn with "...": name one of them to see what is in it`)
}

function requestOf(group: string | undefined, { depth = Infinity, limit, output: format }: TreeOptions): TreeRequest {
  return { group, bounds: { depth, limit, opened: maxOpened }, format }
}

function parseLimit(text: string): number {
  const limit = parseCount(text)
  if (limit > limits.most) throw new InvalidArgumentError(`It takes ${limits.most} at most.`)
  return limit
}
