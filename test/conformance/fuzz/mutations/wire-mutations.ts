import { bytesOf, headOf, type HttpDraft, type Wire } from '../requests/http-draft.ts'
import type { HttpMutation } from './http-mutation.ts'
import type { Random } from '../random.ts'

type Made = Buffer | readonly Buffer[]

function wire(name: string, make: (draft: HttpDraft, random: Random) => Made, ending: Wire['ending'] = 'end'): HttpMutation {
  return {
    name: `wire: ${name}`,
    apply: (draft, random) => {
      const made = make(draft, random)
      const list = Buffer.isBuffer(made) ? [made] : made
      draft.wire = {
        chunks: list,
        ending,
        // The verb as the server reads it: empty lines before a request are ignored (RFC 9112, 2.2).
        verb: /^(?:\r\n)*HEAD /.test(Buffer.concat([...list]).toString('latin1')) ? 'HEAD' : 'GET',
      }
    },
  }
}

/** Returns the request with these headers about its body and this body, even if they contradict each other. */
function framed(draft: HttpDraft, headers: readonly string[], body: Buffer | string): Buffer {
  return Buffer.concat([headOf(draft, headers), typeof body === 'string' ? Buffer.from(body, 'latin1') : body])
}

function bodyOf(draft: HttpDraft): Buffer {
  return draft.body ?? Buffer.from('{}')
}

function chunk(body: Buffer, size = body.length.toString(16)): string {
  return `${size}\r\n${body.toString('latin1')}\r\n`
}

const chunked = 'Transfer-Encoding: chunked'

function lengthOf(draft: HttpDraft, more: number): string {
  return `Content-Length: ${bodyOf(draft).length + more}`
}

/** Cuts the bytes into pieces. */
function pieces(bytes: Buffer, count: number, random: Random): Buffer[] {
  const cuts = [0, ...Array.from({ length: count }, () => random.below(bytes.length + 1)), bytes.length].sort((a, b) => a - b)
  return cuts.slice(1).map((end, index) => bytes.subarray(cuts[index], end))
}

/** Bytes with a false end of the request, or that stop in the middle. */
export const wireMutations: readonly HttpMutation[] = [
  wire('length too large', (draft) => framed(draft, [lengthOf(draft, 10)], bodyOf(draft))),
  wire('length too small', (draft) => framed(draft, [lengthOf(draft, -1)], bodyOf(draft))),
  wire('length zero', (draft) => framed(draft, ['Content-Length: 0'], bodyOf(draft))),
  wire('length that is none', (draft, random) =>
    framed(draft, [`Content-Length: ${random.pick(['-1', '+5', '0x5', '1e3', ' ', '9'.repeat(30), '5,5', '٣', '5 5'])}`], bodyOf(draft)),
  ),
  wire('two lengths', (draft) => framed(draft, [lengthOf(draft, 0), lengthOf(draft, 1)], bodyOf(draft))),
  wire('length and chunks', (draft) => framed(draft, [lengthOf(draft, 0), chunked], `${chunk(bodyOf(draft))}0\r\n\r\n`)),
  wire('chunks and length', (draft) => framed(draft, [chunked, 'Content-Length: 3'], `${chunk(bodyOf(draft))}0\r\n\r\n`)),
  wire('chunks', (draft) => framed(draft, [chunked], `${chunk(bodyOf(draft))}0\r\n\r\n`)),
  wire('one chunk for each byte', (draft) =>
    framed(draft, [chunked], `${[...bodyOf(draft).subarray(0, 500)].map((byte) => chunk(Buffer.from([byte]))).join('')}0\r\n\r\n`),
  ),
  wire('chunk with extensions', (draft) =>
    framed(draft, [chunked], `${chunk(bodyOf(draft), `${bodyOf(draft).length.toString(16)};a="${'x'.repeat(20_000)}"`)}0\r\n\r\n`),
  ),
  wire('chunks with trailers', (draft) => framed(draft, [chunked], `${chunk(bodyOf(draft))}0\r\nAuthorization: Bearer x\r\nHost: evil\r\n\r\n`)),
  wire('chunk cut off', (draft) => framed(draft, [chunked], chunk(bodyOf(draft)).slice(0, -5))),
  wire('last chunk missing', (draft) => framed(draft, [chunked], chunk(bodyOf(draft)))),
  wire('chunk size that is none', (draft, random) =>
    framed(
      draft,
      [chunked],
      `${chunk(bodyOf(draft), random.pick(['g', '-1', '0x5', 'fffffffffffffffff', '', ' 5', '5 ', '00000005', '7fffffffffffffff']))}0\r\n\r\n`,
    ),
  ),
  wire('chunk larger than it says', (draft) => framed(draft, [chunked], `1\r\n${bodyOf(draft).toString('latin1')}\r\n0\r\n\r\n`)),
  wire('other transfer encoding', (draft, random) =>
    framed(
      draft,
      [
        `Transfer-Encoding: ${random.pick(['identity', 'gzip, chunked', 'chunked, gzip', 'xchunked', 'chunked\r\nTransfer-Encoding: x', ' chunked', 'CHUNKED', '"chunked"'])}`,
      ],
      `${chunk(bodyOf(draft))}0\r\n\r\n`,
    ),
  ),
  wire('body of a GET', (draft) => framed({ ...draft, verb: 'GET' }, [lengthOf(draft, 0)], bodyOf(draft))),
  wire('head cut off', (draft, random) => headOf(draft).subarray(0, random.below(headOf(draft).length))),
  wire('cut off', (draft, random) => bytesOf(draft).subarray(0, random.below(bytesOf(draft).length))),
  wire('cut off by a reset', (draft, random) => bytesOf(draft).subarray(0, random.below(bytesOf(draft).length)), 'reset'),
  wire('reset before the answer', (draft) => bytesOf(draft), 'reset'),
  wire('our side closed before the answer', (draft) => bytesOf(draft)),
  wire('in pieces', (draft, random) => pieces(bytesOf(draft), 10, random)),
  wire('pipelined', (draft) => Buffer.concat([bytesOf(draft), bytesOf(draft), bytesOf(draft)])),
  wire('pipelined and cut off', (draft, random) => Buffer.concat([bytesOf(draft), bytesOf(draft).subarray(0, random.below(50))])),
  wire('pipelined many', () => Buffer.from('GET /iam/v2/groups HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(100))),
  wire('request line', (draft, random) =>
    Buffer.from(
      `${random.pick(['GET', 'get', 'G\0T', '', 'GET GET', 'X'.repeat(5000), 'CONNECT fuzz.example:443', 'GET\t/', ' GET /', 'GET /\x01', 'GET  /', 'GET / HTTP/1.1 x'])} ${draft.path} ${random.pick(['HTTP/1.1', 'HTTP/1.0', 'HTTP/0.9', 'HTTP/2.0', 'HTTP/9.9', 'HTTP/1.', '', 'http/1.1', 'HTTPS/1.1', 'ICY'])}\r\nHost: x\r\n\r\n`,
      'latin1',
    ),
  ),
  wire('HTTP/1.0', (draft) => Buffer.from(bytesOf(draft).toString('latin1').replace('HTTP/1.1', 'HTTP/1.0'), 'latin1')),
  wire('no host', (draft) => bytesOf({ ...draft, headers: draft.headers.filter(([name]) => name !== 'Host') })),
  wire('line ends without returns', (draft) => Buffer.from(headOf(draft).toString('latin1').replaceAll('\r\n', '\n'), 'latin1')),
  wire('random bytes', (_draft, random) => random.bytes(1 + random.below(500))),
  wire('TLS', () => Buffer.from('16030100f8010000f40303' + '00'.repeat(200), 'hex')),
  wire('empty lines first', (draft) => Buffer.concat([Buffer.from('\r\n'.repeat(5)), bytesOf(draft)])),
  wire('part of the HTTP/2 preface', () => Buffer.from('PRI * HTTP/2.0\r\n\r\n')),
  wire('nearly the HTTP/2 preface', () => Buffer.from('PRI * HTTP/2.0\r\n\r\nSX\r\n\r\n')),
  wire('upgrade to HTTP/2', (draft) =>
    bytesOf({ ...draft, headers: [...draft.headers, ['Connection', 'Upgrade, HTTP2-Settings'], ['Upgrade', 'h2c'], ['HTTP2-Settings', 'AAMAAABkAAQAAP__']] }),
  ),
  wire('nothing', () => Buffer.alloc(0)),
]
