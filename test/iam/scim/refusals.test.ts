import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import { specSuite } from '../../conformance/spec/spec-suite.ts'
import { expectScimError, makeDirectory, type ScimReply } from './directory.ts'

/** The headers and body of a raw request. */
interface Sent {
  readonly headers?: readonly string[]
  readonly body?: string
}

/** Sends the exact request line and headers, which no HTTP client would. */
async function sendRaw(baseUrl: string, line: string, { headers = [], body = '' }: Sent): Promise<ScimReply> {
  const { hostname, port, host } = new URL(baseUrl)
  const socket = connect(Number(port), hostname)
  socket.write(`${line} HTTP/1.1\r\n${[`Host: ${host}`, 'Connection: close', ...headers].join('\r\n')}\r\n\r\n${body}`)
  const answer = await text(socket)
  socket.destroy()
  const [head = '', answered = ''] = answer.split('\r\n\r\n', 2)
  const [statusLine = '', ...lines] = head.split('\r\n')
  const pairs = lines.map((one): [string, string] => [one.slice(0, one.indexOf(':')), one.slice(one.indexOf(':') + 1).trim()])
  return {
    status: Number(statusLine.split(' ', 2)[1]),
    headers: new Headers(pairs),
    text: answered,
    body: JSON.parse(answered) as Readonly<Record<string, unknown>>,
  }
}

const longName = 'x'.repeat(20_000)
const length = (body: string): string => `Content-Length: ${body.length}`

specSuite(
  'refusals of SCIM',
  (spec) => {
    test.each<[what: string, statuses: readonly [stranger: number, directory: number], method: string, path: string, sent?: Sent]>([
      ['an invalid escape', [401, 404], 'GET', '/%zz'],
      ['an invalid escape in an id', [401, 404], 'GET', '/Users/%'],
      ['an escape that is not UTF-8', [401, 404], 'GET', '/Users/%ff'],
      ['an invalid escape in the query', [401, 400], 'GET', '/Users?filter=%zz'],
      ['an escaped line break', [401, 404], 'GET', '/Users/a%0ab'],
      ['a missing path', [401, 404], 'GET', ''],
      ['empty segments', [401, 404], 'GET', '//Users//'],
      ['a colon', [401, 404], 'GET', '/Users:search'],
      ['a long path', [401, 404], 'GET', `/Users/${longName}`],
      ['a long query', [401, 400], 'GET', `/Users?filter=${longName}`],
      ['an unsupported verb', [405, 405], 'TRACE', '/Users'],
      ['one header too many', [401, 431], 'GET', '/Users', { headers: Array.from({ length: 98 }, (_, at) => `X-${at}: 1`) }],
      ['an unknown encoding', [401, 415], 'POST', '/Users', { body: '{}', headers: [length('{}'), 'Content-Encoding: zip'] }],
      ['a form', [401, 415], 'POST', '/Users', { body: 'a=b', headers: [length('a=b'), 'Content-Type: application/x-www-form-urlencoded'] }],
      [
        'a form for a path without POST',
        [401, 405],
        'POST',
        '/Schemas',
        { body: 'a=b', headers: [length('a=b'), 'Content-Type: application/x-www-form-urlencoded'] },
      ],
      ['a body that ends too early', [401, 400], 'POST', '/Users', { body: '{"a":', headers: [length('{"a":')] }],
    ])(
      'RFC 7644 3.12 refusals of SCIM have the SCIM error format for %s, without a token and with one: %j',
      async (_what, statuses, method, path, sent = {}) => {
        const { endpoint, scimToken } = await makeDirectory(spec.server)
        const line = `${method} ${new URL(endpoint).pathname}${path}`
        const authorization = [[], [`Authorization: Bearer ${scimToken}`]]
        const answers = await Promise.all(authorization.map((header) => sendRaw(endpoint, line, { ...sent, headers: [...header, ...(sent.headers ?? [])] })))
        expect(answers.map(({ status }) => status)).toEqual(statuses)
        for (const answer of answers) {
          const { scimType } = answer.body
          expectScimError(answer, answer.status, scimType === undefined ? undefined : String(scimType))
          expect(answer.headers.get('x-request-id')).toMatch(/./)
        }
      },
    )

    test('RFC 7644 3.12 refusals of SCIM have the SCIM error format after a deadline', async () => {
      const { endpoint, scimToken } = await makeDirectory(spec.server)
      const headers = [`Authorization: Bearer ${scimToken}`, 'Content-Length: 2', 'Request-Timeout: 0.1']
      expectScimError(await sendRaw(endpoint, `POST ${new URL(endpoint).pathname}/Users`, { headers, body: '{' }), 504)
    })

    test('refusals of SCIM have the API error format outside the SCIM path', async () => {
      const { endpoint } = await makeDirectory(spec.server)
      for (const path of ['/scim', '/scim/v3/Users', '/scim/v2nd']) {
        const answer = await sendRaw(endpoint, `GET ${path}`, {})
        expect([path, answer.status, answer.body['code']]).toEqual([path, 404, 5])
      }
    })
  },
  { transports: ['rest'] },
)
