import { hasOption, getOption, type DescField, type Message } from '@bufbuild/protobuf'
import { reflect } from '@bufbuild/protobuf/reflect'
import { field as fieldOption, FieldRulesSchema, Ignore, type FieldRules } from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js'
import type { StructuralSchema, ValidationRule } from './structural-schema.ts'

type Constraints = Partial<StructuralSchema>

/** Each rule of buf.validate -> what a structural schema says for it. Values of rules come as reflection has them: 64-bit numbers are bigint. */
const forms: Readonly<Record<string, (value: unknown) => Constraints>> = {
  'string.min_len': (value) => ({ minLength: Number(value) }),
  'string.max_len': (value) => ({ maxLength: Number(value) }),
  'string.max_bytes': (value) => bytesForm(Number(value)),
  'string.pattern': (value) => ({ pattern: String(value) }),
  'string.in': (value) => ({ enum: [...(value as Iterable<string>)] }), // the rule is a list of strings
  'int32.gte': (value) => ({ minimum: Number(value) }),
  'repeated.min_items': (value) => ({ minItems: Number(value) }),
  'repeated.max_items': (value) => ({ maxItems: Number(value) }),
  'repeated.unique': () => ({ 'x-kubernetes-list-type': 'set' }),
  'map.max_pairs': (value) => ({ maxProperties: Number(value) }),
  // Schemas list an enum's members, those that are excluded left out.
  'enum.defined_only': () => ({}),
  'enum.not_in': () => ({}),
}

/** Up to here bytes are counted: a rule costs by the text's length, and rules that could cost too much are refused. */
const mostCountedBytes = 100_000

/** Characters are never more than bytes. Beyond what is counted, more bytes than that are for the record's own check to find. */
function bytesForm(most: number): Constraints {
  const counted = rules({ rule: `bytes(self).size() <= ${most}`, message: `at most ${most} bytes` })
  return { maxLength: most, ...(most <= mostCountedBytes && counted) }
}

/** The rules that are about what a list or a map holds. */
const innerRules: ReadonlySet<string> = new Set(['repeated.items', 'map.keys', 'map.values'])

/** Each rule of buf.validate for the keys of a map -> the rule of the map. */
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

/** `string.max_len` and its value, for each rule that is set. */
function* setRules({ type }: FieldRules): Generator<readonly [string, unknown]> {
  if (type.case === undefined) return
  const group = FieldRulesSchema.fields.find((candidate) => candidate.localName === type.case)
  if (group?.fieldKind !== 'message') throw new TypeError(`rules ${type.case} are no message`)
  const set = reflect(group.message, type.value as Message) // the member of that case
  for (const rule of group.message.fields) if (set.isSet(rule)) yield [`${group.name}.${rule.name}`, set.get(rule)]
}

function formOf<T>(table: Readonly<Record<string, (value: unknown) => T>>, name: string, value: unknown): T {
  const form = table[name]
  if (form === undefined) throw new Error(`schema: no form of the rule ${name} for Kubernetes`)
  return form(value)
}

/** The rules of a field, or undefined where it has none. */
export function rulesOf(field: DescField): FieldRules | undefined {
  return hasOption(field, fieldOption) ? getOption(field, fieldOption) : undefined
}

/** What the rules say of a value (of an item, with the rules of items), its own CEL rules among it. Throws Error on a rule that has no form here. */
export function constraintsOf(fieldRules: FieldRules): readonly Constraints[] {
  const plain = [...setRules(fieldRules)].filter(([name]) => !innerRules.has(name)).map(([name, value]) => formOf(forms, name, value))
  const cel = fieldRules.cel.map(({ expression, message }) => rules({ rule: expression.replaceAll(/\bthis\b/g, 'self'), message }))
  return [...plain, ...cel]
}

/** What the rules say of a map's keys, as rules of the map. */
export function keyConstraintsOf(fieldRules: FieldRules): Constraints {
  const plain = [...setRules(fieldRules)].map(([name, value]) => formOf(keyForms, name, value))
  const cel = fieldRules.cel.map(({ expression, message }) => ({
    rule: `self.all(key, ${expression.replaceAll(/\bthis\b/g, 'key')})`,
    message: `keys ${message}`,
  }))
  return rules(...plain, ...cel)
}

/** True where the rules do not apply to a value that is empty. */
export function ignoresEmpty(fieldRules: FieldRules | undefined): boolean {
  return fieldRules?.ignore === Ignore.IF_ZERO_VALUE
}

/** The numbers of an enum's members that the rules exclude. */
export function excludedMembers(fieldRules: FieldRules | undefined): readonly number[] {
  return fieldRules?.type.case === 'enum' ? fieldRules.type.value.notIn : []
}
