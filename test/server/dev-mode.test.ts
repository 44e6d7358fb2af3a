import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { decodeJwt } from 'jose'
import { expect, onTestFinished, test } from 'vitest'
import { startDemo } from '../../src/server/dev-mode.ts'
import { startTestServer, type TestServer } from '../support/test-server.ts'
import { TestClock } from '../conformance/spec/test-clock.ts'

const minuteMs = 60_000

async function tokenIn(server: TestServer, name: string): Promise<string> {
  return (await readFile(join(server.config.dataDir, name), 'utf8')).trim()
}

/** The host's status for a token, by default that of the registry host's file. */
async function registryStatus(server: TestServer, token?: string): Promise<number> {
  const { port, host } = server.config.registry
  const basic = Buffer.from(`_token:${token ?? (await tokenIn(server, 'registry-token'))}`).toString('base64')
  const response = await fetch(`http://127.0.0.1:${port}/token?service=${host}`, { headers: { authorization: `Basic ${basic}` } })
  await response.body?.cancel()
  return response.status
}

async function apiCode(server: TestServer): Promise<number> {
  return (await server.rest.call('ListGroups', {}, { token: await tokenIn(server, 'token') })).code
}

test('the tokens of a development server are valid at any time, also soon after the machine slept', async () => {
  const clock = new TestClock()
  const server = await startTestServer({ clock })
  onTestFinished(() => server.stop())
  const demo = await startDemo(server.running, server)
  onTestFinished(() => demo.stop())
  expect(await apiCode(server)).toBe(0)
  expect(await registryStatus(server)).toBe(200)
  const issued = { token: await tokenIn(server, 'token'), 'registry-token': await tokenIn(server, 'registry-token') }
  // Timers do not run while a machine sleeps, so the time of the renewal passes unnoticed.
  clock.advance(8 * 60 * minuteMs)
  expect(await registryStatus(server, issued['registry-token']), 'a night is longer than its life').toBe(401)
  await expect.poll(() => registryStatus(server)).toBe(200)
  await expect.poll(() => apiCode(server)).toBe(0)
  for (const name of ['token', 'registry-token'] as const) {
    const token = await tokenIn(server, name)
    expect(token).not.toBe(issued[name])
    expect(decodeJwt(token)).toMatchObject({ aud: decodeJwt(issued[name]).aud, sub: demo.owner })
    expect((await stat(join(server.config.dataDir, name))).mode & 0o777).toBe(0o600)
  }
  // While the machine is awake, tokens are renewed long before their end.
  const before = await tokenIn(server, 'registry-token')
  clock.advance(31 * minuteMs)
  await expect.poll(() => tokenIn(server, 'registry-token')).not.toBe(before)
  expect(await registryStatus(server)).toBe(200)
})
