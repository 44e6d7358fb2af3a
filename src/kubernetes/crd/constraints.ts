import { hasOption, getOption, type DescField, type Message } from '@bufbuild/protobuf'
import { reflect } from '@bufbuild/protobuf/reflect'
import { field as fieldOption, FieldRulesSchema, Ignore, type FieldRules } from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js'
import type { StructuralSchema, ValidationRule } from './structural-schema.ts'

type Constraints = Partial<StructuralSchema>

/** Constraints of a structural schema for each rule of buf.validate. The rules' values come from reflection, so 64-bit numbers are bigint. */
const forms: Readonly<Record<string, (value: unknown) => Constraints>> = {
  'string.min_len': (value) => ({ minLength: Number(value) }),
  'string.max_len': (value) => ({ maxLength: Number(value) }),
  'string.max_bytes': (value) => bytesForm(Number(value)),
  'string.pattern': (value) => ({ pattern: String(value) }),
  'string.in': (value) => ({ enum: [...(value as Iterable<string>)] }), // a cast: the rule is a list of strings
  'int32.gte': (value) => ({ minimum: Number(value) }),
  'repeated.min_items': (value) => ({ minItems: Number(value) }),
  'repeated.max_items': (value) => ({ maxItems: Number(value) }),
  'repeated.unique': () => ({ 'x-kubernetes-list-type': 'set' }),
  'map.max_pairs': (value) => ({ maxProperties: Number(value) }),
  // The schema of an enum lists its allowed members, so these rules need no further constraint.
  'enum.defined_only': () => ({}),
  'enum.not_in': () => ({}),
}

/**
 * Largest byte limit for which a CEL rule is generated. The cost of such a rule grows with the text's length, and the API server refuses
 * expensive rules.
 */
const mostCountedBytes = 100_000

/**
 * Returns constraints for a byte limit. Every character has at least one byte, so the same number also limits characters. For a large
 * limit only characters are limited; the API of the record checks the bytes.
 */
function bytesForm(most: number): Constraints {
  const counted = rules({ rule: `bytes(self).size() <= ${most}`, message: `at most ${most} bytes` })
  return { maxLength: most, ...(most <= mostCountedBytes && counted) }
}

/** Rules about the items of a list, or the keys and values of a map. */
const innerRules: ReadonlySet<string> = new Set(['repeated.items', 'map.keys', 'map.values'])

/** The rule of a map for each rule of buf.validate about its keys. */
const keyForms: Readonly<Record<string, (value: unknown) => ValidationRule>> = {
  'string.min_len': (value) => ({
    rule: `self.all(key, key.size() >= ${Number(value)})`,
    message: `keys have at least ${Number(value)} character${Number(value) === 1 ? '' : 's'}`,
  }),
  'string.max_len': (value) => ({ rule: `self.all(key, key.size() <= ${Number(value)})`, message: `keys have at most ${Number(value)} characters` }),
}

function rules(...list: readonly ValidationRule[]): Constraints {
  return { 'x-kubernetes-validations': list }
}

/** Yields each rule that is set, such as `string.max_len`, with its value. */
export function* setRules({ type }: FieldRules): Generator<readonly [string, unknown]> {
  if (type.case === undefined) return
  const group = FieldRulesSchema.fields.find((candidate) => candidate.localName === type.case)
  if (group?.fieldKind !== 'message') throw new TypeError(`proto rules of type ${type.case} must be a message`)
  const set = reflect(group.message, type.value as Message) // a cast: the value is the member of that case
  for (const rule of group.message.fields) if (set.isSet(rule)) yield [`${group.name}.${rule.name}`, set.get(rule)]
}

function formOf<T>(table: Readonly<Record<string, (value: unknown) => T>>, name: string, value: unknown): T {
  const form = table[name]
  if (form === undefined) throw new Error(`the proto rule ${name} cannot be expressed in a CRD: add it to constraints.ts`)
  return form(value)
}

/** Returns the rules of a field; undefined if it has none. */
export function rulesOf(field: DescField): FieldRules | undefined {
  return hasOption(field, fieldOption) ? getOption(field, fieldOption) : undefined
}

/**
 * Returns the constraints for a value from its rules, including CEL rules. For the items of a list, pass the rules of the items. Throws
 * Error for a rule that a CRD cannot express.
 */
export function constraintsOf(fieldRules: FieldRules): readonly Constraints[] {
  const plain = [...setRules(fieldRules)].filter(([name]) => !innerRules.has(name)).map(([name, value]) => formOf(forms, name, value))
  const cel = fieldRules.cel.map(({ expression, message }) => rules({ rule: expression.replaceAll(/\bthis\b/g, 'self'), message }))
  return [...plain, ...cel]
}

/** Returns the constraints for a map from the rules of its keys. */
export function keyConstraintsOf(fieldRules: FieldRules): Constraints {
  const plain = [...setRules(fieldRules)].map(([name, value]) => formOf(keyForms, name, value))
  const cel = fieldRules.cel.map(({ expression, message }) => ({
    rule: `self.all(key, ${expression.replaceAll(/\bthis\b/g, 'key')})`,
    message: `keys ${message}`,
  }))
  return rules(...plain, ...cel)
}

/** Returns true if the rules do not apply to an empty value. */
export function ignoresEmpty(fieldRules: FieldRules | undefined): boolean {
  return fieldRules?.ignore === Ignore.IF_ZERO_VALUE
}

/** Returns the numbers of the enum members that the rules exclude. */
export function excludedMembers(fieldRules: FieldRules | undefined): readonly number[] {
  return fieldRules?.type.case === 'enum' ? fieldRules.type.value.notIn : []
}
