import type { StructuralSchema } from '../../../src/kubernetes/crd/structural-schema.ts'
import { placeName, schemaOf, schemasIn, type Place } from './definitions.ts'
import { fullSpecs, fullStatus } from './full-objects.ts'

/** Accepted and refused values of a field because of one constraint, with the other fields. */
export interface ConstraintCase {
  /** The title, such as `PlatformGroup spec.name pattern`. */
  readonly title: string
  readonly kind: string
  readonly accepted: readonly Readonly<Record<string, unknown>>[]
  readonly refused: readonly Readonly<Record<string, unknown>>[]
  /** The path of the field in the API server's error, and the error for a refused value. */
  readonly field: string
  readonly complaint: RegExp
}

/** An existing value, and its schema. */
interface Subject {
  readonly schema: StructuralSchema
  readonly value: unknown
}

interface Values {
  readonly accepted: readonly unknown[]
  readonly refused: readonly unknown[]
  readonly complaint: RegExp
}

const strange = ['Nonsense?', 'no\nline', '', '///', '\u0000']

/** Returns a text of this length. If a rule fixes its beginning, it begins like the value. */
function text(length: number, { pattern, 'x-kubernetes-validations': rules }: StructuralSchema, otherwise: unknown): readonly unknown[] {
  const full = (rules === undefined ? '' : String(otherwise)).padEnd(length, 'a')
  return [pattern === undefined || new RegExp(pattern).test(full) ? full : otherwise]
}

function entries(count: number, value: unknown): Readonly<Record<string, unknown>> {
  const sample = Object.values(value as object)[0] as unknown
  return Object.fromEntries(Array.from({ length: count }, (_, at) => [`k${at}`, sample]))
}

function items(count: number, value: unknown): readonly unknown[] {
  return Array.from({ length: count }, () => (value as readonly unknown[])[0])
}

const size = (schema: StructuralSchema, name: 'maxLength' | 'maxItems' | 'minItems' | 'maxProperties' | 'minimum' | 'maximum'): number => schema[name] ?? 0

/** For each constraining keyword: accepted and refused values. */
const keywords: Readonly<Record<string, (subject: Subject) => Values>> = {
  type: ({ schema, value }) => ({ accepted: [value], refused: [schema.type === 'string' ? 7 : 'text'], complaint: /must be of type|Invalid value/ }),
  enum: ({ schema }) => ({ accepted: schema.enum ?? [], refused: ['Nonsense', ''], complaint: /supported values/ }),
  pattern: ({ schema, value }) => ({
    accepted: [value],
    refused: strange.filter((candidate) => !new RegExp(schema.pattern ?? '').test(candidate)).slice(0, 1),
    complaint: /should match/,
  }),
  format: ({ schema, value }) => ({
    accepted: [value],
    refused: schema.format === 'date-time' ? ['yesterday', '2026-13-45T99:00:00Z'] : [],
    complaint: /date-time/,
  }),
  minLength: ({ value }) => ({ accepted: [value], refused: [''], complaint: /should be at least 1 char/ }),
  maxLength: ({ schema, value }) => ({
    accepted: text(size(schema, 'maxLength'), schema, value),
    refused: ['a'.repeat(size(schema, 'maxLength') + 1)],
    complaint: /may not be more than/,
  }),
  minimum: ({ schema }) => ({ accepted: [size(schema, 'minimum')], refused: [size(schema, 'minimum') - 1], complaint: /greater than or equal to/ }),
  maximum: ({ schema }) => ({ accepted: [size(schema, 'maximum')], refused: [size(schema, 'maximum') + 1], complaint: /less than or equal to|int32/ }),
  minItems: ({ value }) => ({ accepted: [value], refused: [[]], complaint: /should have at least/ }),
  maxItems: ({ schema, value }) => ({
    accepted: schema['x-kubernetes-list-type'] === 'atomic' ? [items(size(schema, 'maxItems'), value)] : [value],
    refused: [items(size(schema, 'maxItems') + 1, value)],
    complaint: /must have at most/,
  }),
  maxProperties: ({ schema, value }) => ({
    accepted: [entries(size(schema, 'maxProperties'), value)],
    refused: [entries(size(schema, 'maxProperties') + 1, value)],
    complaint: /must have at most/,
  }),
  'x-kubernetes-list-type': ({ schema, value }) => ({
    accepted: [value],
    refused: schema['x-kubernetes-list-type'] === 'atomic' ? [] : [items(2, value)],
    complaint: /Duplicate value/,
  }),
}

/** Keywords without a constraint, or with their own cases. */
const others: ReadonlySet<string> = new Set([
  'description',
  'default',
  'properties',
  'items',
  'additionalProperties',
  'required',
  'x-kubernetes-list-map-keys',
  'x-kubernetes-validations',
])

const startOf = (kind: string): readonly Readonly<Record<string, unknown>>[] => (fullSpecs[kind] ?? []).map((spec) => ({ spec, status: fullStatus }))

function step(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null) return undefined
  return name === '[]' || name === '{}' ? Object.values(value)[0] : (value as Record<string, unknown>)[name]
}

/** Returns the value at a place: the first item, the first entry. */
export function valueAt(value: unknown, place: Place): unknown {
  return place.reduce(step, value)
}

/** Returns a copy with another value at the place; undefined removes it. */
export function replaced(value: unknown, place: Place, by: unknown): unknown {
  const [head, ...rest] = place
  if (head === undefined) return by
  if (Array.isArray(value)) return [replaced(value[0], rest, by), ...(value.slice(1) as unknown[])]
  const object = value as Readonly<Record<string, unknown>>
  const key = head === '{}' ? (Object.keys(object)[0] ?? '') : head
  const { [key]: old, ...kept } = object
  const fresh = replaced(old, rest, by)
  return fresh === undefined ? kept : { ...kept, [key]: fresh }
}

type ObjectParts = Readonly<Record<string, unknown>>

/** Returns the place in the notation of the API server: `spec.aliases[0]`, `spec.claimMatch.claims.team`. */
function fieldAt(value: unknown, place: Place): string {
  const steps = place.map((name, at) => {
    if (name === '[]') return '[0]'
    return `.${name === '{}' ? (Object.keys(valueAt(value, place.slice(0, at)) as object)[0] ?? '') : name}`
  })
  return steps.join('').slice(1)
}

function* casesAt(kind: string, place: Place, schema: StructuralSchema): Generator<ConstraintCase> {
  const base = startOf(kind).find((parts) => valueAt(parts, place) !== undefined)
  if (base === undefined) throw new Error(`no full object of ${kind} has ${placeName(place)}`)
  const at = (value: unknown): ObjectParts => replaced(base, place, value) as ObjectParts // the place is below the top
  for (const keyword of Object.keys(schema).filter((name) => !others.has(name))) {
    const values = keywords[keyword]?.({ schema, value: valueAt(base, place) })
    if (values === undefined) throw new Error(`no cases for ${keyword}`)
    const { accepted, refused, complaint } = values
    if (refused.length === 0) continue
    yield {
      title: `${kind} ${placeName(place)} ${keyword}`,
      kind,
      accepted: accepted.map(at),
      refused: refused.map(at),
      field: fieldAt(base, place),
      complaint,
    }
  }
  for (const name of schema.required ?? []) {
    const without = replaced(base, [...place, name], undefined) as ObjectParts // as above
    yield {
      title: `${kind} ${placeName([...place, name])} required`,
      kind,
      accepted: [base],
      refused: [without],
      field: fieldAt(base, [...place, name]),
      complaint: /Required value/,
    }
  }
}

/** Returns accepted and refused values for every constraint of a kind except its rules. The status is the same in all kinds and is tried with one. */
export function constraintCases(kind: string, part: 'spec' | 'status'): readonly ConstraintCase[] {
  const schema = schemaOf(kind).properties?.[part]
  if (schema === undefined) throw new Error(`${kind} has no ${part}`)
  return [...schemasIn(schema, [part])].flatMap(([place, inner]) => [...casesAt(kind, place, inner)])
}
