import { headerValues, removeHeader, setHeader } from '../requests/http-draft.ts'
import type { HttpMutation } from './http-mutation.ts'
import { headerSafe, nastyText } from '../nasty.ts'
import type { Random } from '../random.ts'

function header(name: string, values: readonly (string | ((random: Random) => string))[]): HttpMutation {
  return {
    name: `header ${name}`,
    apply: (draft, random) => {
      const value = random.pick(values)
      setHeader(draft, name, headerSafe(typeof value === 'string' ? value : value(random)).slice(0, 25_000))
    },
  }
}

function added(name: string, headers: (random: Random) => [string, string][]): HttpMutation {
  return { name: `headers: ${name}`, apply: (draft, random) => void draft.headers.push(...headers(random)) }
}

const jwt = (head: object, claims: object, signature = 'AAAA'): string =>
  [head, claims].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.') + `.${signature}`

/** Credentials that no endpoint may accept. */
const credentials: readonly (string | ((random: Random) => string))[] = [
  '',
  'Bearer',
  'Bearer ',
  'Bearer  x',
  'bearer x.y.z',
  'Bearer ..',
  'Bearer a.b.c.d.e',
  'Basic',
  'Basic !!!!',
  'Basic OnBhc3M=',
  `Basic ${Buffer.from('_token:x').toString('base64')}`,
  `Basic ${Buffer.from(`${'a'.repeat(40)}:x`).toString('base64')}`,
  `Basic ${Buffer.from('a\0b:\xff').toString('base64')}`,
  'Negotiate x',
  'Digest username="a"',
  `Bearer ${jwt({ alg: 'none' }, { sub: 'a' })}`,
  `Bearer ${jwt({ alg: 'HS256', kid: '../../etc/passwd' }, { sub: 'a', iss: 'https://issuer.example' })}`,
  `Bearer ${jwt({ alg: 'RS256', jku: 'http://169.254.169.254/', kid: '__proto__' }, { iss: 'constructor', exp: 1e400 })}`,
  `Bearer ${jwt({ alg: 'RS256', crit: ['x'], x: 1 }, { iss: { a: 1 }, sub: [], aud: 7 })}`,
  `Bearer ${Buffer.from('[1]').toString('base64url')}.${Buffer.from('null').toString('base64url')}.x`,
  `Bearer ${Buffer.from('{"a":'.repeat(5000)).toString('base64url')}.e30.x`,
  (random) => `Bearer ${random.bytes(200).toString('base64url')}`,
  (random) => `Bearer ${nastyText(random)}`,
  `Bearer ${'x'.repeat(20_000)}`,
]

/** Asks for a stream of events, mostly where there is one. The deadline ends a stream that the server begins. */
export const streamMutation: HttpMutation = {
  name: 'stream of events',
  apply: (draft, random) => {
    if (draft.port === 'api' && random.chance(0.7)) {
      Object.assign(draft, { verb: 'GET', path: '/events/v2/events', body: undefined })
      draft.query = random.pick([[], draft.query, ['cursor=now'], ['wait=60s'], ['types=dev.taproot.api.'], ['cursor=x']])
    }
    setHeader(draft, 'Accept', random.pick(['text/event-stream', 'text/event-stream;q=0.1, application/json', 'TEXT/EVENT-STREAM; charset=utf-16']))
    setHeader(draft, 'Request-Timeout', '0.3')
    if (random.chance(0.4)) setHeader(draft, 'Last-Event-ID', headerSafe(random.chance(0.5) ? nastyText(random) : '').slice(0, 10_000))
  },
}

/** Headers that are read by the server, wrong in every way, and those that others have tripped over. */
export const headerMutations: readonly HttpMutation[] = [
  header('Authorization', credentials),
  streamMutation,
  {
    name: 'header Authorization, changed',
    apply: (draft, random) => {
      const [value = 'Bearer x'] = headerValues(draft, 'authorization')
      const at = random.below(value.length)
      setHeader(draft, 'Authorization', `${value.slice(0, at)}${random.pick(['', 'A', '.', ' ', '=', '\t', 'é'])}${value.slice(at + 1)}`)
    },
  },
  { name: 'header Authorization, twice', apply: (draft) => void draft.headers.push(['Authorization', 'Bearer x.y.z'], ['authorization', 'Basic eDp5']) },
  { name: 'header Authorization, none', apply: (draft) => removeHeader(draft, 'authorization') },
  header('If-Match', ['*', '"', '""', 'W/"x"', '"a","b"', 'x', ',', nastyText, 'W/', '"\\""', `"${'x'.repeat(9000)}"`]),
  header('If-None-Match', ['*', '"x"', '', nastyText]),
  header('If-Modified-Since', ['Thu, 01 Jan 1970 00:00:00 GMT', 'x']),
  header('Range', ['bytes=0-1', 'bytes=-1', 'bytes=5-1,0-0', 'x']),
  header('Idempotency-Key', ['x', '', nastyText, nastyText, 'a'.repeat(20_000), ' ', '../..', '__proto__']),
  header('Force-Ownership', ['true', 'false', '1', nastyText, 'a/b/c']),
  header('Taproot-Identity', ['x', nastyText, 'a'.repeat(40), `${'a'.repeat(40)}/..`]),
  header('X-Request-Id', ['', 'x', 'a'.repeat(129), nastyText, 'é', '<script>', '../../x']),
  header('Request-Timeout', ['0', '0.000001', '-1', '1e9', 'x', '999999', '5', '1m']),
  header('Traceparent', ['00-00000000000000000000000000000000-0000000000000000-00', 'ff-1-1-1', nastyText, `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`]),
  header('Tracestate', ['a=b,a=b', nastyText, 'x'.repeat(10_000)]),
  header('X-Forwarded-For', ['1.2.3.4', '::1, 127.0.0.1', 'unknown', nastyText, Array(2000).fill('10.0.0.1').join(','), '999.1.1.1', '[::1]:80']),
  header('Forwarded', ['for=1.2.3.4;host=evil', nastyText]),
  header('X-Forwarded-Proto', ['https', 'javascript', nastyText]),
  header('X-HTTP-Method-Override', ['DELETE', 'PATCH', 'CONNECT', nastyText]),
  header('Host', ['', 'evil.example', 'a b', '[::1', 'a:99999', '../..', nastyText, 'a'.repeat(5000), '169.254.169.254']),
  header('Accept', ['', '*/*;q=-1', 'text/html', 'application/grpc', nastyText, 'a/b,'.repeat(2000), ';;;']),
  header('Accept-Encoding', ['gzip', 'br;q=1, *;q=0', 'identity;q=0', nastyText]),
  header('Accept-Language', ['x', nastyText]),
  header('User-Agent', ['', nastyText, 'x'.repeat(20_000), '${jndi:ldap://x}']),
  header('Cookie', ['a=b', nastyText, '__Host-x=y; '.repeat(500), '=;=;', 'a="']),
  header('Origin', ['null', 'https://evil.example', nastyText]),
  header('Expect', ['100-continue', 'nonsense', '100-continue, x']),
  header('Connection', ['close', 'keep-alive', 'x', 'Host, Authorization', 'upgrade']),
  header('Upgrade', ['h2c', 'websocket', 'x']),
  header('TE', ['trailers', 'gzip', 'x']),
  header('Trailer', ['Authorization', 'x']),
  header('Max-Forwards', ['0', '-1']),
  header('Content-Type', ['application/json', 'text/plain', '', nastyText]),
  header('Access-Control-Request-Method', ['PUT', 'x']),
  header('Early-Data', ['1']),
  added('many', () => Array.from({ length: 99 }, (_, at): [string, string] => [`X-Many-${at}`, 'x'])),
  added('too many', () => Array.from({ length: 300 }, (_, at): [string, string] => [`X-Many-${at}`, 'x'])),
  added('thousands', () => Array.from({ length: 2000 }, (_, at): [string, string] => [`x${at}`, ''])),
  added('too large', () => [['X-Large', 'x'.repeat(40_000)]]),
  added('large name', () => [['X'.repeat(20_000), 'x']]),
  added('repeated', (random) =>
    Array.from({ length: 20 }, (): [string, string] => [random.pick(['If-Match', 'Idempotency-Key', 'Content-Type', 'X-Request-Id', 'Host', 'Cookie']), 'x']),
  ),
  added('like a prototype', () => [
    ['__proto__', 'x'],
    ['constructor', 'x'],
    ['toString', 'x'],
    ['hasOwnProperty', 'x'],
  ]),
  added('folded', () => [['X-Folded', 'a\r\n b']]),
  added('empty name', () => [['', 'x']]),
  added('space before the colon', () => [['X-Space ', 'x']]),
  added('odd name', (random) => [[random.pick(['a b', 'a\tb', 'é', 'a(b)', 'a:b', '\x01', 'a\x7f']), 'x']]),
  added('control character', (random) => [['X-Control', `a${random.pick(['\0', '\x01', '\x0b', '\x7f', '\r', '\n'])}b`]]),
  added('bytes', (random) => [
    [
      'X-Bytes',
      random
        .bytes(100)
        .toString('latin1')
        .replaceAll(/[\r\n]/g, ''),
    ],
  ]),
  added('bare end of line', () => [['X-A', 'x\nX-B: y']]),
]
