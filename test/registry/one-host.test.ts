import { connect } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startTestServer, type TestServer } from '../support/test-server.ts'

let server: TestServer

beforeAll(async () => {
  server = await startTestServer()
})

afterAll(() => server.stop())

test.each(['Host: registry.test\r\nHost: other.test\r\n', 'Host: registry.test\r\nhost: registry.test\r\n', ''])(
  'a request to the registry host without exactly one host name is refused: %j',
  async (hosts) => {
    const socket = connect(server.config.registry.port, '127.0.0.1')
    socket.write(`GET /healthz HTTP/1.1\r\n${hosts}Connection: close\r\n\r\n`)
    let text = ''
    for await (const chunk of socket) text += String(chunk)
    expect(text).toMatch(/^HTTP\/1\.1 400 /)
    expect(text).toContain('send exactly one Host header')
  },
)
