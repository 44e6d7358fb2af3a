import { comparedAttribute, comparedForm, type Literal, type ScimFilter } from './scim-filter.ts'
import { enterpriseUrn, type ScimAttribute, type ScimTarget } from './scim-schema.ts'
import { isObject, type ScimObject, type ScimValue } from './scim-values.ts'

type Compare = Extract<ScimFilter, { kind: 'compare' }>

const texts: Readonly<Record<Exclude<Compare['op'], 'ne'>, (one: string, other: string) => boolean>> = {
  eq: (one, other) => one === other,
  co: (one, other) => one.includes(other),
  sw: (one, other) => one.startsWith(other),
  ew: (one, other) => one.endsWith(other),
  gt: (one, other) => one > other,
  ge: (one, other) => one >= other,
  lt: (one, other) => one < other,
  le: (one, other) => one <= other,
}

/** The form in which a text of the attribute is compared. */
type Form = (attribute: ScimAttribute, text: string) => string

/** Works the form of each text out once, however many parts of a filter ask. */
function createForm(): Form {
  const known = new Map<string, string>()
  return (attribute, text) => {
    if (attribute.caseExact || attribute.type === 'dateTime') return comparedForm(attribute, text)
    const found = known.get(text) ?? comparedForm(attribute, text)
    known.set(text, found)
    return found
  }
}

function holds(value: ScimValue, op: Exclude<Compare['op'], 'ne'>, by: { attribute: ScimAttribute; literal: Literal; form: Form }): boolean {
  const { attribute, literal, form } = by
  if (typeof value === 'boolean') return value === literal
  if (typeof value !== 'string' || typeof literal !== 'string') return false
  return texts[op](form(attribute, value), literal)
}

function asList(value: ScimValue | undefined): readonly ScimValue[] {
  if (value === undefined) return []
  return Array.isArray(value) ? (value as readonly ScimValue[]) : [value]
}

/** The values that the target has in the object. */
function valuesAt(object: ScimObject, { attribute, sub, enterprise }: ScimTarget): readonly ScimValue[] {
  const extension = object[enterpriseUrn]
  const holder = enterprise ? (isObject(extension) ? extension : {}) : object
  const values = attribute === undefined ? [] : asList(holder[attribute.name])
  return sub === undefined ? values : parts(values, sub.name)
}

function parts(values: readonly ScimValue[], name: string): readonly ScimValue[] {
  return values.flatMap((value) => (isObject(value) ? asList(value[name]) : []))
}

function compares(object: ScimObject, { target, op, literal }: Compare, form: Form): boolean {
  const attribute = comparedAttribute(target)
  if (attribute === undefined) return false
  const found = valuesAt(object, target)
  const values = (target.sub ?? target.attribute)?.subAttributes === undefined ? found : parts(found, attribute.name)
  if (literal === null) return (values.length === 0) === (op === 'eq')
  if (op === 'ne') return !values.some((value) => holds(value, 'eq', { attribute, literal, form }))
  return values.some((value) => holds(value, op, { attribute, literal, form }))
}

function satisfies(object: ScimObject, filter: ScimFilter, form: Form): boolean {
  switch (filter.kind) {
    case 'and':
      return filter.parts.every((part) => satisfies(object, part, form))
    case 'or':
      return filter.parts.some((part) => satisfies(object, part, form))
    case 'not':
      return !satisfies(object, filter.part, form)
    case 'some':
      return valuesAt(object, filter.target).some((value) => isObject(value) && satisfies(value, filter.part, form))
    case 'present':
      return valuesAt(object, filter.target).length > 0
    case 'compare':
      return compares(object, filter, form)
  }
}

/** Whether the filter lets the user through (RFC 7644 3.4.2.2). What is not there equals nothing and differs from everything. */
export function matches(user: ScimObject, filter: ScimFilter): boolean {
  return satisfies(user, filter, createForm())
}
