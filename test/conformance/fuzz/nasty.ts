import type { JsonValue } from '@bufbuild/protobuf'
import type { Random } from './random.ts'

/** Texts that caused faults in programs, by a name for reports. */
export const nastyTexts: Readonly<Record<string, (random: Random) => string>> = {
  empty: () => '',
  blank: () => ' \t\r\n ',
  nul: () => 'a\0b',
  controls: () => Array.from({ length: 32 }, (_, code) => String.fromCharCode(code)).join(''),
  'delete and C1': () => '\x7f\x80\x85\x9f',
  'lone high surrogate': () => 'a\ud800b',
  'lone low surrogate': () => '\udc00',
  'swapped surrogates': () => '\udc00\ud800',
  'half a pair at the end': () => `${'x'.repeat(299)}\ud83d`,
  noncharacters: () => '\uffff\ufffe\ufdd0\u{10ffff}',
  bidi: () => '\u202eevil\u202c\u2066\u2069',
  'zero width': () => 'ad\u200bmin\ufeff\u2060',
  combining: () => `a${'\u0301'.repeat(2000)}`,
  'not normalized': () => 'A\u030a\u212b\u00c5',
  'changes length by case': () => '\u0130\u1e9e\ufb03',
  emoji: () => '\u{1f468}\u200d\u{1f469}\u200d\u{1f467}'.repeat(20),
  'line separators': () => 'a\u2028b\u2029c',
  huge: (random) => 'x'.repeat(10_000 + random.below(500_000)),
  'huge unicode': () => '\u{1f600}'.repeat(50_000),
  'path up': () => '../../../../etc/passwd',
  'path escaped': () => '%2e%2e%2f%00',
  'like a prototype': () => '__proto__',
  constructor: () => 'constructor',
  'like a method': () => 'toString',
  quotes: () => `'"\`;--`,
  template: () => '${7*7}{{7*7}}#{7*7}<%= 7*7 %>',
  markup: () => '<script>alert(1)</script><!--]]>',
  'format string': () => '%s%n%x%d',
  'hostile pattern': () => '^(a+)+$',
  'open pattern': () => '([',
  'huge pattern': () => '(?:a{1,1000}){1,1000}',
  'header in a text': () => 'a\r\nX-Request-Id: b\r\n\r\nHTTP/1.1 200 OK',
  'number as text': () => '1e400',
  'not a number': () => 'NaN',
  'minus zero': () => '-0',
  'big number': () => '9'.repeat(400),
  'far time': () => '9999-12-31T23:59:59.999999999Z',
  'no time': () => '0000-00-00T00:00:00Z',
  'long duration': () => '315576000001s',
  'short duration': () => '-0.000000001s',
  'uid of another case': () => 'A'.repeat(40),
  'uid that is too deep': () => `${'a'.repeat(40)}${'/0123456789abcdef'.repeat(500)}`,
  'uid and a slash': () => `${'a'.repeat(40)}/`,
  'path of a missing record': () => 'path:none/of/these',
  'path without names': () => 'path:',
  'path with empty names': () => `path:${'/'.repeat(5000)}`,
  'path of many names': () => `path:${'a/'.repeat(5000)}a`,
  'path of a built-in role': () => 'path:viewer',
  'address inside': () => 'http://169.254.169.254/latest/meta-data',
  'address with a user': () => 'https://user:password@[::1]:65536/#?',
  'address that is none': () => 'https://',
  wildcard: () => '*',
  'all mask': () => '*,uid,,a.b.c,__proto__',
  random: (random) => random.bytes(1 + random.below(64)).toString('latin1'),
}

/** Values of other types, and at the limits of types. */
export const nastyValues: Readonly<Record<string, (random: Random) => JsonValue>> = {
  null: () => null,
  true: () => true,
  false: () => false,
  zero: () => 0,
  'minus zero': () => -0,
  minus: () => -1,
  fraction: () => 0.5,
  'over int32': () => 2 ** 31,
  'over uint32': () => 2 ** 32,
  'over safe': () => 2 ** 53 + 2,
  'over int64': () => '9223372036854775808',
  'under int64': () => '-9223372036854775809',
  largest: () => Number.MAX_VALUE,
  smallest: () => Number.MIN_VALUE,
  'empty list': () => [],
  'empty object': () => ({}),
  'list of nulls': () => [null, null],
  'list of lists': () => [[[[]]]],
  'long list': (random) => Array.from({ length: 1000 + random.below(5000) }, () => 'x'),
  'long list of objects': () => Array.from({ length: 3000 }, () => ({})),
  'many keys': () => Object.fromEntries(Array.from({ length: 5000 }, (_, at) => [`key${at}`, at])),
  'prototype key': () => JSON.parse('{"__proto__":{"isAdmin":true},"constructor":{"prototype":{"x":1}}}') as JsonValue, // a cast of JSON
  'any type': () => ({ '@type': 'type.googleapis.com/google.protobuf.Struct', value: {} }),
  nested: (random) => deep(40 + random.below(60)),
}

function deep(levels: number): JsonValue {
  let value: JsonValue = 'end'
  for (let level = 0; level < levels; level++) value = level % 2 === 0 ? [value] : { a: value }
  return value
}

/** One of the texts above. */
export function nastyText(random: Random): string {
  return random.pick(Object.values(nastyTexts))(random)
}

/** The names of texts and values that take long to make, and have at least `longBytes` bytes. */
const long: ReadonlySet<string> = new Set(['huge', 'huge unicode', 'long list', 'long list of objects', 'many keys'])
const longBytes = 4_000

type Made = readonly ((random: Random) => JsonValue)[]

function madeOf(rows: Readonly<Record<string, Made[number]>>): { readonly all: Made; readonly short: Made } {
  const short = Object.entries(rows).flatMap(([name, make]) => (long.has(name) ? [] : [make]))
  return { all: Object.values(rows), short }
}

const [texts, values] = [madeOf(nastyTexts), madeOf(nastyValues)]

/** One of the values or texts above, of which long ones are left out if `maxBytes` is too small for them. */
export function nastyValue(random: Random, maxBytes = Infinity): JsonValue {
  const { all, short } = random.chance(0.5) ? texts : values
  return random.pick(maxBytes < longBytes ? short : all)(random)
}

/** Returns the UTF-8 bytes of the text as one character each, for HTTP/1.1. Bytes that would end a line are left out. */
export function headerSafe(text: string): string {
  return Buffer.from(text, 'utf8')
    .toString('latin1')
    .replaceAll(/[\r\n\0]/g, '')
}
