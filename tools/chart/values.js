// Converts charts/taproot/values.yaml into a JSON Schema (draft 7). A comment above a key is its description. The part after "@schema"
// adds constraints that the default value does not show.
import { isMap, parse, parseDocument } from 'yaml'

/** Named sets of constraints that several values have. "@schema <name>" selects one. */
const forms = {
  amount: { type: ['integer', 'string'], pattern: '^([0-9]+%)?$', minimum: 0 },
  digest: { pattern: '^(sha256:[0-9a-f]{64})?$' },
  name: { pattern: '^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$' },
  object: { additionalProperties: true },
  port: { minimum: 1, maximum: 65_535 },
  quantity: { pattern: '^([0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$' },
  registry: { pattern: '^([^/\\s]+(/[^/\\s]+)*)?$' },
  required: { minLength: 1 },
  stringMap: { additionalProperties: { type: 'string' } },
  strings: { items: { type: 'string', minLength: 1 } },
  url: { pattern: '^(https?://[^/?#\\s]+[^?#\\s]*[^/?#\\s])?$' },
}

/** Returns the JSON Schema of the values in `source`. `configuration` is the schema of Taproot's own settings. */
export function valuesSchema(source, configuration) {
  const document = parseDocument(source)
  if (document.errors.length > 0) throw document.errors[0]
  const title = 'Values of the chart taproot'
  return { $schema: 'http://json-schema.org/draft-07/schema#', title, ...section(document.contents, { path: '', forms: { ...forms, configuration } }) }
}

function section(map, { path, forms }) {
  const properties = map.items.map((pair, index) => {
    // For the first key of a mapping, the parser attaches the comment to the mapping instead of the key.
    const comment = pair.key.commentBefore ?? (index === 0 ? map.commentBefore : undefined)
    return [pair.key.value, value(pair.value, comment, { path: `${path}${pair.key.value}`, forms })]
  })
  return { type: 'object', properties: Object.fromEntries(properties), additionalProperties: false }
}

function value(node, comment, { path, forms }) {
  const { description, notes } = split(comment, path)
  if (isMap(node) && node.items.length > 0 && notes === undefined) {
    const { type, ...rest } = section(node, { path: `${path}.`, forms })
    return { type, description, ...rest }
  }
  const defaultValue = node.toJSON()
  const stated = keywords(notes, path, forms)
  const { type, ...rest } = { ...implied(defaultValue, stated, path), ...stated }
  return { type, description, ...rest, default: defaultValue }
}

/** Only the last paragraph of a comment belongs to the key. */
function split(comment, path) {
  const lines = (comment ?? '')
    .split(/\n\s*\n/)
    .at(-1)
    .split('\n')
    .map((line) => line.slice(1))
  const start = lines.findIndex((line) => line.startsWith('@schema'))
  const description = lines
    .slice(0, start < 0 ? undefined : start)
    .join(' ')
    .trim()
  if (description === '') throw new Error(`values.yaml: ${path} has no description`)
  return { description, notes: start < 0 ? undefined : lines.slice(start).join('\n').slice('@schema'.length).trim() }
}

function keywords(notes, path, forms) {
  const stated = notes === undefined ? {} : parse(notes)
  if (typeof stated !== 'string') return stated
  if (!Object.hasOwn(forms, stated)) throw new Error(`values.yaml: ${path}: "@schema ${stated}" is unknown; use one of: ${Object.keys(forms).join(', ')}`)
  return forms[stated]
}

/**
 * Returns the constraints that follow from a default value. A number without stated limits is from 0 to 1,000,000. Objects and lists
 * without further constraints are parts of Kubernetes objects.
 */
function implied(defaultValue, stated, path) {
  if (Array.isArray(defaultValue)) return { type: 'array', items: { type: 'object' } }
  if (Number.isInteger(defaultValue)) return { type: 'integer', ...((stated.enum ?? stated.type) ? {} : { minimum: 0, maximum: 1_000_000 }) }
  if (typeof defaultValue === 'string' || typeof defaultValue === 'boolean') return { type: typeof defaultValue }
  if (defaultValue !== null && typeof defaultValue === 'object') return { type: 'object', additionalProperties: true }
  throw new Error(`values.yaml: ${path} needs a default: a string, a whole number, true or false, a list or a mapping`)
}
