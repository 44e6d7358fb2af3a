import { createValidator, type Violation } from '@bufbuild/protovalidate'
import { getOption, isFieldSet, isMessage, ScalarType, type DescField, type DescMessage, type DescOneof, type Message } from '@bufbuild/protobuf'
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect'
import { TimestampSchema } from '@bufbuild/protobuf/wkt'
import { DomainError, maxViolations, type FieldViolation } from '../base/errors.ts'
import { iam_scope } from '../gen/taproot/api/v1/annotations_pb.ts'
import { fieldAccess } from '../base/schema/field-behavior.ts'
import { lengthViolation, longTextViolation } from '../base/schema/list-limit.ts'
import { patternInWords } from '../base/schema/pattern-words.ts'
import { isTime } from '../base/schema/whole-milliseconds.ts'

const validator = createValidator()

/** Returns the description of a violation for clients, who never see a regular expression. */
function descriptionOf({ ruleId, message }: Violation): string {
  const [, pattern = ''] = ruleId === 'string.pattern' ? (/`(.*)`/.exec(message) ?? []) : []
  return patternInWords(pattern) ?? message
}

/**
 * Converts a violation of protovalidate to a field violation. Paths use schema names, with list indexes and map keys in brackets. Clients do not see the name
 * of a oneof, so its members are named instead.
 */
function fieldViolation(violation: Violation): FieldViolation {
  let text = ''
  let description = descriptionOf(violation)
  const add = (name: string): void => void (text += text === '' ? name : `.${name}`)
  for (const step of violation.field) {
    if (step.kind === 'field' || step.kind === 'extension') add(step.name)
    else if (step.kind === 'oneof') {
      add(writable(step)[0]?.name ?? step.name)
      description = oneIsRequired(step)
    } else if (step.kind === 'list_sub') text += `[${step.index}]`
    else text += `[${JSON.stringify(String(step.key))}]`
  }
  // For a rule about the whole message, the end of its id is the field to report.
  return { field: text === '' ? violation.ruleId.slice(violation.ruleId.lastIndexOf('.') + 1) : text, description }
}

/** Returns the members of a oneof that clients can set. An enum without values cannot be set. */
function writable({ fields }: DescOneof): DescField[] {
  return fields.filter((field) => field.enum === undefined || field.enum.values.length > 1)
}

/** Returns the description of the violation that no member of a oneof is set. */
export function oneIsRequired(oneof: DescOneof): string {
  const names = writable(oneof).map(({ name }) => `\`${name}\``)
  return names.length === 1 ? 'is required' : `one of ${names.join(', ')} is required`
}

/** Yields the nested messages of a message, each with its path and the name of its field. */
function* nested(message: ReflectMessage, path: string): Generator<[ReflectMessage, string, string]> {
  for (const field of message.desc.fields) {
    if (!message.isSet(field) || fieldAccess(field).outputOnly) continue
    if (field.fieldKind === 'message') yield [message.get(field), `${path}${field.name}`, field.name]
    if (field.fieldKind === 'list' && field.listKind === 'message') {
      let at = 0
      // The items of this list are messages.
      for (const item of message.get(field)) yield [item as ReflectMessage, `${path}${field.name}[${at++}]`, field.name]
    }
    if (field.fieldKind === 'map' && field.mapKind === 'message') {
      // The values of this map are messages.
      for (const [key, item] of message.get(field)) yield [item as ReflectMessage, `${path}${field.name}[${JSON.stringify(String(key))}]`, field.name]
    }
  }
}

/** Yields a violation for every list, map and text that is much too long, at any depth. Does not look inside those. */
function* lengthViolations(message: ReflectMessage, path = ''): Generator<FieldViolation> {
  const long = new Set<string>()
  for (const field of message.desc.fields) {
    if (fieldAccess(field).outputOnly) continue
    if (field.fieldKind === 'scalar' && field.scalar === ScalarType.STRING) {
      const violation = longTextViolation(field, message.get(field), `${path}${field.name}`)
      if (violation !== undefined) yield violation
    }
    if (field.fieldKind !== 'list' && field.fieldKind !== 'map') continue
    const violation = lengthViolation(field, message.get(field).size, `${path}${field.name}`)
    if (violation === undefined) continue
    long.add(field.name)
    yield violation
  }
  for (const [inner, at, field] of nested(message, path)) if (!long.has(field)) yield* lengthViolations(inner, `${at}.`)
}

/**
 * Yields a violation for every required field that is empty, and for every time that JSON has no form for, at any depth. Such a time comes in binary form. In
 * a stored record it would break each answer and event in JSON.
 */
function* contentViolations(message: ReflectMessage, path = ''): Generator<FieldViolation> {
  for (const field of message.desc.fields) {
    if (!fieldAccess(field).required || message.isSet(field)) continue
    // A boolean cannot be empty. A request inside another request may omit its scope, which the outer request then sets.
    const mayBeUnset = (field.fieldKind === 'scalar' && field.scalar === ScalarType.BOOL) || (path !== '' && getOption(field, iam_scope))
    if (!mayBeUnset) yield { field: `${path}${field.name}`, description: 'is required' }
  }
  for (const [inner, at] of nested(message, path)) {
    if (!inner.desc.typeName.startsWith('google.protobuf.')) yield* contentViolations(inner, `${at}.`)
    else if (isMessage(inner.message, TimestampSchema) && !isTime(inner.message)) yield { field: at, description: 'must be in the years 1 to 9999' }
  }
}

/** The number of the protobuf extension in which buf.validate keeps all rules. */
const rulesOption = 1159

function hasRules(desc: DescField | DescMessage | DescOneof): boolean {
  return desc.proto.options?.$unknown?.some(({ no }) => no === rulesOption) ?? false
}

/**
 * True if messages of `desc` have no rules and no times at any depth, and no required fields below the top. The only possible violation is then a required
 * field that is empty.
 */
function isFree(desc: DescMessage, seen = new Set<DescMessage>()): boolean {
  if (seen.has(desc)) return true
  seen.add(desc)
  if (desc.typeName === TimestampSchema.typeName || hasRules(desc) || desc.oneofs.some(hasRules)) return false
  return desc.fields.every((field) => {
    if (hasRules(field) || (seen.size > 1 && fieldAccess(field).required)) return false
    return field.message === undefined || isFree(field.message, seen)
  })
}

const freeMessages = new WeakMap<DescMessage, boolean>()

/** True if a quick check shows that `message` is valid, as for most reads, which only require a uid. False if a full check is needed. */
function isPlainlyValid(desc: DescMessage, message: Message): boolean {
  let free = freeMessages.get(desc)
  if (free === undefined) {
    free = isFree(desc)
    freeMessages.set(desc, free)
  }
  return free && desc.fields.every((field) => !fieldAccess(field).required || isFieldSet(message, field))
}

/** Returns the position in the schema of the field that a violation names. Violations are sorted by it, with those of the whole message last. */
function positionOf(desc: DescMessage, path: string): number {
  const head = path.split(/[.[]/, 1)[0] ?? ''
  const field = desc.fields.find((candidate) => candidate.name === head)
  return field?.number ?? Infinity
}

/**
 * Returns the violations of the schema's constraints in schema order, one per field and at most 20. Empty if `message` is valid. If lists are too long,
 * reports only those and does not check their items. Field names are relative to `message` and in schema spelling, e.g. `claim_match.issuer`
 * (docs/spec/errors.md#field-violations).
 */
export function violationsOf(desc: DescMessage, message: Message): FieldViolation[] {
  if (isPlainlyValid(desc, message)) return []
  const reflected = reflect(desc, message)
  const long = [...lengthViolations(reflected).take(maxViolations)]
  if (long.length > 0) return long
  const byField = new Map<string, FieldViolation>()
  for (const violation of contentViolations(reflected).take(maxViolations)) byField.set(violation.field, violation)
  const result = validator.validate(desc, message)
  if (result.kind === 'error') throw result.error
  if (result.kind === 'invalid') {
    for (const violation of result.violations.slice(0, 2 * maxViolations)) {
      const found = fieldViolation(violation)
      if (!byField.has(found.field)) byField.set(found.field, found)
    }
  }
  return [...byField.values()].sort((a, b) => positionOf(desc, a.field) - positionOf(desc, b.field)).slice(0, maxViolations)
}

/** Throws code 3 with all violations, if there are any. */
export function assertValid(desc: DescMessage, message: Message): void {
  const violations = violationsOf(desc, message)
  if (violations.length > 0) throw DomainError.invalidFields(violations)
}

/**
 * Throws code 3 if a request breaks the schema's constraints. Ignores the resource in it, which its kind checks: the whole resource on create, and on update
 * after the mask was applied. Also ignores an absent parent, which means the root.
 */
export function assertValidRequest(desc: DescMessage, message: Message, resourceField: DescField | undefined): void {
  const bare = resourceField === undefined ? message : { ...message, [resourceField.localName]: undefined }
  const violations = violationsOf(desc, bare).filter((violation) => violation.field !== resourceField?.name)
  if (violations.length > 0) throw DomainError.invalidFields(violations)
}
