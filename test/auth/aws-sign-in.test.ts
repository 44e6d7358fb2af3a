import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { parseAwsCaller } from '../../src/auth/aws/aws-caller.ts'
import { awsRequestText } from '../../src/auth/aws/aws-request.ts'
import { matchesAws, type AwsMatch } from '../../src/auth/aws/aws-match.ts'
import { createAwsSignIn } from '../../src/auth/aws/aws-sign-in.ts'
import { trustedUid, type Uid } from '../../src/base/uid.ts'
import { amzDate, awsToken, signedRequest, startAwsSts, type AccessKey, type ToSign } from '../support/parts/sign-in/aws-sts.ts'
import { failure, signal, testClock, testFetch } from './parts.ts'

const platform = 'https://issuer.example'
const uid = trustedUid(`${'a'.repeat(40)}/${'b'.repeat(16)}`)
const other = trustedUid(`${'a'.repeat(40)}/${'c'.repeat(16)}`)
const mismatch = '7: the token does not match the identity'

const account = '123456789012'
const alice: AccessKey = { id: 'AKIAALICE', secret: 'alice-secret', arn: `arn:aws:iam::${account}:user/Alice`, userId: 'AIDAALICE', account }
const role: AccessKey = {
  id: 'ASIAROLE',
  secret: 'role-secret',
  sessionToken: 'session/token+==',
  arn: `arn:aws:sts::${account}:assumed-role/deploy/i-05a6`,
  userId: 'AROADEPLOY:i-05a6',
  account,
}

const clock = testClock()
const sts = await startAwsSts(() => clock.now())
afterAll(() => sts.stop())
beforeEach(() => {
  sts.asked.length = 0
  sts.broken = undefined
  sts.keys.clear()
  for (const key of [alice, role]) sts.keys.set(key.id, key)
})

const matchAlice: AwsMatch = { account, arn: alice.arn, userId: alice.userId }

function ground({ timeoutMs = 5000, hosts = ['sts.amazonaws.com'] } = {}) {
  const identities = new Map<Uid, AwsMatch>([[uid, matchAlice]])
  const looked: Uid[] = []
  const signIn = createAwsSignIn({
    hosts,
    endpoint: sts.url,
    audiences: [platform, `${platform}/`],
    prefixes: ['taproot', 'acme'],
    fetch: testFetch({ timeoutMs }),
    clock,
    identityOf(asked) {
      looked.push(asked)
      const match = identities.get(asked)
      return match === undefined ? undefined : { uid: asked, createTimeMs: 1, relationship: { kind: 'aws', match } }
    },
  })
  return { identities, looked, signIn, ask: (text: string, identity: string = uid) => signIn(text, identity, signal) }
}

const headers: ToSign['headers'] = [
  ['Host', 'sts.amazonaws.com'],
  ['Taproot-Audience', platform],
  ['Taproot-Identity', uid],
]
const signed = (input: Partial<ToSign> = {}, key = alice): string => signedRequest(key, { headers, date: new Date(clock.now()), ...input })
const replaced = (name: string, value: string): ToSign['headers'] => headers.map(([known, old]) => [known, known === name ? value : old])
const at = (offsetSeconds: number): string => signed({ date: new Date(clock.now() + offsetSeconds * 1000) })

describe('a signed AWS request', () => {
  test('a signed AWS request from a public AWS client, in standard or URL-safe base64, signs in as the caller that AWS names', async () => {
    const { ask } = ground()
    const token = awsToken(alice, { audience: platform, identity: uid, date: new Date(clock.now()) })
    const forms = [token, `${token}==`, Buffer.from(token, 'base64url').toString('base64')]
    for (const form of forms) {
      expect(await ask(awsRequestText(form) ?? '')).toEqual({
        identityUid: uid,
        createTimeMs: 1,
        operator: false,
        act: { issuer: 'https://sts.amazonaws.com', subject: alice.arn, audience: platform, awsAccount: alice.account },
        restrictions: {},
      })
    }
    expect(sts.asked.map(({ host }) => host)).toEqual(forms.map(() => 'sts.amazonaws.com'))
    // Unsigned headers are not sent to AWS.
    expect(sts.asked[0]?.headers['user-agent']).toBeUndefined()
  })

  test.each<[string, () => string]>([
    ['the answer as XML', () => signed()],
    ['lines that end with LF', () => signed().replaceAll('\r\n', '\n')],
    ['runs of spaces in what is signed', () => signed({ headers: replaced('Taproot-Audience', `  ${platform}  `) })],
    ['the slashed form of the audience', () => signed({ headers: replaced('Taproot-Audience', `${platform}/`) })],
    ['the binding headers of the API family', () => signed({ headers: headers.map(([name, value]) => [name.replace('Taproot', 'Acme'), value]) })],
    ['a signed content length and user agent', () => signed({ headers: [...headers, ['Content-Length', '0'], ['User-Agent', 'x/1 (y;  z)']] })],
    ['unsigned headers about the connection', () => signed().replace('\r\n', '\r\nConnection: close\r\nExpect: 100-continue\r\n')],
    ['15 minutes of age', () => at(-15 * 60)],
    ['5 minutes ahead', () => at(5 * 60)],
  ])('a signed AWS request is accepted with %s', async (_name, text) => {
    const { ask } = ground()
    expect(await failure(ask(text()))).toBe('no failure')
    expect(sts.asked.map(({ accepted }) => accepted)).toEqual([true])
  })

  test('a signed AWS request signed with temporary credentials is accepted', async () => {
    const { ask, identities } = ground()
    identities.set(uid, { account, arnPattern: 'arn:aws:sts::123456789012:assumed-role/deploy/.*', userIdPattern: '^AROADEPLOY:.*$' })
    expect((await ask(signed({}, role))).act.subject).toBe(role.arn)
  })

  test('a signed AWS request may be used again while AWS accepts it, by design: it is bound to one identity of one platform', async () => {
    const { ask } = ground()
    const text = signed()
    for (let round = 0; round < 2; round++) expect(await failure(ask(text))).toBe('no failure')
    expect(sts.asked).toHaveLength(2)
    clock.advance(15 * 60_000 + 1000)
    expect(await failure(ask(text))).toBe('7: verifying token: the AWS request is older than 15 minutes')
  })

  const unsigned = /must cover host, x-amz-date and both binding headers/
  const malformed = /^7: verifying token: the Authorization of the AWS request must be AWS4-HMAC-SHA256/
  const twice = /must not have a header twice/
  const withAuthorization = (change: (text: string) => string): string => signed().replace(/(?<=Authorization: ).*(?=\r\n)/, change)
  test.each<[string, () => string, RegExp]>([
    ['another method', () => signed({ method: 'GET' }), /method of the AWS request must be POST/],
    ['the method in small letters', () => signed().replace('POST', 'post'), /method of the AWS request must be POST/],
    ['another action', () => signed({ target: '/?Action=GetSessionToken&Version=2011-06-15' }), /must be for/],
    ['another version', () => signed({ target: '/?Action=GetCallerIdentity&Version=2012-06-15' }), /must be for/],
    ['an additional query parameter', () => signed({ target: '/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Expires=9' }), /must be for/],
    ['another path', () => signed({ target: '/x?Action=GetCallerIdentity&Version=2011-06-15' }), /must be for/],
    ['an absolute URL as its target', () => signed().replace('/?', 'http://sts.amazonaws.com/?'), /must be for/],
    ['HTTP/1.0', () => signed().replace('HTTP/1.1', 'HTTP/1.0'), /HTTP\/1\.1 request line/],
    ['a body', () => signed({ body: 'Action=AssumeRole' }), /must not have a body/],
    ['a body and its length', () => signed({ headers: [...headers, ['Content-Length', '3']], body: 'abc' }), /must not have a body/],
    ['a length without a body', () => signed({ headers: [...headers, ['Content-Length', '3']] }), /must not have a body/],
    ['headers without the empty line at their end', () => signed().trimEnd(), /headers of the AWS request must end with an empty line/],
    ['no host', () => signed().replace(/Host: .*\r\n/, ''), /host of the AWS request is not configured/],
    ['a host that is not configured', () => signed({ headers: replaced('Host', 'sts.eu-west-1.amazonaws.com') }), /host of the AWS request/],
    ['a host that resembles a configured one', () => signed({ headers: replaced('Host', 'sts.amazonaws.com.evil.example') }), /host of the AWS request/],
    ['the host with a port', () => signed({ headers: replaced('Host', 'sts.amazonaws.com:443') }), /host of the AWS request/],
    ['the host twice', () => signed().replace('\r\n', '\r\nhost: evil.example\r\n'), twice],
    ['Authorization twice', () => signed().replace('\r\n', '\r\nauthorization: x\r\n'), twice],
    ['X-Amz-Date twice', () => signed().replace('\r\n', `\r\nX-AMZ-DATE: ${amzDate(new Date(clock.now()))}\r\n`), twice],
    ['the audience twice', () => signed().replace('\r\n', '\r\nTaproot-Audience: https://evil.example\r\n'), twice],
    ['the identity twice', () => signed().replace('\r\n', `\r\nTaproot-Identity: ${other}\r\n`), twice],
    ['the audience of two families', () => signed({ headers: [...headers, ['Acme-Audience', platform]] }), twice],
    ['a header over two lines', () => signed().replace('Host: ', 'X: 1\r\n Host: '), /a line that is not a header/],
    ['a space before the colon', () => signed().replace('Host:', 'Host :'), /a line that is not a header/],
    ['a carriage return without a line feed', () => signed().replace('Host: ', 'X: 1\rHost: '), /a line that is not a header/],
    ['NUL', () => signed().replace('Host: ', 'X: \0\r\nHost: '), /printable ASCII/],
    ['bytes that are not ASCII', () => signed({ headers: replaced('Taproot-Audience', `${platform}\u00a0`) }), /printable ASCII/],
    ['51 headers', () => signed().replace('\r\n', `\r\n${Array.from({ length: 47 }, (_, index) => `X-${index}: 1\r\n`).join('')}`), /more than 50 headers/],
    ['no Authorization', () => signed().replace(/Authorization: .*\r\n/, ''), malformed],
    ['another algorithm', () => withAuthorization((text) => text.replace('AWS4-HMAC-SHA256', 'AWS4-HMAC-SHA1')), malformed],
    ['another service', () => withAuthorization((text) => text.replace('/sts/', '/s3/')), malformed],
    ['no SignedHeaders', () => withAuthorization((text) => text.replace(/ SignedHeaders=[^,]*,/, '')), malformed],
    ['SignedHeaders twice', () => withAuthorization((text) => `${text}, SignedHeaders=host`), malformed],
    ['SignedHeaders twice, in two spellings', () => withAuthorization((text) => `${text}, signedheaders=host`), malformed],
    [
      'Credential twice',
      () => withAuthorization((text) => text.replace(' Signature', ' Credential=x/20260115/us-east-1/sts/aws4_request, Signature')),
      malformed,
    ],
    ['an additional component of Authorization', () => withAuthorization((text) => `${text}, X=1`), malformed],
    ['no signature', () => withAuthorization((text) => text.replace(/Signature=[0-9a-f]+$/, 'Signature=')), malformed],
    ...['host', 'x-amz-date', 'taproot-audience', 'taproot-identity'].map((name): [string, () => string, RegExp] => [
      `${name} unsigned`,
      () => signed({ signed: ['host', 'x-amz-date', 'taproot-audience', 'taproot-identity'].filter((known) => known !== name) }),
      unsigned,
    ]),
    ['binding headers that were added after a request for another purpose was signed', () => signed({ signed: ['host', 'x-amz-date'] }), unsigned],
    ['no audience', () => signed({ headers: headers.filter(([name]) => name !== 'Taproot-Audience') }), /must have the headers/],
    ['no identity', () => signed({ headers: headers.filter(([name]) => name !== 'Taproot-Identity') }), /must have the headers/],
    ['another audience', () => signed({ headers: replaced('Taproot-Audience', 'https://evil.example') }), /audience of the AWS request is not this platform/],
    ['two audiences in one header', () => signed({ headers: replaced('Taproot-Audience', `${platform}, x`) }), /audience of the AWS request/],
    ['the audience with a tab', () => signed({ headers: replaced('Taproot-Audience', `${platform}\tx`) }), /audience of the AWS request/],
    ['another identity', () => signed({ headers: replaced('Taproot-Identity', other) }), /for another identity/],
    ['no date', () => signed().replace(/X-Amz-Date: .*\r\n/, ''), /X-Amz-Date of the AWS request must be a time/],
    ['a date in another form', () => signed().replace(/(?<=X-Amz-Date: ).*/, new Date(clock.now()).toISOString()), /must be a time/],
    ['an invalid day', () => signed().replace(/(?<=X-Amz-Date: )\d{8}/, '20260230'), /must be a time/],
    ['an invalid hour', () => signed().replace(/(?<=X-Amz-Date: \d{8}T)\d\d/, '25'), /must be a time/],
    ['a second more than 15 minutes', () => at(-15 * 60 - 1), /older than 15 minutes/],
    ['a second more than 5 minutes ahead', () => at(5 * 60 + 1), /more than 5 minutes ahead/],
    ['a signed transfer encoding', () => signed({ headers: [...headers, ['Transfer-Encoding', 'chunked']] }), /must not cover headers about the connection/],
    ['a signed connection header', () => signed({ headers: [...headers, ['Connection', 'close']] }), /must not cover headers about the connection/],
  ])('a signed AWS request is refused with %s, without a call to AWS or a look-up of the identity', async (_name, text, expected) => {
    const { ask, looked } = ground()
    const message = await failure(ask(text()))
    expect(message).toMatch(/^7: verifying token: /)
    expect(message).toMatch(expected)
    expect(sts.asked).toEqual([])
    expect(looked).toEqual([])
  })

  test('a signed AWS request is refused if it does not name the identity', async () => {
    const { signIn } = ground()
    for (const identity of ['', undefined]) expect(await failure(signIn(signed(), identity, signal))).toMatch(/^3: Invalid argument: identity: /)
  })

  test('a signed AWS request is refused if no AWS host is configured', async () => {
    expect(await failure(ground({ hosts: [] }).ask(signed()))).toMatch(/host of the AWS request/)
  })

  test.each<[string, () => string]>([
    ['a signature of another key', () => signed({}, { ...alice, secret: 'another' })],
    ['a key that AWS does not know', () => signed({}, { ...alice, id: 'AKIAMALLORY' })],
    ['an identity that was inserted after signing', () => signed({ headers: replaced('Taproot-Identity', other) }).replaceAll(other, uid)],
    [
      'an audience that was inserted after signing',
      () => signed({ headers: replaced('Taproot-Audience', 'https://evil.example') }).replaceAll('https://evil.example', platform),
    ],
    ['temporary credentials without their session token', () => signed({}, { ...alice, id: role.id, secret: role.secret })],
  ])('a signed AWS request with %s is refused by AWS, without a look-up of the identity', async (_name, text) => {
    const { ask, looked } = ground()
    expect(await failure(ask(text()))).toBe('7: verifying token: AWS does not accept the request')
    expect(sts.asked.map(({ accepted }) => accepted)).toEqual([false])
    expect(looked).toEqual([])
  })

  test.each<[string, typeof sts.broken, RegExp]>([
    ['is down', { status: 503 }, /^14: verifying token: AWS is unreachable; try again$/],
    ['limits the rate of requests', { status: 429 }, /^14: /],
    ['does not answer', 'silent', /^14: /],
    ['redirects', { status: 302, headers: { location: 'http://127.0.0.1:1/' } }, /^7: verifying token: AWS returned an invalid response$/],
    ['answers with HTML', { status: 200, body: '<html></html>' }, /^7: verifying token: AWS returned an invalid response$/],
    ['answers with an empty body', { status: 200 }, /^7: verifying token: AWS returned an invalid response$/],
    ['answers with more than 64 KiB', { status: 200, body: ' '.repeat(70_000) }, /^7: verifying token: AWS returned an invalid response$/],
  ])('a signed AWS request gets an error if AWS %s', async (_name, broken, expected) => {
    sts.broken = broken
    expect(await failure(ground({ timeoutMs: 300 }).ask(signed()))).toMatch(expected)
  })

  test('a signed AWS request causes at most about a hundred concurrent calls to AWS', async () => {
    sts.broken = 'silent'
    const { ask } = ground({ timeoutMs: 1500 })
    const answers = await Promise.all(Array.from({ length: 110 }, () => failure(ask(signed()))))
    expect(answers.filter((answer) => answer === '14: verifying token: too many AWS requests at once; try again')).toHaveLength(10)
    sts.broken = undefined
    expect(await failure(ask(signed()))).toBe('no failure')
  })

  test('a signed request gets one answer if the identity is unknown, its uid is malformed, or it expects another caller', async () => {
    const { ask, identities } = ground()
    identities.set(other, { account, arn: role.arn, userId: role.userId })
    for (const identity of [other, trustedUid('d'.repeat(40)), 'nonsense']) {
      expect(await failure(ask(signed({ headers: replaced('Taproot-Identity', identity) }), identity))).toBe(mismatch)
    }
    expect(sts.asked.map(({ accepted }) => accepted)).toEqual([true, true, true])
  })
})

describe('the rule of an AWS identity for its caller', () => {
  const caller = { arn: alice.arn, userId: alice.userId, account }
  test.each<[string, AwsMatch, boolean]>([
    ['with the exact account, ARN and user id', matchAlice, true],
    ['with patterns that match', { account, arnPattern: 'arn:aws:iam::\\d+:user/.*', userIdPattern: 'AIDA[A-Z]+' }, true],
    ['with another account', { ...matchAlice, account: '999999999999' }, false],
    ['with another ARN', { ...matchAlice, arn: `${alice.arn}x` }, false],
    ['with another user id', { ...matchAlice, userId: 'AIDA' }, false],
    ['with an ARN pattern that matches only a part', { account, arnPattern: 'user/Alice', userIdPattern: '.*' }, false],
    ['with a user id pattern that matches only a part', { account, arnPattern: '.*', userIdPattern: 'AIDA' }, false],
    ['with a pattern that does not compile', { account, arnPattern: '(', userIdPattern: '.*' }, false],
    ['without an ARN', { account, userId: alice.userId }, false],
    ['without a user id', { account, arn: alice.arn }, false],
    ['with an account alone', { account }, false],
  ])('the rule of an AWS identity for its caller is checked against account, ARN and user id: %s', (_name, match, isMatch) => {
    expect(matchesAws(match, caller)).toBe(isMatch)
  })
})

describe("AWS's answer", () => {
  const xml = (inner: string): string =>
    `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>${inner}</GetCallerIdentityResult></GetCallerIdentityResponse>`
  const three = `<Arn>${alice.arn}</Arn><UserId>${alice.userId}</UserId><Account>${account}</Account>`
  const json = (result: unknown): string => JSON.stringify({ GetCallerIdentityResponse: { GetCallerIdentityResult: result } })
  const caller = { arn: alice.arn, userId: alice.userId, account }

  test.each([
    ['as XML', xml(three), caller],
    [
      'as XML in another order, with a declaration',
      `<?xml version="1.0"?>\n${xml(` <Account>${account}</Account><Arn>arn:aws:iam::${account}:user/a&amp;b</Arn> <UserId>x</UserId>`)}`,
      { arn: `arn:aws:iam::${account}:user/a&b`, userId: 'x', account },
    ],
    ['as JSON', json({ Arn: alice.arn, UserId: alice.userId, Account: account }), caller],
    ['of another partition', xml(three.replace('arn:aws:', 'arn:aws-us-gov:')), { ...caller, arn: alice.arn.replace('arn:aws:', 'arn:aws-us-gov:') }],
  ])("AWS's answer with %s is accepted", (_name, body, expected) => {
    expect(parseAwsCaller(Buffer.from(body))).toEqual(expected)
  })

  test.each([
    ['no body', ''],
    ['an error document', '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error/></ErrorResponse>'],
    ['another namespace', xml(three).replace('sts.amazonaws.com', 'evil.example')],
    ['an element twice', xml(`${three}<Arn>${role.arn}</Arn>`)],
    ['an element twice and one missing', xml(`<Arn>${role.arn}</Arn><Arn>${alice.arn}</Arn><Account>${account}</Account>`)],
    ['an element missing', xml(three.replace(/<UserId>.*<\/UserId>/, ''))],
    ['tags that do not match', xml(three.replace('</Arn>', '</Account>'))],
    ['a comment', xml(three.replace('<Arn>', '<!-- --><Arn>'))],
    ['CDATA', xml(three.replace(alice.userId, '<![CDATA[x]]>'))],
    ['an unknown entity', xml(three.replace(alice.userId, '&x;'))],
    ['a document type', `<!DOCTYPE x [<!ENTITY x "y">]>${xml(three)}`],
    ['text after the document', `${xml(three)}<x/>`],
    ['an ARN of another account', xml(three.replace(`::${account}`, '::999999999999'))],
    ['an ARN of another service', xml(three.replace(':iam:', ':s3:'))],
    ['an invalid account', xml(three.replaceAll(account, '1234'))],
    ['an empty user id', xml(three.replace(alice.userId, ''))],
    ['JSON with numbers', json({ Arn: alice.arn, UserId: alice.userId, Account: Number(account) })],
    ['JSON without a result', '{}'],
    ['JSON null', 'null'],
    ['truncated JSON', '{"GetCallerIdentityResponse":'],
  ])("AWS's answer with %s is refused", (_name, body) => {
    expect(parseAwsCaller(Buffer.from(body))).toBeUndefined()
  })

  test("AWS's answer that is not valid UTF-8 is refused", () => {
    expect(parseAwsCaller(Buffer.from([0xff, 0xfe]))).toBeUndefined()
  })
})
