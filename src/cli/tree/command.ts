import { InvalidArgumentError, Option, type Command } from 'commander'
import { clientCommand, runClient, type ClientContext } from '../client/client-command.ts'
import { printable } from '../client/columns.ts'
import type { ConnectionOptions } from '../client/connection.ts'
import { jsonText, yamlText, type Output } from '../client/output.ts'
import { findGroup } from '../client/places.ts'
import { parseCount } from '../get.ts'
import { leafKinds, type Branch, type Forest, type Leaf, type LeafKind } from './branch.ts'
import { gatherAll, gatherBelow, type TreeBounds } from './gather.ts'

/** Words for a kind: the label before a record, and the singular and plural after a count. */
const words: Readonly<Record<LeafKind | 'groups', { readonly label: string; readonly one: string; readonly many: string }>> = {
  groups: { label: 'group', one: 'group', many: 'groups' },
  identities: { label: 'identity', one: 'identity', many: 'identities' },
  roles: { label: 'role', one: 'role', many: 'roles' },
  roleBindings: { label: 'binding', one: 'role binding', many: 'role bindings' },
  repos: { label: 'repo', one: 'repo', many: 'repos' },
}

const labelWidth = Math.max(...Object.values(words).map(({ label }) => label.length))

/** A line of the tree, and the nodes below it. */
interface Node {
  readonly text: string
  readonly nodes: readonly Node[]
}

type Style = Output['style']

/**
 * Draws a tree. The records of a group come first, then its subgroups, each list in its own order. A shortened list ends with the number
 * of omitted records.
 */
function drawForest({ count, groups }: Forest, style: Style): string[] {
  const lines = groups.flatMap((group) => [groupText(group, style), ...linesBelow(nodesOf(group, style), '')])
  const rest = count - groups.length
  return rest > 0 ? [...lines, style('dim', moreText('groups', rest))] : lines
}

/** Returns how many groups are drawn without their contents. */
function closedCount(groups: readonly Branch[]): number {
  return groups.reduce((sum, group) => sum + (group.opened ? closedCount(group.groups) : 1), 0)
}

function linesBelow(nodes: readonly Node[], indent: string): string[] {
  return nodes.flatMap(({ text, nodes: below }, at) => {
    const last = at === nodes.length - 1
    return [`${indent}${last ? '└── ' : '├── '}${text}`, ...linesBelow(below, `${indent}${last ? '    ' : '│   '}`)]
  })
}

function nodesOf(group: Branch, style: Style): Node[] {
  const leaves = leafKinds.flatMap((kind) => cut(kind, { shown: group[kind].map((leaf) => ({ text: leafText(kind, leaf, style), nodes: [] })), group, style }))
  const shown = group.groups.map((below) => ({ text: `${labelled('groups', style)}${groupText(below, style)}`, nodes: nodesOf(below, style) }))
  return [...leaves, ...cut('groups', { shown, group, style })]
}

function cut(kind: LeafKind | 'groups', { shown, group, style }: { shown: readonly Node[]; group: Branch; style: Style }): Node[] {
  const rest = group.counts[kind] - shown.length
  return rest > 0 ? [...shown, { text: style('dim', moreText(kind, rest)), nodes: [] }] : [...shown]
}

function moreText(kind: LeafKind | 'groups', rest: number): string {
  return `... ${rest} more ${rest === 1 ? words[kind].one : words[kind].many}`
}

function labelled(kind: LeafKind | 'groups', style: Style): string {
  return style('dim', `${words[kind].label.padEnd(labelWidth)}  `)
}

function leafText(kind: LeafKind, leaf: Leaf, style: Style): string {
  const name = kind === 'roleBindings' ? `${leaf.role ?? ''} -> ${leaf.identity ?? ''}` : (leaf.name ?? '')
  const tags = leaf.tags === undefined ? '' : style('dim', `  ${leaf.tags} ${leaf.tags === 1 ? 'tag' : 'tags'}`)
  return `${labelled(kind, style)}${printable(name)}${tags}`
}

function groupText({ name, opened, counts }: Branch, style: Style): string {
  const held = (['groups', ...leafKinds] as const)
    .filter((kind) => counts[kind] > 0)
    .map((kind) => `${counts[kind]} ${counts[kind] === 1 ? words[kind].one : words[kind].many}`)
  const what = opened ? held.join(', ') : '...'
  return `${style('bold', printable(name))}${what === '' ? '' : style('dim', `  ${what}`)}`
}

const formats = ['table', 'json', 'yaml'] as const
const limits = { default: 20, most: 200 } as const
/** Maximum number of groups to open. */
const maxOpened = 500

interface TreeOptions extends ConnectionOptions {
  readonly depth?: number
  readonly limit: number
  readonly output: (typeof formats)[number]
}

/** Creates the command `tree`. `program` is the name on the command line. */
export function treeCommand(program: string): Command {
  return clientCommand('tree', 'draw groups and what they contain: identities, roles, role bindings, repos with their number of tags')
    .argument('[group]', 'start at this group: a path such as acme/team, or a uid; default: all that you may see')
    .option('--depth <levels>', `levels of groups to open; default: all, up to ${maxOpened} groups`, parseCount)
    .addOption(new Option('--limit <number>', `records of each kind to show in a group, ${limits.most} at most`).argParser(parseLimit).default(limits.default))
    .addOption(new Option('-o, --output <format>', 'output format').choices(formats).default('table'))
    .action((group: string | undefined, options: TreeOptions) => runClient(program, options, (context) => tree(context, requestOf(group, options))))
}

/** The topmost group, limits and format of a tree. */
export interface TreeRequest {
  /** Uid or path of a group; if undefined, draws all groups that the caller can see. */
  readonly group: string | undefined
  readonly bounds: TreeBounds
  readonly format: (typeof formats)[number]
}

/** Prints groups and their contents. Rejects with UsageError or ClientError. */
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
  await output.write(await texts[format]())
  const closed = closedCount(forest.groups)
  if (forest.groups.length === 0) note('no groups that you may see')
  else if (closed > 0 && bounds.depth === Infinity)
    note(`opened ${bounds.opened} groups; ${closed} more are shown as "...": give the path of one to see its contents`)
}

function requestOf(group: string | undefined, { depth = Infinity, limit, output: format }: TreeOptions): TreeRequest {
  return { group, bounds: { depth, limit, opened: maxOpened }, format }
}

function parseLimit(text: string): number {
  const limit = parseCount(text)
  if (limit > limits.most) throw new InvalidArgumentError(`Use ${limits.most} at most.`)
  return limit
}
