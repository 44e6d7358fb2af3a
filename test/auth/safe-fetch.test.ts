import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo, LookupFunction } from 'node:net'
import { describe, expect, onTestFinished, test } from 'vitest'
import { isPublicAddress } from '../../src/auth/safe-address.ts'
import { createNetworks } from '../../src/base/client-address.ts'
import { selfSigned } from './certificate.ts'
import { failure, listen, signal, testFetch } from './parts.ts'

const refused = [
  '127.0.0.1', '127.255.255.254', '0.0.0.0', '10.1.2.3', '172.16.0.1', '172.31.255.255', '192.168.1.1', '169.254.169.254', '100.64.0.1', '100.127.255.255',
  '192.0.0.8', '192.0.2.1', '198.18.0.1', '203.0.113.9', '224.0.0.1', '239.255.255.255', '240.0.0.1', '255.255.255.255',
  '::', '::1', '::ffff:127.0.0.1', '::ffff:10.0.0.1', '::ffff:a9fe:a9fe', '::127.0.0.1', '64:ff9b::7f00:1', '2002:7f00:1::', '2001::1', 'fc00::1', 'fd12::1', 'fe80::1', 'fe80::1%eth0', 'ff02::1',
  '::ffff:0:127.0.0.1', '::ffff:0:a00:1', '::ffff:0:0:1', '::1:0:0', '1::1', '100::1', '200::1', '4000::1', '8000::1', '64:ff9b:1::7f00:1', '64:ff9b::8.8.8.8', '2002:808:808::',
  '168.63.129.16', '100.100.100.200', '192.0.0.192', 'fd00:ec2::254', '::ffff:168.63.129.16',
  'localhost', '', '127.1', '0x7f000001',
] // prettier-ignore

test.each(refused)('%s is not a public address', (address) => {
  expect(isPublicAddress(address)).toBe(false)
})

test.each(['1.1.1.1', '8.8.8.8', '172.15.0.1', '172.32.0.1', '100.63.0.1', '2606:4700::1111', '::ffff:8.8.8.8'])('%s is a public address', (address) => {
  expect(isPublicAddress(address)).toBe(true)
})

test.each([
  'metadata.google.internal',
  'METADATA.google.internal.',
  'metadata.goog',
  'metadata',
  'instance-data',
  'instance-data.ec2.internal',
  'metadata.tencentyun.com',
])('the metadata host %s is refused, whatever address its name has', async (host) => {
  const lookup: LookupFunction = (_host, options, callback) =>
    options.all === true ? callback(null, [{ address: '8.8.8.8', family: 4 }]) : callback(null, '8.8.8.8', 4)
  expect(await failure(testFetch({ lookup, timeoutMs: 500 }).json({ url: `https://${host}/` }, signal))).toBe('refused_address')
})

describe('a fetch of a URL given by a tenant', () => {
  test.each([
    ['http://example.com/', 'refused_url'],
    ['ftp://example.com/', 'refused_url'],
    ['file:///etc/passwd', 'refused_url'],
    ['https://user:pass@example.com/', 'refused_url'],
    ['nonsense', 'refused_url'],
    ['https://127.0.0.1/', 'refused_address'],
    ['https://2130706433/', 'refused_address'],
    ['https://0x7f.1/', 'refused_address'],
    ['https://[::1]/', 'refused_address'],
    ['https://[::ffff:127.0.0.1]/', 'refused_address'],
    ['https://169.254.169.254/latest/meta-data', 'refused_address'],
    ['https://localhost/', 'refused_address'],
  ])('a fetch of a URL given by a tenant to %s fails as %s', async (url, reason) => {
    expect(await failure(testFetch().send({ url }, signal))).toBe(reason)
  })

  test('a fetch checks the address that it connects to, not an earlier look-up, and fails if any of several is private', async () => {
    const answers = [['8.8.8.8', '127.0.0.1'], ['::1'], ['10.0.0.1']]
    for (const addresses of answers) {
      const fetch = testFetch({
        lookup: (_name, _options, callback) =>
          callback(
            null,
            addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
          ),
      })
      expect(await failure(fetch.send({ url: 'https://issuer.example/' }, signal))).toBe('refused_address')
    }
  })

  test('a fetch of a URL given by a tenant reaches a private address and plain http if the configuration allows it', async () => {
    const origin = await listen((_request, response) => response.end('{"a":1}'))
    expect(await testFetch().json({ url: origin, allowPrivate: true }, signal)).toEqual({ a: 1 })
    expect(await failure(testFetch().json({ url: origin }, signal))).toBe('refused_url')
  })

  test('a fetch of a URL given by a tenant sends a request body and headers', async () => {
    const seen = Promise.withResolvers<unknown>()
    const origin = await listen((request, response) => {
      request.setEncoding('utf8').once('data', (body) => seen.resolve([request.method, request.headers['ce-id'], body]))
      request.once('end', () => response.end())
    })
    await testFetch().send({ url: origin, allowPrivate: true, method: 'POST', headers: { 'ce-id': '7' }, body: '{}' }, signal)
    expect(await seen.promise).toEqual(['POST', '7', '{}'])
  })

  test('a fetch of a URL given by a tenant does not follow redirects', async () => {
    const target: string[] = []
    const inside = await listen((request, response) => {
      target.push(request.url ?? '')
      response.end('{}')
    })
    const origin = await listen((_request, response) => response.writeHead(302, { location: inside }).end())
    expect(await failure(testFetch().json({ url: origin, allowPrivate: true }, signal))).toBe('redirect')
    expect(target).toEqual([])
  })

  test.each([404, 500, 503])('a fetch of a URL given by a tenant with status %i fails, and the body is not returned', async (status) => {
    const origin = await listen((_request, response) => response.writeHead(status).end('secret inside'))
    const error: unknown = await testFetch()
      .send({ url: origin, allowPrivate: true }, signal)
      .catch((reason: unknown) => reason)
    expect(error).toMatchObject({ reason: 'status', status, transient: status >= 500 })
    expect(String(error)).not.toContain('secret')
  })

  test('a fetch of a URL given by a tenant reads 64 KiB at most, whatever Content-Length says', async () => {
    const origin = await listen((request, response) => response.end('x'.repeat(Number(request.url?.slice(1)))))
    const fetch = testFetch()
    expect((await fetch.send({ url: `${origin}/65536`, allowPrivate: true }, signal)).body).toHaveLength(65536)
    expect(await failure(fetch.send({ url: `${origin}/65537`, allowPrivate: true }, signal))).toBe('too_large')
  })

  test.each(['before the headers', 'within the body'])('a fetch of a URL given by a tenant fails if the server hangs %s', async (moment) => {
    const origin = await listen((_request, response) => {
      if (moment === 'within the body') response.write('{')
    })
    expect(await failure(testFetch({ timeoutMs: 100 }).json({ url: origin, allowPrivate: true }, signal))).toBe('timeout')
  })

  test.each([
    ['trickles', (response: ServerResponse) => void setInterval(() => response.write('x'), 100)],
    ['hangs', () => undefined],
    ['is longer than the limit', (response: ServerResponse) => void response.write('x'.repeat(100_000))],
    ['breaks', (response: ServerResponse) => void response.write('x', () => response.destroy())],
  ])('a fetch of a URL given by a tenant that needs no body succeeds if the body %s, and closes the connection', async (_title, respond) => {
    const closed = Promise.withResolvers<void>()
    const origin = await listen((_request, response) => {
      response.on('close', closed.resolve).writeHead(202).flushHeaders()
      respond(response)
    })
    expect(await testFetch().send({ url: origin, allowPrivate: true, method: 'POST', body: '{}', discardBody: true }, signal)).toMatchObject({ status: 202 })
    await closed.promise
  })

  test('a fetch of a URL given by a tenant that needs no body uses the connection again after a short body', async () => {
    const sockets = new Set<unknown>()
    const origin = await listen((request, response) => {
      sockets.add(request.socket)
      response.end('thanks')
    })
    const fetch = testFetch()
    for (let number = 0; number < 9; number += 1) await fetch.send({ url: origin, allowPrivate: true, method: 'POST', body: '{}', discardBody: true }, signal)
    // The client waits for a turn of the event loop before it uses a connection again, and meanwhile opens another one.
    expect(sockets.size).toBeLessThanOrEqual(2)
  })

  test('a fetch of a URL given by a tenant that timed out before it connected is never sent', async () => {
    let paths = ''
    const origin = await listen((request, response) => {
      paths += request.url
      response.end('{}')
    })
    const { port } = new URL(origin)
    const lookedUp = Promise.withResolvers<() => void>()
    const fetch = testFetch({
      timeoutMs: 200,
      lookup: (_name, _options, callback) => lookedUp.resolve(() => callback(null, [{ address: '127.0.0.1', family: 4 }])),
    })
    const slow = failure(fetch.send({ url: `http://sink.example:${port}/slow`, allowPrivate: true }, signal))
    const answer = await lookedUp.promise
    expect(await slow).toBe('timeout')
    answer()
    await testFetch().send({ url: `${origin}/after`, allowPrivate: true }, signal)
    expect(paths).toBe('/after')
  })

  test("a fetch of a URL given by a tenant fails with the reason of the caller's abort signal", async () => {
    const gone = new AbortController()
    const origin = await listen(() => gone.abort(new Error('gone')))
    await expect(testFetch().json({ url: origin, allowPrivate: true }, gone.signal)).rejects.toThrow('gone')
  })

  test('a fetch of a URL given by a tenant distinguishes names that do not exist from servers that are down', async () => {
    const missing = testFetch({ lookup: (_name, _options, callback) => callback(Object.assign(new Error('no'), { code: 'ENOTFOUND' }), []) })
    expect(await failure(missing.json({ url: 'https://issuer.example' }, signal))).toBe('unresolved')
    expect(await failure(testFetch().json({ url: 'http://127.0.0.1:1/', allowPrivate: true }, signal))).toBe('unreachable')
  })

  test('a fetch of a URL given by a tenant trusts only the configured certificates over TLS, and checks addresses there too', async () => {
    const { certificate, key } = selfSigned('issuer.test')
    const server = createServer({ cert: certificate, key }, (_request, response) => response.end('{"tls":true}'))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    const { port } = server.address() as AddressInfo // a cast: the server listens on TCP
    const fetch = testFetch({ lookup: (_name, _options, callback) => callback(null, [{ address: '127.0.0.1', family: 4 }]) })
    for (const host of ['127.0.0.1', 'issuer.test']) {
      const url = `https://${host}:${String(port)}/`
      expect(await fetch.json({ url, allowPrivate: true, ca: certificate }, signal)).toEqual({ tls: true })
      expect(await failure(fetch.json({ url, allowPrivate: true }, signal))).toBe('untrusted')
      expect(await failure(fetch.json({ url, ca: certificate }, signal))).toBe('refused_address')
    }
    expect(await failure(fetch.json({ url: `https://other.test:${String(port)}/`, allowPrivate: true, ca: certificate }, signal))).toBe('untrusted')
  })

  test.each([
    ['a private address', 'https://10.0.0.1/', 'refused_address'],
    ['the metadata address', 'https://169.254.169.254/latest/meta-data', 'refused_address'],
    ['plain http', 'http://issuer.test/', 'refused_url'],
    ['a file', 'file:///etc/passwd', 'refused_url'],
    ['a URL with a password', 'https://user:pass@issuer.test/', 'refused_url'],
  ])('a download that is redirected to %s is refused', async (_, location, reason) => {
    const { certificate, key } = selfSigned('issuer.test')
    const server = createServer({ cert: certificate, key }, (_request, response) => response.writeHead(302, { location }).end())
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    const { port } = server.address() as AddressInfo // a cast: the server listens on TCP
    const fetch = testFetch({
      networks: createNetworks(['127.0.0.1/32']),
      lookup: (_name, _options, callback) => callback(null, [{ address: '127.0.0.1', family: 4 }]),
    })
    const target = { path: '/dev/null', maxBytes: 1000, maxRedirects: 5 }
    expect(await failure(fetch.download({ url: `https://issuer.test:${String(port)}/`, ca: certificate }, target, signal))).toBe(reason)
  })

  test('a fetch of a URL given by a tenant checks the certificate against the host name in the request, also if a header sets it', async () => {
    const { certificate, key } = selfSigned('sts.test')
    const server = createServer({ cert: certificate, key }, (request, response) => response.end(JSON.stringify(request.headers.host)))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    const { port } = server.address() as AddressInfo // a cast: the server listens on TCP
    const ask = (host: string): Promise<unknown> =>
      testFetch().json({ url: `https://127.0.0.1:${String(port)}/`, allowPrivate: true, ca: certificate, method: 'POST', headers: { host } }, signal)
    expect(await ask('sts.test')).toBe('sts.test')
    expect(await failure(ask('other.test'))).toBe('untrusted')
  })

  test('a fetch of a URL given by a tenant is not retried if the server has no TLS or a configured certificate is invalid', async () => {
    const plain = await listen((_request, response) => response.end('{}'))
    const url = plain.replace('http:', 'https:')
    for (const request of [{ url }, { url, ca: '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n' }]) {
      const error: unknown = await testFetch()
        .send({ ...request, allowPrivate: true }, signal)
        .catch((reason: unknown) => reason)
      expect(error).toMatchObject({ reason: 'untrusted', transient: false })
    }
  })

  test.each([
    ['ECONNREFUSED', 'unreachable', true],
    ['ECONNRESET', 'unreachable', true],
    ['EAI_AGAIN', 'unreachable', true],
    ['ERR_TLS_HANDSHAKE_TIMEOUT', 'unreachable', true],
    ['ENOTFOUND', 'unresolved', false],
    ['CERT_HAS_EXPIRED', 'untrusted', false],
    ['CERT_NOT_YET_VALID', 'untrusted', false],
    ['DEPTH_ZERO_SELF_SIGNED_CERT', 'untrusted', false],
    ['SELF_SIGNED_CERT_IN_CHAIN', 'untrusted', false],
    ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'untrusted', false],
    ['UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'untrusted', false],
    ['ERR_TLS_CERT_ALTNAME_INVALID', 'untrusted', false],
  ])('a fetch of a URL given by a tenant with the connection error %s fails as %s', async (code, errorReason, transient) => {
    const fetch = testFetch({ lookup: (_name, _options, callback) => callback(Object.assign(new Error('no'), { code }), []) })
    const error: unknown = await fetch.send({ url: 'https://issuer.example' }, signal).catch((reason: unknown) => reason)
    expect(error).toMatchObject({ reason: errorReason, transient })
  })
})
