import { getOption, hasOption, type DescField, type DescMessage, type Message } from '@bufbuild/protobuf'
import { reflect } from '@bufbuild/protobuf/reflect'
import { field as fieldRules, FieldRulesSchema, oneof as oneofRules, type FieldRules } from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js'
import { fieldAccess } from '../../../src/base/schema/field-behavior.ts'
import { iam_scope } from '../../../src/gen/taproot/api/v1/annotations_pb.ts'

/**
 * The constraints of a request message, each as `<path in proto names>:<rule>`: `group.name:required`, `group.name:string.pattern`,
 * `requests:repeated.max_items`, `identity.claim_match.claims{key}:string.min_len`, `identity.relationship:oneof.required`. What only the server writes has none;
 * nor has `etag`, which is opaque: one that is no etag is a stale one, code 10.
 */
export function constraintsOf(desc: DescMessage): ReadonlySet<string> {
  return new Set(messageConstraints(desc, '', []))
}

/** Rules that decide whether others apply. */
const modifiers: ReadonlySet<string> = new Set(['ignore'])

function* messageConstraints(desc: DescMessage, prefix: string, above: readonly DescMessage[]): Generator<string> {
  if (above.includes(desc) || desc.typeName.startsWith('google.protobuf.')) return
  for (const oneof of desc.oneofs) if (hasOption(oneof, oneofRules) && getOption(oneof, oneofRules).required) yield `${prefix}${oneof.name}:oneof.required`
  for (const field of desc.fields) {
    if (field.name === 'etag' || fieldAccess(field).outputOnly) continue
    const path = `${prefix}${field.name}`
    // A request inside another may inherit the scope of the outer one.
    const inherited = above.length > 0 && getOption(field, iam_scope)
    if (fieldAccess(field).required && !inherited) yield `${path}:required`
    if (hasOption(field, fieldRules)) yield* rulesOf(path, getOption(field, fieldRules))
    const inner = messageOf(field)
    if (inner !== undefined) yield* messageConstraints(inner, `${path}.`, [...above, desc])
  }
}

function messageOf(field: DescField): DescMessage | undefined {
  if (field.fieldKind === 'message') return field.message
  return field.fieldKind === 'list' || field.fieldKind === 'map' ? field.message : undefined
}

/** Yields one line for each rule; rules of items, keys and values have their own path. */
function* rulesOf(path: string, rules: FieldRules): Generator<string> {
  if (rules.required) yield `${path}:required`
  if (rules.cel.length + rules.celExpression.length > 0) yield `${path}:cel`
  const { type } = rules
  if (type.case === undefined) return
  const field = FieldRulesSchema.fields.find((candidate) => candidate.localName === type.case)
  if (field?.fieldKind !== 'message') throw new TypeError(`rules of ${path} have no message`)
  const set = reflect(field.message, type.value as Message)
  for (const rule of field.message.fields.filter((candidate) => set.isSet(candidate) && !modifiers.has(candidate.name))) {
    if (rule.fieldKind !== 'message' || rule.message !== FieldRulesSchema) {
      yield `${path}:${field.name}.${rule.name}`
      continue
    }
    const suffix = { items: '[]', keys: '{key}', values: '{value}' }[rule.name] ?? `.${rule.name}`
    // The field's type was compared above.
    yield* rulesOf(`${path}${suffix}`, set.get(rule).message as FieldRules)
  }
}
