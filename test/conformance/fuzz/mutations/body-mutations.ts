import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from 'node:zlib'
import type { HttpMutation } from './http-mutation.ts'
import { setHeader, type HttpDraft } from '../requests/http-draft.ts'
import type { Random } from '../random.ts'

function text(name: string, change: (json: string, random: Random) => string): HttpMutation {
  return {
    name: `JSON: ${name}`,
    needsBody: true,
    apply: (draft, random) => void (draft.body = Buffer.from(change((draft.body ?? Buffer.alloc(0)).toString('utf8'), random), 'utf8')),
  }
}

function bytes(name: string, change: (body: Buffer, random: Random, draft: HttpDraft) => Buffer): HttpMutation {
  return { name: `body: ${name}`, needsBody: true, apply: (draft, random) => void (draft.body = change(draft.body ?? Buffer.alloc(0), random, draft)) }
}

function encoded(name: string, change: (body: Buffer, random: Random) => Buffer): HttpMutation {
  return bytes(`encoding ${name}`, (body, random, draft) => {
    setHeader(draft, 'Content-Encoding', name.split(' ')[0] ?? '')
    return change(body, random)
  })
}

/** Inserts a text before the first key. */
function withKey(json: string, key: string): string {
  return json.replace('{', json.startsWith('{}') ? `{${key}` : `{${key},`)
}

/** Replaces a random value by a token. */
function withToken(json: string, token: string, random: Random): string {
  const places = [...json.matchAll(/"(?:[^"\\]|\\.)*"(?!:)|[0-9.]+|true|false|null/g)]
  const at = random.pickMaybe(places)
  return at === undefined ? token : `${json.slice(0, at.index)}${token}${json.slice(at.index + at[0].length)}`
}

const insert = (body: Buffer, inner: Buffer, random: Random): Buffer => {
  const at = random.below(body.length + 1)
  return Buffer.concat([body.subarray(0, at), inner, body.subarray(at)])
}

const deepLevels = 100_000
const bombBytes = 64 * 1024 * 1024
const bomb = gzipSync(Buffer.alloc(bombBytes, ' '))
const brotliBomb = brotliCompressSync(Buffer.alloc(bombBytes / 4, ' '))

const deepLists = '['.repeat(deepLevels) + ']'.repeat(deepLevels)
const deepObjects = `${'{"a":'.repeat(deepLevels)}1${'}'.repeat(deepLevels)}`
const manyKeys = `{${Array.from({ length: 60_000 }, (_, at) => `"${at}":0`).join(',')}}`

const tokens = [
  '1e400',
  '-1e400',
  '-0',
  '0e-400',
  '9'.repeat(1000),
  '1'.repeat(50) + '.5',
  'NaN',
  'Infinity',
  '01',
  '0x10',
  '+1',
  '.5',
  '1.',
  "'a'",
  'undefined',
  'True',
]
const strings = [
  '"\\ud800"',
  '"\\udc00\\ud800"',
  '"\\u0000"',
  '"\\x41"',
  '"\\u00"',
  '"a\nb"',
  '"\u0001"',
  '"\\ud83d"',
  '"unterminated',
  `"${'\\u0061'.repeat(1000)}"`,
]

/** Bodies other than well-formed JSON of the right type. */
export const bodyMutations: readonly HttpMutation[] = [
  text('cut off', (json, random) => json.slice(0, random.below(json.length + 1))),
  text('something behind it', (json, random) => json + random.pick([json, '}', ',', '\0', ' x', '[]', '//', '\u2028'])),
  text('a key twice', (json) => withKey(json, /"(?:[^"\\]|\\.)*":(?:"(?:[^"\\]|\\.)*"|[^,{}[\]]*)/.exec(json)?.[0] ?? '"a":1,"a":2')),
  text('__proto__', (json) => withKey(json, '"__proto__":{"parent":"/","isAdmin":true}')),
  text('constructor', (json) => withKey(json, '"constructor":{"prototype":{"admin":true}},"toString":null,"hasOwnProperty":1,"valueOf":{}')),
  text('number token', (json, random) => withToken(json, random.pick(tokens), random)),
  text('string token', (json, random) => withToken(json, random.pick(strings), random)),
  text('other syntax', (json, random) =>
    random.pick([json.replaceAll('"', "'"), `/* */${json}`, json.replaceAll('}', ',}'), json.replaceAll(':', '='), `(${json})`, `${json};`]),
  ),
  text('no object', (_json, random) => random.pick(['', ' ', '[]', 'null', '0', '"text"', 'true', '[{}]', '{', '}', ']', '\ufeff', '-'])),
  text('byte order mark', (json) => `\ufeff${json}`),
  text('deep lists', () => deepLists),
  text('deep objects', () => deepObjects),
  text('deep inside', (json) => withKey(json, `"deep":${deepLists}`)),
  text('deep and open', () => '{"a":['.repeat(deepLevels)),
  text('many keys', () => manyKeys),
  text('many lists', () => `[${'[],'.repeat(200_000)}[]]`),
  text('white space', (json, random) => ' \t\r\n'.repeat(random.below(100_000)) + json),
  text('just below the limit', (json) => withKey(json, `"padding":"${'x'.repeat(Math.max(0, 1024 * 1024 - json.length - 100))}"`)),
  text('above the limit', (json) => withKey(json, `"padding":"${'x'.repeat(1024 * 1024 + 1)}"`)),
  text('far above the limit', () => `"${'x'.repeat(4 * 1024 * 1024)}"`),
  bytes('flipped bits', (body, random) => {
    const copy = Buffer.from(body)
    for (let count = 1 + random.below(4); count > 0 && copy.length > 0; count--) {
      const at = random.below(copy.length)
      copy[at] = (copy[at] ?? 0) ^ (1 << random.below(8))
    }
    return copy
  }),
  bytes('random', (_body, random) => random.bytes(random.below(300))),
  bytes('invalid UTF-8', (body, random) =>
    insert(body, Buffer.from(random.pick(['ff', 'c0af', 'eda080', 'f4908080', 'e282', '80', 'fe', 'c1bf']), 'hex'), random),
  ),
  bytes('NUL', (body, random) => insert(body, Buffer.from([0]), random)),
  bytes('control character', (body, random) => insert(body, Buffer.from([random.below(32)]), random)),
  bytes('UTF-16', (body) => Buffer.from(`\ufeff${body.toString('utf8')}`, 'utf16le')),
  bytes('with a charset', (body, random, draft) => {
    setHeader(draft, 'Content-Type', `application/json; charset=${random.pick(['utf-16', 'utf-7', 'latin1', 'utf-32', 'x', '"', 'utf-8; charset=utf-16', ''])}`)
    return body
  }),
  bytes('of another type', (body, random, draft) => {
    const types = [
      'text/plain',
      'application/xml',
      'multipart/form-data; boundary=x',
      'multipart/form-data',
      'application/x-www-form-urlencoded',
      '',
      'json',
      '*/*',
      'a/b/c',
      'application/json, text/plain',
      `application/${'x'.repeat(5000)}`,
      'application/grpc',
      'application/vnd.api+json',
      ';',
      'application/json;=',
    ]
    setHeader(draft, 'Content-Type', random.pick(types))
    return body
  }),
  encoded('gzip', (body) => gzipSync(body)),
  encoded('gzip, broken', (body, random) => gzipSync(body).subarray(0, 5 + random.below(20))),
  encoded('gzip, changed', (body, random) => insert(gzipSync(body), random.bytes(3), random)),
  encoded('gzip, twice in one', (body) => Buffer.concat([gzipSync(body), gzipSync(body)])),
  encoded('gzip that is none', (body) => body),
  encoded('gzip bomb', () => bomb),
  encoded('br', (body) => brotliCompressSync(body)),
  encoded('br bomb', () => brotliBomb),
  encoded('br that is none', (body) => body),
  encoded('deflate', (body) => deflateSync(body)),
  encoded('deflate, raw', (body) => deflateRawSync(body)),
  encoded('zstd', (body) => body),
  encoded('gzip,gzip', (body) => gzipSync(gzipSync(body))),
  encoded('identity', (body) => body),
  encoded('unknown', (body) => body),
  encoded('__proto__', (body) => body),
]
