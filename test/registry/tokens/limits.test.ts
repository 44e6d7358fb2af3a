import { connect } from 'node:net'
import { once } from 'node:events'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startTestServer } from '../../support/test-server.ts'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { bearer, publicName, RegistryWorld, type Tenant } from './registry-world.ts'

const clock = new TestClock()
let world: RegistryWorld
let mine: Tenant
let free: Tenant

beforeAll(async () => {
  const env = {
    TAPROOT_REGISTRY_PUBLIC_ORGANIZATION: publicName,
    TAPROOT_RATE_LIMIT_ENABLED: 'true',
    TAPROOT_RATE_LIMIT_REQUESTS_PER_SECOND: '1',
    TAPROOT_RATE_LIMIT_BURST: '20',
    TAPROOT_RATE_LIMIT_ADDRESS_REQUESTS_PER_SECOND: '1',
    TAPROOT_RATE_LIMIT_ADDRESS_BURST: '20',
  }
  world = new RegistryWorld(await startTestServer({ env, clock }))
  ;[mine, free] = [await world.tenant(), await world.publicTenant()]
})
afterAll(() => world.server.stop())

test('a principal with too many writes is asked to retry later; others are not', async () => {
  const busy = await world.member(mine.group, { role: 'registry.push' })
  const [statuses, refused] = await clock.hold(async () => [
    await Promise.all(Array.from({ length: 40 }, async () => (await world.upload(mine.path, busy.authorization)).status)),
    await world.upload(mine.path, busy.authorization),
  ])
  expect(new Set(statuses)).toEqual(new Set([202, 429]))
  expect(refused).toMatchObject({ status: 429, codes: ['TOOMANYREQUESTS'], headers: { 'retry-after': expect.stringMatching(/^\d+$/) as unknown } })
  expect(await world.list(mine.path, busy.authorization)).toMatchObject({ status: 200 })
  const calm = await world.member(mine.group, { role: 'registry.push' })
  expect(await world.upload(mine.path, calm.authorization)).toMatchObject({ status: 202 })
})

test('refused credentials count by address, without effect on other addresses', async () => {
  const [statuses, elsewhere] = await clock.hold(async () => [
    await Promise.all(Array.from({ length: 40 }, async (_, at) => (await world.requestToken([], bearer(`nonsense-${at}`))).status)),
    await world.ask({ path: '/token', authorization: bearer('nonsense'), from: '127.0.0.2' }),
  ])
  expect(new Set(statuses)).toEqual(new Set([401, 429]))
  expect(elsewhere).toMatchObject({ status: 401 })
  const calm = await world.member(mine.group, { role: 'registry.pull' })
  expect(await world.list(mine.path, calm.authorization)).toMatchObject({ status: 200 })
})

test('requests without a credential do not count as refused: every pull starts with one', async () => {
  const statuses = await Promise.all(Array.from({ length: 60 }, async () => (await world.list(free.path)).status))
  expect(new Set(statuses)).toEqual(new Set([200]))
  expect(await world.list(mine.path)).toMatchObject({ status: 401 })
})

test('the connection of a token request is closed if its form body never arrives', async () => {
  const socket = connect(world.server.config.registry.port, '127.0.0.1')
  let answer = ''
  socket.on('data', (chunk) => (answer += String(chunk)))
  socket.write('POST /token HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\ngrant_type=')
  await once(socket, 'close')
  expect(answer).toContain('408')
})

/** The audit lines of the registry host. */
function auditLines(): readonly unknown[] {
  return world.server.logs.filter(({ fields }) => fields['audit'] === true && String(fields['method']).startsWith('registry/'))
}

test('denials are in the audit log, with the identity; requests without a credential are not', async () => {
  const before = auditLines().length
  const member = await world.member(mine.group)
  expect(await world.list(mine.path, member.authorization)).toMatchObject({ status: 403 })
  const denied = { outcome: 'denied', method: 'registry/pull', identity: member.uid, name: mine.path, code: 7, reason: 'DENIED', remoteAddress: '127.0.0.1' }
  expect(auditLines().slice(before)).toMatchObject([{ fields: denied }])
  expect(await world.list(mine.path)).toMatchObject({ status: 401 })
  expect(auditLines()).toHaveLength(before + 1)
  expect(JSON.stringify(world.server.logs)).not.toContain(member.authorization.slice(7))
})

test('a refused credential in a form is in the audit log too', async () => {
  const before = auditLines().length
  const form = new URLSearchParams({ grant_type: 'password', username: '_token', password: 'wrong', scope: `repository:${mine.path}:pull` })
  const headers = { 'content-type': 'application/x-www-form-urlencoded' }
  expect(await world.ask({ method: 'POST', path: '/token', headers, body: form.toString() })).toMatchObject({ status: 401 })
  expect(auditLines().slice(before)).toMatchObject([{ fields: { outcome: 'denied', method: 'registry/token', code: 16, remoteAddress: '127.0.0.1' } }])
})
