import type { CustomResourceDefinition } from './definitions.ts'
import { statusSchema } from './status-schema.ts'
import type { StructuralSchema } from './structural-schema.ts'

/** Functions that describe one constraint of a schema in words; undefined if the schema lacks it. */
const constraintWords: readonly ((schema: StructuralSchema) => string | undefined)[] = [
  ({ enum: members }) => members && (members.length > 20 ? `one of ${members.length} names, e.g. ${code(members[0])}` : members.map(code).join(', ')),
  ({ default: value }) => (value === undefined ? undefined : `default ${code(typeof value === 'object' ? JSON.stringify(value) : String(value))}`),
  ({ pattern, format }) => (pattern === undefined || format !== undefined ? undefined : code(pattern)),
  ({ format }) => (format === 'date-time' ? 'RFC 3339 time' : undefined),
  ({ minLength, maxLength }) => range(minLength, maxLength, 'characters'),
  ({ minItems, maxItems }) => range(minItems, maxItems, 'items'),
  ({ minProperties, maxProperties }) => range(minProperties, maxProperties, 'entries'),
  ({ minimum, maximum, format }) => range(minimum, format === 'int32' && maximum === 2 ** 31 - 1 ? undefined : maximum),
  (schema) => (schema['x-kubernetes-list-type'] === 'set' ? 'no duplicates' : undefined),
  (schema) => schema['x-kubernetes-validations']?.map(({ message }) => message).join('; '),
]

function code(text: string | undefined): string {
  return `\`${(text ?? '').replaceAll('|', '\\|')}\``
}

function range(least: number | undefined, most: number | undefined, unit = ''): string | undefined {
  if (least === undefined || least < 0) return most === undefined ? undefined : `at most ${most} ${unit}`.trim()
  return (most === undefined ? `at least ${least} ${unit}` : `${least} to ${most} ${unit}`).trim()
}

/** Returns the name of a type, such as `list of string` or `map of string`. */
function typeName({ type, items, additionalProperties }: StructuralSchema): string {
  if (items !== undefined) return `list of ${typeName(items)}`
  return additionalProperties === undefined ? type : `map of ${typeName(additionalProperties)}`
}

function constraintText(schema: StructuralSchema): string {
  const own = constraintWords.map((words) => words(schema)).filter((text) => text !== undefined && text !== '')
  const inner = schema.items ?? schema.additionalProperties
  const each = inner === undefined ? '' : constraintText(inner)
  return [...own, ...(each === '' ? [] : [`each: ${each}`])].join('; ')
}

/** Yields a table row for each field of a schema, including nested ones. */
function* lines(schema: StructuralSchema, path: string): Generator<string> {
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    const required = schema.required?.includes(name) === true ? 'required' : ''
    const constraints = [required, constraintText(field)].filter((text) => text !== '').join('; ')
    yield `| \`${path}${name}\` | ${typeName(field)} | ${constraints} | ${(field.description ?? '').replaceAll('|', '\\|')} |`
    yield* lines(field, `${path}${name}.`)
    if (field.items !== undefined) yield* lines(field.items, `${path}${name}[].`)
    if (field.additionalProperties !== undefined) yield* lines(field.additionalProperties, `${path}${name}{}.`)
  }
}

function table(schema: StructuralSchema, path: string): string {
  return ['| field | type | constraints | meaning |', '| --- | --- | --- | --- |', ...lines(schema, path)].join('\n')
}

/** Returns the status fields that only this kind has. */
function ownStatus({ properties }: StructuralSchema): string {
  const own = Object.entries(properties?.['status']?.properties ?? {}).filter(([field]) => statusSchema.properties?.[field] === undefined)
  return own.length === 0 ? '' : table({ type: 'object', properties: Object.fromEntries(own) }, 'status.')
}

function section({ spec }: CustomResourceDefinition): string {
  const { kind, shortNames } = spec.names
  const schema = spec.versions[0].schema.openAPIV3Schema
  const rules = schema['x-kubernetes-validations']?.map(({ message }) => `- ${message}`).join('\n')
  const body = schema.properties?.['spec']
  if (body === undefined) throw new Error(`${kind} has no spec`)
  const specRules = body['x-kubernetes-validations']?.map(({ message }) => `- spec: ${message}`).join('\n')
  const scope = spec.scope === 'Namespaced' ? 'in a namespace' : 'of the cluster'
  return [
    `## ${kind}`,
    `${schema.description ?? ''} Short name \`${shortNames[0] ?? ''}\`, ${scope}.`,
    table(body, 'spec.'),
    [rules, specRules].filter(Boolean).join('\n'),
    ownStatus(schema),
  ]
    .filter((part) => part !== '')
    .join('\n\n')
}

/** Returns the page docs/kubernetes-reference.md: every field of every kind, and the status that all kinds share. */
export function referencePage(definitions: readonly CustomResourceDefinition[]): string {
  const status = definitions[0]?.spec.versions[0].schema.openAPIV3Schema.properties?.['status']
  if (status === undefined) throw new Error('the kinds have no status')
  return [
    '<!-- Generated by tools/generate.js from proto/ and src/kubernetes/crd. -->',
    '# Kubernetes objects: reference',
    '<!-- prettier-ignore-start -->',
    'API group `taproot.dev`, version `v1alpha1`. Names, types and constraints of records are those of the API. `kubectl explain platformgroup.spec` shows the same.',
    ...definitions.map(section),
    '## Status',
    'The status of all kinds but PlatformNamespaceGrant. Fields of one kind only are in its section. Only the controller writes them.',
    table(status, 'status.'),
    '<!-- prettier-ignore-end -->',
    '',
  ].join('\n\n')
}
