import { derivedDefaults, roleDefaults } from './defaults.ts'
import type { SchemaNode } from './schema-node.ts'
import { settings, type Setting } from './setting.ts'

/** Returns all settings as a Markdown table of key, type, default, variable and meaning. It is part of docs/configuration.md. */
export function settingsTable(): string {
  const rows = settings.map(({ key, variable, node }) => [`\`${key}\``, typeOf(node), defaultOf({ key, node }), `\`${variable}\``, meaningOf(node)])
  const head = ['Key', 'Type', 'Default', 'Variable', 'Meaning']
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`).join('\n')
}

function typeOf(node: SchemaNode): string {
  switch (node.type) {
    case 'string':
      return node.enum === undefined ? (node.format ?? 'text') : node.enum.map((word) => `\`${word}\``).join(' or ')
    case 'array':
      return `list of ${node.items.type === 'object' ? 'objects' : typeOf(node.items)}`
    case 'object':
      return 'section'
    case 'integer':
    case 'number':
      return `${node.minimum} to ${node.maximum}`
    case 'boolean':
      return '`true` or `false`'
  }
}

function defaultOf({ key, node }: Pick<Setting, 'key' | 'node'>): string {
  const derived = (derivedDefaults as Readonly<Record<string, { readonly words: string }>>)[key] // A key without a derived default has no row.
  const base = derived?.words ?? (node.default === undefined ? '' : code(node.default))
  const inDev = roleDefaults.dev[key]
  return inDev === undefined ? base : `${base}; in \`dev\` ${code(inDev)}`
}

function code(value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? 'empty' : value.map(code).join(', ')
  return `\`${typeof value === 'object' ? JSON.stringify(value) : String(value)}\``
}

function meaningOf(node: SchemaNode): string {
  if (node.type !== 'array' || node.items.type !== 'object') return node.description
  const { properties, required = [] } = node.items
  const fields = Object.entries(properties).map(([name, field]) => `\`${name}\`${required.includes(name) ? '' : ' (optional)'}: ${field.description}`)
  return [node.description, ...fields].join(' ')
}
