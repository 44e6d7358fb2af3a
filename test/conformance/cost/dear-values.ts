import { getOption, ScalarType, type DescField, type JsonValue } from '@bufbuild/protobuf'
import { field as fieldRules, type FieldRules } from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js'
import { nastyValue } from '../fuzz/nasty.ts'
import type { Random } from '../fuzz/random.ts'

/** The input for an expensive value. */
export interface Dear {
  readonly random: Random
  /** A part of each text that differs in each repetition, so that cached results do not help. */
  readonly salt: string
  /** Uids of existing records. */
  readonly uids: readonly string[]
}

/** A text of about `length` characters. */
type Text = (length: number, dear: Dear) => string

/** Repeats the unit as often as it fits, and adds the salt. */
function filled(unit: string): Text {
  return (length, { salt }) => unit.repeat(Math.max(0, Math.floor((length - salt.length) / unit.length))) + salt
}

/** Repeats a unit between two fixed parts. */
function around(before: string, unit: string, after: string): Text {
  const inner = filled(unit)
  return (length, dear) => before + inner(Math.max(0, length - before.length - after.length), dear) + after
}

/** Joins many distinct units. */
function numbered(unit: (at: number, salt: string) => string, separator = ''): Text {
  return (length, { salt }) => {
    const parts: string[] = []
    for (let size = 0; size < length; size += (parts.at(-1) ?? '').length + separator.length) parts.push(unit(parts.length, salt))
    return parts.slice(0, -1).join(separator) + separator + salt
  }
}

const words = [filled('a'), filled('a-'), filled('\u{1f600}'), filled('"\\'), filled('/'), filled('%41'), filled('\u0130'), filled('a\u0301'), filled('\n')]

const patterns = [
  filled('\\pL'),
  filled('\\pL\\pL'),
  filled('\\pL+'),
  filled('\\PL\\pN'),
  filled('[\\pL\\pN]'),
  filled('(?i)\\pL'),
  around('(?i)', '[B-\u{1e943}]', ''),
  around('', '(a?){9}', ''),
  around('(?:', '\\pL', '){330}'),
  around('((', 'ab', '{30}){30}){2}'),
  around('', '[^a]{1000}', ''),
  filled('x{1000}'),
  filled('.*a'),
  numbered((at, salt) => `a${at}${salt}`, '|'),
  (length: number, dear: Dear) => '('.repeat(length / 2 - 4) + dear.salt + ')'.repeat(length / 2 - 4),
]

const addresses = [
  around('https://', 'a.', '.example'),
  around('https://issuer.example/', '%41', ''),
  around('https://issuer.example/?', 'a=b&', ''),
  around('', 'a', '@example.com'),
]

const uids: readonly Text[] = [
  (_, { random, uids: real }) => random.pickMaybe(real) ?? '',
  (length, { salt }) => `${'a'.repeat(40)}${`/${salt.padEnd(16, '0').slice(0, 16)}`.repeat(length / 17)}`,
  (length) => `${'a'.repeat(40)}${'/0123456789abcdef'.repeat(Math.max(0, (length - 40) / 17))}`,
]

const prose = ['[', '*a ', '> ', '`', '<div>', '![a](', '|a', '- ', '&amp;', '[a](b) ', '~~a', '<a href=b>', '* * '].map((unit) => filled(unit))

const documents: readonly Text[] = [
  numbered(
    (at, salt) =>
      `{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","kid":"${salt}${at}"}`,
    ',',
  ),
  around('{"kty":"RSA","e":"AQAB","kid":"one","n":"', 'x7', '"}'),
  filled('{},'),
  filled('[],'),
].map(
  (inner: Text): Text =>
    (length, dear) =>
      `{"keys":[${inner(length - 16, dear).replace(/,?[0-9a-f]*$/, '')}]}`,
)

const nested: readonly Text[] = [
  (length) => '['.repeat(length / 2) + ']'.repeat(length / 2),
  around('{"x":[', '[],', '0]}'),
  numbered((at, salt) => `"${salt}${at}":${at}`, ','),
  numbered((at, salt) => `${salt}${at}: &a${at} [*a${Math.max(0, at - 1)}]\n`),
]

/** Expensive texts by the purpose of the field, found by its name. The first matching row counts. */
const byName: readonly (readonly [RegExp, readonly Text[]])[] = [
  [/pattern/, patterns],
  [/keys|jwks/, documents],
  [/overlay|config|json/, nested],
  [/readme|description|content/, prose],
  [/uid|parent|_of$|ids|scope|group|identity|role/, uids],
  [/order_by/, [filled('name desc,'), numbered((at) => `field${at} desc`, ','), filled(' ')]],
  [/token|code|secret|signature/, [filled('QUJD'), filled('eyJhbGciOiJub25lIn0.'), filled('.')]],
  [/issuer|url|email|audience|aud$|arn|reference|source/, addresses],
  [/filter|expression|query/, [filled(' or a eq'), filled('!'), filled('(a && ')]],
]

/** Returns whether the server compiles, parses or renders a text of this field. */
export function isWorkedOn({ name }: DescField): boolean {
  return /pattern|keys|jwks|overlay|config|json|readme|content|filter|expression/.test(name)
}

const anyText: readonly Text[] = [...words, ...patterns, ...addresses, ...prose, ...nested]

const knownRules = new Map<DescField, FieldRules>()

/** Returns the rules of a field. Decoding them takes longer than making most values. */
function rulesOf(field: DescField): FieldRules {
  const rules = knownRules.get(field) ?? getOption(field, fieldRules)
  knownRules.set(field, rules)
  return rules
}

/** Returns the maximum length in the schema, or Infinity. */
function longest({ type }: FieldRules): number {
  if (type.case !== 'string') return Infinity
  const stated = [type.value.maxLen, type.value.maxBytes].map(Number).filter((limit) => limit > 0)
  return stated.length === 0 ? Infinity : Math.min(...stated)
}

/** Returns the rules for one value of a field, or for its items or map values. */
function valueRules(field: DescField): FieldRules | undefined {
  const rules = rulesOf(field)
  if (rules.type.case === 'repeated') return rules.type.value.items
  return rules.type.case === 'map' ? rules.type.value.values : rules
}

/** Returns a text of at most `bytes` for the field. In most cases it has the maximum length and an expensive form. */
export function dearText(field: DescField, bytes: number, dear: Dear): string {
  const { random } = dear
  const rules = valueRules(field)
  const limit = rules === undefined ? Infinity : longest(rules)
  const length = Math.min(bytes, random.chance(0.1) ? bytes : random.chance(0.1) ? limit + 1 : limit)
  const fitting = byName.find(([name]) => name.test(field.name))?.[1] ?? words
  const text = random.pick(random.chance(isWorkedOn(field) ? 0.95 : 0.8) ? fitting : anyText)(Math.max(8, length), dear)
  return limit === Infinity || random.chance(0.1) ? text.slice(0, bytes) : text.slice(0, limit)
}

/** JSON values of the well-known types. */
const wellKnown: Readonly<Record<string, (bytes: number, dear: Dear) => JsonValue>> = {
  'google.protobuf.FieldMask': (bytes, dear) =>
    dear.random.pick([filled('name,'), filled('a.'), numbered((at) => `field${at}`, ','), filled('*,')])(bytes, dear),
  'google.protobuf.Duration': (bytes, dear) => dear.random.pick(['1s', '0.000000001s', `${'9'.repeat(Math.min(bytes, 4000))}s`]),
  'google.protobuf.Timestamp': (bytes, dear) => dear.random.pick(['2030-01-01T00:00:00Z', `2030-01-01T00:00:00.${'0'.repeat(Math.min(bytes, 4000))}Z`]),
}

/** Returns one expensive value of a scalar or well-known field. */
export function dearScalar(field: DescField, bytes: number, dear: Dear): JsonValue {
  const { random } = dear
  if (random.chance(0.03)) {
    const other = nastyValue(random, bytes)
    if (JSON.stringify(other).length <= bytes) return other
  }
  if (field.message !== undefined) return wellKnown[field.message.typeName]?.(bytes, dear) ?? {}
  if (field.enum !== undefined) return random.chance(0.8) ? random.pick(field.enum.values).name : 'NONE'
  if (field.scalar === ScalarType.STRING) return dearText(field, bytes, dear)
  if (field.scalar === ScalarType.BYTES) return 'QUJD'.repeat(bytes / 4)
  if (field.scalar === ScalarType.BOOL) return random.chance(0.5)
  return random.pick([1, 200, 1000, 2 ** 31 - 1])
}
