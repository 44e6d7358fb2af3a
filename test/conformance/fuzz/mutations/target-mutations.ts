import type { HttpMutation } from './http-mutation.ts'
import type { HttpDraft } from '../requests/http-draft.ts'
import { nastyText } from '../nasty.ts'
import type { Random } from '../random.ts'

function path(name: string, change: (path: string, random: Random) => string): HttpMutation {
  return { name: `path: ${name}`, apply: (draft, random) => void (draft.path = change(draft.path, random)) }
}

function query(name: string, parts: (draft: HttpDraft, random: Random) => string[]): HttpMutation {
  return { name: `query: ${name}`, apply: (draft, random) => void (draft.query = parts(draft, random)) }
}

/** Inserts a text at a random position of the path. */
function inside(path: string, inner: string, random: Random): string {
  const at = 1 + random.below(path.length)
  return path.slice(0, at) + inner + path.slice(at)
}

/** Changes one segment. */
function segment(path: string, random: Random, change: (segment: string) => string): string {
  const segments = path.split('/')
  const at = 1 + random.below(Math.max(1, segments.length - 1))
  return segments.map((text, index) => (index === at ? change(text) : text)).join('/')
}

const escapes = [
  '%00',
  '%',
  '%2',
  '%zz',
  '%2e%2e',
  '%2F',
  '%5c',
  '%0d%0a',
  '%c0%af',
  '%ff',
  '%ed%a0%80',
  '%25%32%65',
  '%u002e',
  '%3A',
  '%3F',
  '%23',
  '%20',
  '%e2%80%ae',
]
const plain = [
  '..',
  '.',
  '//',
  '/../',
  '/./',
  ';a=b',
  '\\',
  '*',
  '**',
  '{uid}',
  ':',
  '::',
  ',',
  '~',
  '$',
  "'",
  '!',
  '(',
  '@',
  '|',
  '<',
  '"',
  '`',
  '^',
  '[',
  ']',
]
const verbs = [':explain', ':', ':delete', ':__proto__', ':a:b', '%3Arestore', ':restore', ':validate', `:${'x'.repeat(3000)}`]
const keys = [
  'uid',
  'parent',
  'pageSize',
  'page_size',
  'pageToken',
  'orderBy',
  'skip',
  'uidp.descendantsOf',
  'uidp',
  'updateMask',
  'validateOnly',
  'validate_only',
  'name',
  '__proto__',
  'constructor.prototype',
  'a[b]',
  'ids[]',
  'x.y.z.w',
  '',
  '.',
  '..',
]

/** Unusual request targets and queries. */
export const targetMutations: readonly HttpMutation[] = [
  path('escape', (text, random) => inside(text, random.pick(escapes), random)),
  path('odd character', (text, random) => inside(text, random.pick(plain), random)),
  path('dots', (text, random) => segment(text, random, (part) => random.pick([`../${part}`, `./${part}`, `${part}/..`, '..', '%2e%2e', '..%2f', '....//']))),
  path('slashes', (text, random) =>
    random.pick([`/${text}`, `${text}/`, `${text}//`, text.replaceAll('/', '//'), text.replaceAll('/', '%2F'), text.replaceAll('/', '\\'), '/']),
  ),
  path('verb', (text, random) => text.replace(/:[a-zA-Z]+$/, '') + random.pick(verbs)),
  path('case', (text) => text.toUpperCase()),
  path('long', (text, random) => `${text}/${'a'.repeat(random.pick([300, 5000, 20_000, 31_000]))}`),
  path('too long', (text) => `${text}/${'a'.repeat(40_000)}`),
  path('many segments', (text, random) => `${text}${'/a'.repeat(random.pick([100, 5000, 14_000]))}`),
  path('many escapes', (text) => `${text}/${'%2e'.repeat(9000)}`),
  path('bytes above ASCII', (text, random) => inside(text, Buffer.from(random.pick(['é', '\u2028', '\u{1f600}']), 'utf8').toString('latin1'), random)),
  path('bytes that are no UTF-8', (text, random) => inside(text, random.pick(['\xff', '\xc0\xaf', '\xed\xa0\x80']), random)),
  path('segment of something else', (text, random) => segment(text, random, () => encodeURIComponent(nastyText(random).toWellFormed()).slice(0, 20_000))),
  path('segment left out', (text, random) => segment(text, random, () => '').replaceAll('//', '/')),
  path('other version', (text, random) => text.replace(/\/v\d+(?:beta\d)?\//, random.pick(['/v1/', '/v2beta1/', '/v3/', '/v2alpha1/', '/V2/', '/v/', '/']))),
  path(
    'absolute form',
    (text, random) =>
      random.pick(['http://fuzz.example', 'https://other.example:99999', 'http://', 'http://[::1', 'HTTP://a@b', '//x', 'file://', 'javascript:'] as const) +
      text,
  ),
  path('no path', (_text, random) => random.pick(['*', 'a', '?', '#', 'a/b', '/?', '/#', '/%', 'http:', '..', '//', '///', '/.'])),
  query('twice', ({ query: parts }) => [...parts, ...parts, ...parts]),
  query('unknown', ({ query: parts }, random) => [...parts, `${random.pick(keys)}=${encodeURIComponent(nastyText(random).toWellFormed()).slice(0, 15_000)}`]),
  query('array syntax', ({ query: parts }, random) => [
    ...parts,
    ...parts.map((part) => part.replace('=', random.pick(['[]=', '[0]=', '[__proto__]=', '[a][b]=', '%5B%5D=', '.0=', '.x=']))),
  ]),
  query('many', ({ query: parts }, random) => [...parts, ...Array.from({ length: 2000 }, () => `${random.pick(keys)}=1`)]),
  query('many dots', () => [`${'uidp.'.repeat(5000)}x=1`]),
  query('huge', ({ query: parts }) => [...parts, `name=${'x'.repeat(30_000)}`]),
  query('too huge', ({ query: parts }) => [...parts, `name=${'x'.repeat(50_000)}`]),
  query('broken escapes', ({ query: parts }, random) => [...parts, `${random.pick(keys)}=${random.pick(escapes)}`, random.pick(escapes)]),
  query('bytes', ({ query: parts }, random) => [
    ...parts,
    `name=${random
      .bytes(20)
      .toString('latin1')
      .replaceAll(/[\0-\x20\x7f]/g, '')}`,
  ]),
  query('no pairs', (_draft, random) => [random.pick(['=', '&', '&&==&', '?', '??', '#', '=a', 'a', ';', '%00', '+', 'a=b=c=d'])]),
  query('page token', ({ query: parts }, random) => [
    ...parts.filter((part) => !/^page_?token/i.test(part)),
    `pageToken=${random.pick(['x', random.bytes(60).toString('base64url'), '%00', '=', 'a'.repeat(8000)])}`,
  ]),
  query('order', (_draft, random) => [
    `orderBy=${encodeURIComponent(random.pick(['name desc,name', ',,,', 'uid desc desc', 'nothing', '__proto__', 'name;', 'NAME', `${'name,'.repeat(2000)}`]))}`,
  ]),
  query('dry run', ({ query: parts }, random) => [
    ...parts,
    `validateOnly=${random.pick(['true', '1', 'TRUE', '2', '%00', 'true&validateOnly=false', 'false&validate_only=true'])}`,
  ]),
  query('mask', ({ query: parts }, random) => [
    ...parts,
    `updateMask=${encodeURIComponent(random.pick(['*', 'uid', 'name,,', 'a.b.c', '__proto__', 'constructor', 'Name', 'name.x', `${'name,'.repeat(2000)}`]))}`,
  ]),
  {
    name: 'verb',
    apply: (draft, random) =>
      void (draft.verb = random.pick(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND', 'QUERY', 'PURGE', 'M-SEARCH'])),
  },
]
