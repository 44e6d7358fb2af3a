import { getOption, ScalarType, type DescEnum, type DescField, type DescMessage } from '@bufbuild/protobuf'
import { oneof as oneofOption, type FieldRules } from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js'
import { capabilityByEnumNumber } from '../../base/capability.ts'
import { fieldAccess } from '../../base/schema/field-behavior.ts'
import { CapabilitySchema } from '../../gen/taproot/common/v2/capability_pb.ts'
import { constraintsOf, excludedMembers, ignoresEmpty, keyConstraintsOf, rulesOf } from './constraints.ts'
import { oneOfRule, withConstraints, type StructuralSchema, type ValidationRule } from './structural-schema.ts'

/** Leading comments of proto messages and fields, by full name (`taproot.iam.v2.Group.name`). */
export type Comments = ReadonlyMap<string, string>

/** Schemas of scalar types in JSON. */
const scalars: Partial<Readonly<Record<ScalarType, StructuralSchema>>> = {
  [ScalarType.STRING]: { type: 'string' },
  [ScalarType.BOOL]: { type: 'boolean' },
  [ScalarType.INT32]: { type: 'integer', format: 'int32', minimum: -(2 ** 31), maximum: 2 ** 31 - 1 },
  [ScalarType.INT64]: { type: 'string', pattern: '^-?[0-9]{1,19}$' },
}

/** Schemas of messages whose JSON is not an object. */
const wellKnown: Readonly<Record<string, StructuralSchema>> = {
  // The format alone would also accept times without a zone.
  'google.protobuf.Timestamp': {
    type: 'string',
    format: 'date-time',
    maxLength: 35,
    pattern: '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$',
  },
}

/**
 * CEL rule that fails if the text is not a valid RE2 expression, because `matches` then returns an error. It applies to the fields
 * `subject_pattern` and `claim_patterns`.
 */
const isExpression = "''.matches(self) in [true, false]"
const areExpressions = "self.all(key, ''.matches(self[key]) in [true, false])"
const expressionMessage = 'a regular expression in RE2 syntax'

/** Fields of every record that no spec has. */
const systemFields: ReadonlySet<string> = new Set(['etag'])

/** Selects the fields of a message that an object has, by proto names. */
export interface FieldChoice {
  readonly comments: Comments
  readonly withheld?: readonly string[]
  /** Additional fields (JSON names) that replace the members of a oneof, by the name of the oneof. */
  readonly alternatives?: Readonly<Record<string, readonly string[]>>
}

/** Returns the fields that a client may write, except those that `choice` withholds. */
export function writableFields(desc: DescMessage, { withheld = [] }: FieldChoice): readonly DescField[] {
  return desc.fields.filter((field) => !fieldAccess(field).outputOnly && !systemFields.has(field.name) && !withheld.includes(field.name))
}

/** Returns the first comment among these names. Throws Error if there is none. */
function descriptionOf(comments: Comments, ...names: readonly (string | undefined)[]): string {
  const found = names.map((name) => name !== undefined && comments.get(name)).find((text) => text)
  if (!found) throw new Error(`${names[0]} has no comment in its proto file: kubectl explain needs one`)
  return found
}

/**
 * Returns an object schema of the message's writable fields, in the order of the proto file. Throws Error for a type or rule that a CRD
 * cannot express.
 */
export function messageSchema(desc: DescMessage, choice: FieldChoice): StructuralSchema {
  const fields = writableFields(desc, choice)
  const required = fields.filter(isRequired).map(({ jsonName }) => jsonName)
  const rules = desc.oneofs.flatMap((oneof) => {
    const members = [...oneof.fields.filter((field) => fields.includes(field)).map(({ jsonName }) => jsonName), ...(choice.alternatives?.[oneof.name] ?? [])]
    return members.length > 1 ? [oneOfRule(members, getOption(oneof, oneofOption).required)] : []
  })
  return {
    type: 'object',
    ...(required.length > 0 && { required }),
    properties: Object.fromEntries(fields.map((field) => [field.jsonName, fieldSchema(field, choice.comments)])),
    ...(rules.length > 0 && { 'x-kubernetes-validations': rules }),
  }
}

/** Returns true if an absent field would break a rule. A boolean is never required. */
function isRequired(field: DescField): boolean {
  if (field.fieldKind === 'scalar' && field.scalar === ScalarType.BOOL) return false
  if (fieldAccess(field).required) return true
  const rules = rulesOf(field)
  return (
    field.oneof === undefined && rules !== undefined && !ignoresEmpty(rules) && constraintsOf(rules).some((part) => (part.minItems ?? part.minLength ?? 0) > 0)
  )
}

/** Returns the schema of one field, with its description and constraints. */
export function fieldSchema(field: DescField, comments: Comments): StructuralSchema {
  const name = `${field.parent.typeName}.${field.name}`
  const rules = rulesOf(field)
  const description = descriptionOf(comments, name, field.message?.typeName)
  const bare = bareSchema(field, comments, rules)
  const constraints = rules === undefined ? [] : constraintsOf(rules)
  return { description, ...emptinessOf(field, withConstraints(bare, ...constraints, expressionRule(field))) }
}

function expressionRule(field: DescField): Partial<StructuralSchema> {
  if (!/_patterns?$/.test(field.name)) return {}
  const rule: ValidationRule = { rule: field.fieldKind === 'map' ? areExpressions : isExpression, message: expressionMessage }
  return { 'x-kubernetes-validations': [rule] }
}

/** Adds whether the field may be empty: a required field may not; another may, if its rules allow it. */
function emptinessOf(field: DescField, schema: StructuralSchema): StructuralSchema {
  const takesEmpty = schema.pattern === undefined || new RegExp(schema.pattern).test('')
  if (fieldAccess(field).required) {
    if (schema.type === 'string') return takesEmpty ? { minLength: 1, ...schema } : schema
    if (schema.type === 'array') return { minItems: 1, ...schema }
    return schema.additionalProperties === undefined ? schema : { minProperties: 1, ...schema }
  }
  return ignoresEmpty(rulesOf(field)) && !takesEmpty ? { ...schema, pattern: `^$|${schema.pattern ?? ''}` } : schema
}

function bareSchema(field: DescField, comments: Comments, rules: FieldRules | undefined): StructuralSchema {
  switch (field.fieldKind) {
    case 'scalar':
      return scalarSchema(field.scalar, field)
    case 'enum':
      return enumSchema(field.enum, rules)
    case 'message':
      return wellKnown[field.message.typeName] ?? messageSchema(field.message, { comments })
    case 'list': {
      const inner = rules?.type.case === 'repeated' ? rules.type.value.items : undefined
      const items = elementSchema(field, comments, inner)
      return { type: 'array', 'x-kubernetes-list-type': 'atomic', items }
    }
    case 'map': {
      const { keys, values } = rules?.type.case === 'map' ? rules.type.value : {}
      const map: StructuralSchema = { type: 'object', additionalProperties: elementSchema(field, comments, values) }
      return keys === undefined ? map : withConstraints(map, keyConstraintsOf(keys))
    }
  }
}

function elementSchema(field: DescField & { fieldKind: 'list' | 'map' }, comments: Comments, rules: FieldRules | undefined): StructuralSchema {
  const bare =
    field.message !== undefined
      ? {
          description: descriptionOf(comments, field.message.typeName, `${field.parent.typeName}.${field.name}`),
          ...messageSchema(field.message, { comments }),
        }
      : field.enum !== undefined
        ? enumSchema(field.enum, rules)
        : scalarSchema(field.scalar, field)
  return rules === undefined ? bare : withConstraints(bare, ...constraintsOf(rules))
}

function scalarSchema(type: ScalarType | undefined, field: DescField): StructuralSchema {
  const schema = type === undefined ? undefined : scalars[type]
  if (schema === undefined) throw new Error(`the type of ${field} cannot be expressed in a CRD: add it to field-schema.ts`)
  return schema
}

/** Returns the schema of an enum: the names of its allowed members in JSON. */
function enumSchema(desc: DescEnum, rules: FieldRules | undefined): StructuralSchema {
  const excluded = excludedMembers(rules)
  const members = desc.values.filter(({ number }) => !excluded.includes(number) && !isReserved(desc, number))
  return { type: 'string', enum: members.map(({ name }) => name) }
}

/** Returns true for a capability that no role of a customer may have. */
function isReserved(desc: DescEnum, number: number): boolean {
  return desc.typeName === CapabilitySchema.typeName && capabilityByEnumNumber(number)?.internal === true
}
