// JSON Schemas of messages, for OpenAPI documents. A message has up to three forms: what answers contain, what a request creates or does, and what an
// update changes.
import { ScalarType } from '@bufbuild/protobuf'
import { fieldAccess, isNullIfUnset } from '../../src/base/schema/field-behavior.ts'
import { pathPrefix, referenceKinds } from '../../src/base/schema/uid-fields.ts'
import { excludedMembers, ignoresEmpty, rulesOf, setRules } from '../../src/kubernetes/crd/constraints.ts'

const scalars = {
  [ScalarType.STRING]: { type: 'string' },
  [ScalarType.BOOL]: { type: 'boolean' },
  [ScalarType.INT32]: { type: 'integer', format: 'int32' },
  [ScalarType.UINT32]: { type: 'integer', format: 'int64', minimum: 0 },
  [ScalarType.INT64]: { type: 'string', format: 'int64', pattern: '^-?[0-9]{1,19}$' },
  [ScalarType.UINT64]: { type: 'string', format: 'uint64', pattern: '^[0-9]{1,20}$' },
  [ScalarType.DOUBLE]: { type: 'number', format: 'double' },
  [ScalarType.FLOAT]: { type: 'number', format: 'float' },
  [ScalarType.BYTES]: { type: 'string', format: 'byte', contentEncoding: 'base64' },
}

/** Keywords for the rules of buf.validate. The others have none. */
const keywords = {
  'string.min_len': (value) => ({ minLength: Number(value) }),
  'string.max_len': (value) => ({ maxLength: Number(value) }),
  'string.pattern': (value) => ({ pattern: String(value) }),
  'string.in': (value) => ({ enum: [...value] }),
  'int32.gt': (value) => ({ exclusiveMinimum: Number(value) }),
  'int32.gte': (value) => ({ minimum: Number(value) }),
  'int32.lte': (value) => ({ maximum: Number(value) }),
  'repeated.min_items': (value) => ({ minItems: Number(value) }),
  'repeated.max_items': (value) => ({ maxItems: Number(value) }),
  'repeated.unique': () => ({ uniqueItems: true }),
  'map.max_pairs': (value) => ({ maxProperties: Number(value) }),
}

/** Messages whose JSON is not an object of their fields. */
const wellKnown = {
  'google.protobuf.Timestamp': { type: 'string', format: 'date-time' },
  'google.protobuf.Duration': { type: 'string', pattern: '^-?[0-9]+([.][0-9]{1,9})?s$' },
  'google.protobuf.FieldMask': { type: 'string' },
  'google.protobuf.Struct': { type: 'object' },
  'google.protobuf.Value': {},
  'google.protobuf.Empty': { type: 'object', additionalProperties: false },
  'google.protobuf.Any': { type: 'object', required: ['@type'], properties: { '@type': { type: 'string' } } },
}

/** Fields that name the record or its parent. The path has them, or the whole batch, or a create has none yet. */
const named = new Set(['id', 'uid', 'parent'])

/** The forms of a message, with the ending of their names. */
const endings = { answer: '', request: 'Input', update: 'Patch' }

/** Schemas of messages and enums by name. Those that are asked for are added. */
export class Schemas {
  #comments
  #byName = new Map()

  constructor(comments) {
    this.#comments = comments
  }

  /** Returns the schemas by name, sorted. */
  all() {
    return Object.fromEntries([...this.#byName].sort(([one], [other]) => (one < other ? -1 : 1)))
  }

  /** Returns the comment of a message, field, service or method; empty if it has none. */
  comment(name) {
    return this.#comments.get(name) ?? ''
  }

  /** Returns a reference to the schema of a message in a form. */
  of(message, form) {
    const known = wellKnown[message.typeName]
    if (known !== undefined) return known
    const name = `${nameOf(message)}${endings[form]}`
    if (!this.#byName.has(name)) {
      // A message may contain itself.
      this.#byName.set(name, {})
      this.#byName.set(name, this.object(message, { form, fields: message.fields }))
    }
    return { $ref: `#/components/schemas/${name}` }
  }

  /** Returns the schema of an object with these fields of a message. */
  object(message, { form, fields }) {
    const shown = fields.filter((field) => (form === 'answer' ? !fieldAccess(field).inputOnly : !fieldAccess(field).outputOnly))
    const isNeeded = (field) => fieldAccess(field).required && field.scalar !== ScalarType.BOOL && !named.has(field.name)
    const required = form === 'request' ? shown.filter(isNeeded) : []
    const description = this.comment(message.typeName)
    return {
      type: 'object',
      ...(description === '' ? {} : { description }),
      ...(required.length > 0 ? { required: required.map(({ jsonName }) => jsonName) } : {}),
      properties: Object.fromEntries(shown.map((field) => [field.jsonName, this.field(field, form)])),
      // Requests with other keys are refused. Answers may get more of them.
      ...(form === 'answer' ? {} : { additionalProperties: false }),
    }
  }

  /** Returns the schema of a field. Constraints hold for requests: answers have what was valid when it was written. */
  field(field, form) {
    const rules = form === 'answer' ? undefined : rulesOf(field)
    const set = this.bare(field, form, rules)
    const bare = form === 'answer' && isNullIfUnset(field) ? orNull(set) : set
    const constraints = { ...(form === 'request' ? presenceOf(field) : {}), ...(rules === undefined ? {} : keywordsOf(rules)) }
    if (rules !== undefined && ignoresEmpty(rules) && constraints.pattern !== undefined) constraints.pattern = `^$|${constraints.pattern}`
    if (constraints.pattern !== undefined && (referenceKinds(field) ?? []).length > 0) {
      constraints.pattern += `|^${pathPrefix}`
      // A path is longer than a uid.
      delete constraints.maxLength
    }
    const description = this.comment(`${field.parent.typeName}.${field.name}`)
    return { ...bare, ...constraints, ...(description === '' ? {} : { description }) }
  }

  /** Returns the schema of a field without its description and constraints. */
  bare(field, form, rules) {
    switch (field.fieldKind) {
      case 'scalar':
        return scalarOf(field.scalar, field)
      case 'enum':
        return this.#enum(field.enum, { form, rules })
      case 'message':
        return this.of(field.message, form)
      case 'list':
        return { type: 'array', items: this.#element(field, form, rules?.type.case === 'repeated' ? rules.type.value.items : undefined) }
      default:
        return {
          type: 'object',
          // Generators name a type after it. The name of the field alone may be that of a message.
          title: `${field.jsonName}Map`,
          ...(field.mapKey === ScalarType.STRING ? {} : { propertyNames: { pattern: '^-?[0-9]+$' } }),
          additionalProperties: this.#element(field, form, rules?.type.case === 'map' ? rules.type.value.values : undefined),
        }
    }
  }

  #element(field, form, rules) {
    if (field.message !== undefined) return this.of(field.message, form)
    const bare = field.enum === undefined ? scalarOf(field.scalar, field) : this.#enum(field.enum, { form, rules })
    return rules === undefined ? bare : { ...bare, ...keywordsOf(rules) }
  }

  /** Returns a reference to the schema of an enum: generators make one type of it. Rules of requests may exclude members. */
  #enum(desc, { form, rules }) {
    const excluded = form === 'answer' ? [] : excludedMembers(rules)
    const members = desc.values.filter(({ number }) => !excluded.includes(number)).map(({ name }) => name)
    if (members.length === 0) return { type: 'string' }
    const name = `${nameOf(desc)}${excluded.length > 0 ? endings.request : ''}`
    const known = this.#byName.get(name)?.enum ?? members
    if (known.join() !== members.join()) throw new Error(`the rules of fields exclude different members of ${desc.typeName}`)
    this.#byName.set(name, { type: 'string', enum: members })
    return { $ref: `#/components/schemas/${name}` }
  }
}

/** Returns the name of the schema of a message or an enum. */
function nameOf(desc) {
  return desc.typeName.replace(/^(taproot|google)\./, '')
}

/** Returns the schema of a value that may be null. */
function orNull(schema) {
  return schema.type === undefined ? { anyOf: [schema, { type: 'null' }] } : { ...schema, type: [schema.type, 'null'] }
}

/** Returns the constraint of a required text or list: an empty one counts as absent. */
export function presenceOf(field) {
  if (!fieldAccess(field).required || named.has(field.name)) return {}
  if (field.fieldKind === 'list') return { minItems: 1 }
  return field.scalar === ScalarType.STRING ? { minLength: 1 } : {}
}

function scalarOf(type, field) {
  const schema = scalars[type]
  if (schema === undefined) throw new Error(`the type of ${field} has no schema: add it to tools/openapi/schemas.js`)
  return schema
}

function keywordsOf(rules) {
  return Object.assign({}, ...[...setRules(rules)].map(([name, value]) => keywords[name]?.(value) ?? {}))
}
