import { Ajv, type ErrorObject } from 'ajv'
import { isServiceLink, serviceLinksAdvice } from './environment.ts'
import { valueFormats } from './formats.ts'
import { maskCredentials } from './mask-config.ts'
import { nearestName } from '../base/nearest-name.ts'
import { configJsonSchema, configSchema } from './schema.ts'
import type { SchemaNode } from './schema-node.ts'
import { settings, type Setting } from './setting.ts'
import { isTree, type Tree } from './tree.ts'

/** Where the values of a tree come from, so that an error names the place to change. */
export interface Origins {
  /** Path of the configuration file; undefined if there is none. */
  readonly file: string | undefined
  /** The settings whose values come from environment variables. */
  readonly fromEnvironment: { has(setting: Setting): boolean }
}

// A test checks the schema itself: compiling the schema of schemas would take most of the time here, at each start.
const ajv = new Ajv({ allErrors: true, strict: true, verbose: true, validateSchema: false, code: { optimize: false } })
for (const [name, format] of Object.entries(valueFormats)) ajv.addFormat(name, format.test)
const validate = ajv.compile(configJsonSchema())

/** Checks a tree against the schema. Returns one line per error, with the key or variable and the expected value. Empty if the tree is valid. */
export function validateTree(tree: Tree, origins: Origins): string[] {
  if (validate(tree)) return []
  return [...new Set((validate.errors ?? []).map((error) => describeError(error, origins)))]
}

/** Describes the valid values of a node, as the end of a sentence that starts with "expected". */
export function expectation(node: SchemaNode): string {
  switch (node.type) {
    case 'object':
      return `a section with the keys ${Object.keys(node.properties).join(', ')}`
    case 'array':
      return node.items.type === 'object' ? `a list of {${Object.keys(node.items.properties).join(', ')}}` : `a list, each item ${expectation(node.items)}`
    case 'integer':
      return `a whole number from ${node.minimum} to ${node.maximum}`
    case 'number':
      return `a number from ${node.minimum} to ${node.maximum}`
    case 'boolean':
      return 'true or false'
    case 'string':
      if (node.enum !== undefined) return `one of ${node.enum.join(', ')}`
      return node.format === undefined ? 'text that is not empty' : valueFormats[node.format].expected
  }
}

function describeError(error: ErrorObject, origins: Origins): string {
  // JSON pointers need no unescaping here, because no key of the schema contains a slash or tilde, and unknown keys are never followed.
  const path = error.instancePath.split('/').slice(1)
  const place = placeOf(path, origins)
  const params = error.params as { readonly additionalProperty?: string; readonly missingProperty?: string } // ajv's documentation defines these members.
  if (params.additionalProperty !== undefined) return describeUnknown([...path, params.additionalProperty], origins)
  if (params.missingProperty !== undefined) return describeMissing([...path, params.missingProperty], origins)
  const advice = place.inEnvironment && isServiceLink(error.data) ? `; ${serviceLinksAdvice}` : ''
  return `${place.name}: expected ${expectation(nodeAt(path))}${place.hint}, got ${show(error.data)}${advice}`
}

interface SettingPlace {
  /** The place of a value: `TAPROOT_ISSUERS: [0].jwksUri`, `taproot.yaml: api.port`. */
  readonly name: string
  readonly inEnvironment: boolean
  /** A hint about the syntax of a list in a variable. */
  readonly hint: string
}

function placeOf(path: readonly string[], origins: Origins): SettingPlace {
  const setting = settings.find((candidate) => candidate.path.every((name, index) => path[index] === name))
  if (setting === undefined || !origins.fromEnvironment.has(setting)) {
    return { name: [origins.file, pathText(path)].filter((part) => part).join(': '), inEnvironment: false, hint: '' }
  }
  const inner = path.slice(setting.path.length)
  if (inner.length > 0) return { name: `${setting.variable}: ${pathText(inner)}`, inEnvironment: true, hint: '' }
  return { name: setting.variable, inEnvironment: true, hint: variableHint(setting) }
}

/** Returns a path as text, e.g. `issuers[0].jwksUri`. */
function pathText(path: readonly string[]): string {
  return path.reduce((text, name) => (/^\d+$/.test(name) ? `${text}[${name}]` : text === '' ? name : `${text}.${name}`), '')
}

function variableHint({ node }: Setting): string {
  if (node.type !== 'array') return ''
  return node.items.type === 'object' ? ' as JSON' : ', separated by commas'
}

function nodeAt(path: readonly string[]): SchemaNode {
  let node: SchemaNode = configSchema
  for (const name of path) {
    if (node.type === 'array') node = node.items
    else if (node.type === 'object') node = node.properties[name] ?? node
  }
  return node
}

function describeUnknown(path: readonly string[], origins: Origins): string {
  const nearest = nearestKey(path)
  const advice = nearest === undefined ? '' : `; did you mean ${nearest}?`
  return `${placeOf(path, origins).name}: unknown key${advice}`
}

/**
 * Returns the key that an unknown key most likely means. That is a key of the same section, otherwise one with the same name elsewhere, otherwise one with a
 * similar spelling.
 */
function nearestKey(path: readonly string[]): string | undefined {
  const owner = path.slice(0, -1)
  const name = path.at(-1) ?? ''
  const section = nodeAt(owner)
  const neighbour = section.type === 'object' ? nearestName(name, Object.keys(section.properties)) : undefined
  if (neighbour !== undefined) return owner.some((part) => /^\d+$/.test(part)) ? neighbour : pathText([...owner, neighbour])
  const keys = settings.map((setting) => setting.key)
  return keys.find((key) => key.endsWith(`.${name}`)) ?? nearestName(pathText(path), keys)
}

function describeMissing(path: readonly string[], origins: Origins): string {
  const setting = settings.find((candidate) => candidate.key === path.join('.'))
  const variable = setting === undefined ? '' : ` (${setting.variable})`
  return `${placeOf(path, origins).name}${variable} is missing: expected ${expectation(nodeAt(path))}`
}

/** Returns a value as text in one line, shortened and without credentials. */
function show(value: unknown): string {
  if (isTree(value)) return 'a section'
  if (Array.isArray(value)) return 'a list'
  const text = JSON.stringify(typeof value === 'string' ? maskCredentials(value) : value) ?? String(value)
  return text.length > 80 ? `${text.slice(0, 77)}...` : text
}
