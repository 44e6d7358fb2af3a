// The generated files of charts/taproot: values.yaml, values.schema.json, the table in its README, and copies of crds/.
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { format, resolveConfig } from 'prettier'
import { Document, isMap } from 'yaml'
import { ownedKeys, valuesSchema } from './values.js'

const chart = 'charts/taproot'
const copied = `${chart}/files/generated`
const policy = 'deploy/mirror-policy/mirror-policy.yaml'
const marks = ['<!-- values -->', '<!-- end of values -->']
const notice = 'Made by tools/generate.js from tools/chart/values.js.'

/** Contents of all generated files of the chart by their paths, relative to `root`. */
export async function chartFiles(root) {
  const schema = valuesSchema(configPart(root))
  const [before, , after] = splitPage(readFileSync(join(root, chart, 'README.md'), 'utf8'))
  const files = {
    [`${chart}/values.schema.json`]: JSON.stringify({ $comment: notice, ...schema }),
    [`${chart}/values.yaml`]: valuesYaml(schema),
    [`${chart}/README.md`]: `${before}${marks[0]}\n\n${valuesTables(schema)}\n\n${marks[1]}${after}`,
  }
  const formatted = await Promise.all(Object.entries(files).map(async ([path, content]) => [path, await formattedAs(root, path, content)]))
  return new Map([...formatted, ...copies(root)])
}

/** Folders of which every file is generated. */
export const chartFolders = [copied]

async function formattedAs(root, path, content) {
  const options = await resolveConfig(join(root, path))
  return format(content, { ...options, filepath: path })
}

function splitPage(page) {
  const [start, end] = marks.map((mark) => page.indexOf(mark))
  if (start < 0 || end < start) throw new Error(`${chart}/README.md: ${marks.join(' and ')} are missing`)
  return [page.slice(0, start), page.slice(start, end), page.slice(end + marks[1].length)]
}

/** Byte for byte: Helm installs the same definitions that kubectl applies. */
function copies(root) {
  const folder = join(root, 'crds')
  const names = readdirSync(folder).filter((name) => name.endsWith('.yaml'))
  const sources = [
    ...names.sort().map((name) => ({ from: `crds/${name}`, to: `${copied}/crds/${name}` })),
    { from: policy, to: `${copied}/policy/mirror-policy.yaml` },
  ]
  return sources.map(({ from, to }) => [to, readFileSync(join(root, from), 'utf8')])
}

/** The schema of Taproot's configuration without the keys that the chart sets, without defaults: what is not given is left to Taproot. */
function configPart(root) {
  const { properties } = JSON.parse(readFileSync(join(root, 'docs', 'config.schema.json'), 'utf8'))
  const description = 'Additional configuration, as in docs/configuration.md: all keys except those that the chart sets from other values.'
  return { type: 'object', description, properties: without(properties, ''), additionalProperties: false, default: {} }
}

function without(properties, prefix) {
  return Object.fromEntries(
    Object.entries(properties)
      .filter(([key]) => !ownedKeys.includes(prefix + key))
      .map(([key, node]) => [key, node.properties === undefined ? bare(node) : { ...bare(node), properties: without(node.properties, `${prefix}${key}.`) }]),
  )
}

function bare(node) {
  return Object.fromEntries(Object.entries(node).filter(([key]) => key !== 'default'))
}

/** A section that is filled key by key; others are given as a whole. */
function isSection(node) {
  return node.properties !== undefined && node.default === undefined
}

function defaultsOf(node) {
  return isSection(node) ? Object.fromEntries(Object.entries(node.properties).map(([key, below]) => [key, defaultsOf(below)])) : node.default
}

function valuesYaml(schema) {
  const document = new Document(defaultsOf(schema), { aliasDuplicateObjects: false })
  document.commentBefore = ` ${notice}\n What each value means and may be is also in README.md and values.schema.json.`
  comment(document.contents, schema)
  return document.toString({ lineWidth: 0, flowCollectionPadding: true })
}

function comment(map, section) {
  for (const [index, pair] of map.items.entries()) {
    const node = section.properties[pair.key.value]
    pair.key.commentBefore = ` ${node.description}`
    if (section.$schema !== undefined && index > 0) pair.key.spaceBefore = true
    if (isSection(node) && isMap(pair.value)) comment(pair.value, node)
  }
}

/** One table for top-level values, then one for each section. */
function valuesTables(schema) {
  const entries = Object.entries(schema.properties)
  const top = entries.filter(([, node]) => !isSection(node))
  const sections = entries.filter(([, node]) => isSection(node))
  return [table(top), ...sections.flatMap(([key, node]) => [`### \`${key}\``, node.description, table(leaves(node, `${key}.`))])].join('\n\n')
}

function table(values) {
  const rows = values.map(([key, node]) => [`\`${key}\``, typeOf(node), shown(node.default), meaningOf(node)])
  const head = ['Value', 'Type', 'Default', 'Meaning']
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`).join('\n')
}

function leaves(section, prefix) {
  return Object.entries(section.properties).flatMap(([key, node]) => (isSection(node) ? leaves(node, `${prefix}${key}.`) : [[prefix + key, node]]))
}

function typeOf({ type, enum: words, items, properties, additionalProperties }) {
  if (words !== undefined) return words.map((word) => `\`${word}\``).join(' or ')
  if (type === 'array') return `list of ${items.type === 'object' ? 'objects' : 'texts'}`
  if (type === 'object') return properties === undefined && additionalProperties?.type === 'string' ? 'texts by name' : 'object'
  if (Array.isArray(type)) return 'number or percentage'
  return { string: 'text', integer: 'number', boolean: '`true` or `false`' }[type]
}

function shown(value) {
  const isEmpty = value === '' || (typeof value === 'object' && Object.keys(value).length === 0)
  return isEmpty ? '' : `\`${typeof value === 'object' ? JSON.stringify(value) : String(value)}\``
}

function meaningOf({ description, items }) {
  if (items?.properties === undefined) return description
  const fields = Object.entries(items.properties)
  const words = fields.map(([key, node]) => `\`${key}\`${items.required?.includes(key) ? '' : ' (optional)'}: ${node.description}`)
  return [description, ...words].join(' ')
}
