import { getOption, ScalarType, type DescEnum, type DescField, type DescMessage } from '@bufbuild/protobuf'
import { oneof as oneofOption, type FieldRules } from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js'
import { capabilityByEnumNumber } from '../../base/capability.ts'
import { fieldAccess } from '../../base/schema/field-behavior.ts'
import { CapabilitySchema } from '../../gen/taproot/common/v2/capability_pb.ts'
import { constraintsOf, excludedMembers, ignoresEmpty, keyConstraintsOf, rulesOf } from './constraints.ts'
import { oneOfRule, withConstraints, type StructuralSchema, type ValidationRule } from './structural-schema.ts'

/** What the schema's comments say: full name of a message or field (`taproot.iam.v2.Group.name`) -> its leading comment. */
export type Comments = ReadonlyMap<string, string>

/** Scalar types as their JSON. */
const scalars: Partial<Readonly<Record<ScalarType, StructuralSchema>>> = {
  [ScalarType.STRING]: { type: 'string' },
  [ScalarType.BOOL]: { type: 'boolean' },
  [ScalarType.INT32]: { type: 'integer', format: 'int32', minimum: -(2 ** 31), maximum: 2 ** 31 - 1 },
  [ScalarType.INT64]: { type: 'string', pattern: '^-?[0-9]{1,19}$' },
}

/** Messages whose JSON is no object. */
const wellKnown: Readonly<Record<string, StructuralSchema>> = {
  // The format alone would also take times without a zone.
  'google.protobuf.Timestamp': {
    type: 'string',
    format: 'date-time',
    maxLength: 35,
    pattern: '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$',
  },
}

/** Refuses text that is no RE2 expression: then the rule itself fails. By the names of the schema: `subject_pattern`, `claim_patterns`. */
const isExpression = "''.matches(self) in [true, false]"
const areExpressions = "self.all(key, ''.matches(self[key]) in [true, false])"
const expressionMessage = 'a regular expression in RE2 syntax'

/** Fields that every record has and no spec. */
const systemFields: ReadonlySet<string> = new Set(['etag'])

/** Which fields of a message an object has, by proto names. */
export interface FieldChoice {
  readonly comments: Comments
  readonly withheld?: readonly string[]
  /** Fields (JSON names) that stand for the members of a oneof, by its name. */
  readonly alternatives?: Readonly<Record<string, readonly string[]>>
}

/** The fields that a client may write and `choice` does not withhold. */
export function writableFields(desc: DescMessage, { withheld = [] }: FieldChoice): readonly DescField[] {
  return desc.fields.filter((field) => !fieldAccess(field).outputOnly && !systemFields.has(field.name) && !withheld.includes(field.name))
}

/** The first comment there is. Throws Error where nothing tells what the field means. */
function descriptionOf(comments: Comments, ...names: readonly (string | undefined)[]): string {
  const found = names.map((name) => name !== undefined && comments.get(name)).find((text) => text)
  if (!found) throw new Error(`schema: ${names[0]} has no comment: kubectl explain needs one`)
  return found
}

/** An object schema of the message's writable fields, in the schema's order. Throws Error on what has no form in a structural schema. */
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

/** True where leaving the field out breaks a rule. A flag is never empty. */
function isRequired(field: DescField): boolean {
  if (field.fieldKind === 'scalar' && field.scalar === ScalarType.BOOL) return false
  if (fieldAccess(field).required) return true
  const rules = rulesOf(field)
  return (
    field.oneof === undefined && rules !== undefined && !ignoresEmpty(rules) && constraintsOf(rules).some((part) => (part.minItems ?? part.minLength ?? 0) > 0)
  )
}

/** One field, with its meaning and its constraints. */
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

/** What is required is not empty; what is not may be, where its rules say so. */
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
  if (schema === undefined) throw new Error(`schema: ${field}: no form of its type for Kubernetes`)
  return schema
}

/** The names of the members, as JSON has them. */
function enumSchema(desc: DescEnum, rules: FieldRules | undefined): StructuralSchema {
  const excluded = excludedMembers(rules)
  const members = desc.values.filter(({ number }) => !excluded.includes(number) && !isReserved(desc, number))
  return { type: 'string', enum: members.map(({ name }) => name) }
}

/** No role of a customer may hold it. */
function isReserved(desc: DescEnum, number: number): boolean {
  return desc.typeName === CapabilitySchema.typeName && capabilityByEnumNumber(number)?.internal === true
}
