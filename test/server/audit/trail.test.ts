import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { takeCommandFolder } from '../../../src/server/audit/audited-command.ts'
import { createAuditTrail } from '../../../src/server/audit/audit-trail.ts'
import type { AuditEvent } from '../../../src/base/audit-line.ts'
import { freePorts } from '../../support/parts/free-port.ts'
import { freshName, makeMember, makeOrganisation, startTestServer, type Organisation, type TestServer } from '../../support/test-server.ts'
import { receiverTls, startJsonLines, startOtlp, startSyslog, type ReceivedEvent, type Receiver } from './receivers.ts'

const deadlineMs = 120_000

let directory: string
let server: TestServer
let org: Organisation
let receivers: readonly Receiver[]
const planted: string[] = []

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = performance.now() + deadlineMs; !(await condition());) {
    if (performance.now() > end) throw new Error('the condition does not come true')
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'taproot-trail-'))
  const [syslog = 0, https = 0, otlp = 0] = await freePorts(3)
  const caFile = join(directory, 'ca.pem')
  const tokenFile = join(directory, 'sink-token')
  await writeFile(caFile, receiverTls.certificate)
  await writeFile(tokenFile, 'sink-token')
  receivers = await Promise.all([startSyslog(syslog), startJsonLines(https), startOtlp(otlp)])
  const sinks = [
    { kind: 'log' },
    { kind: 'file', path: join(directory, 'audit.log') },
    { kind: 'syslog', address: `127.0.0.1:${syslog}`, caFile },
    { kind: 'https', url: `https://127.0.0.1:${https}/in`, caFile, tokenFile },
    { kind: 'otlp', url: `https://127.0.0.1:${otlp}/v1/logs`, caFile },
  ]
  server = await startTestServer({ dataDir: directory, env: { TAPROOT_AUDIT_SINKS: JSON.stringify(sinks) } })
  org = await makeOrganisation(server)
})

afterAll(async () => {
  await server.stop()
  for (const receiver of receivers) await receiver.close()
  await rm(directory, { recursive: true, force: true })
})

async function fileEvents(): Promise<ReceivedEvent[]> {
  const text = await readFile(join(directory, 'audit.log'), 'utf8')
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as ReceivedEvent)
}

function idOf({ id }: ReceivedEvent): unknown {
  return id
}

test('a change, a denial and a sign-in are one event each in every sink, and a read has no event', async () => {
  const { rest, grpc } = server
  const requestId = freshName('audited')
  const member = await makeMember(server, org.group, { role: 'viewer' })
  const secret = `planted-${freshName('client-secret')}`
  const idToken = await server.devIssuer.mintDevToken({ subject: 'person-1', audience: server.config.baseUrl })
  planted.push(org.token, member.token, secret, idToken, 'planted-bearer')
  const provider = {
    name: freshName('idp'),
    oidc: { issuer: 'https://idp.example.com', clientId: 'client', clientSecret: secret, additionalScopes: [] },
  }
  const calls = [
    () => rest.call('CreateGroup', { parent: org.group, group: { name: freshName('sub') } }, { token: org.token, requestId: `${requestId}-1` }),
    () => grpc.call('CreateGroup', { parent: org.group, group: { name: freshName('sub') } }, { token: org.token, requestId: `${requestId}-2` }),
    () => rest.call('DeleteGroup', { uid: org.group }, { token: member.token, requestId: `${requestId}-3` }),
    () => rest.call('ListGroups', {}, { token: 'planted-bearer', requestId: `${requestId}-4` }),
    () => rest.call('CreateIdentityProvider', { parent: org.group, identityProvider: provider }, { token: org.token, requestId: `${requestId}-5` }),
    () => rest.call('ListGroups', {}, { token: org.token, requestId: `${requestId}-read` }),
    () => grpc.call('ListGroups', {}, { token: org.token, requestId: `${requestId}-read` }),
    () => rest.call('Exchange', { aud: [server.config.baseUrl] }, { token: idToken, requestId: `${requestId}-6` }),
  ]
  for (const call of calls) await call()
  const wanted = [1, 2, 3, 4, 5, 6].map((number) => `${requestId}-${number}`)
  const mine = (events: readonly ReceivedEvent[]): ReceivedEvent[] => events.filter((event) => String(event['requestId']).startsWith(requestId))
  await until(async () => mine(await fileEvents()).length >= wanted.length)
  await until(() => receivers.every(({ received }) => mine(received).length >= wanted.length))
  const log = server.logs.filter(({ message }) => message === 'audit').map(({ fields }) => fields)
  const sinks = [log, await fileEvents(), ...receivers.map(({ received }) => received)]
  for (const events of sinks) expect(mine(events).map(({ requestId: id }) => id)).toEqual(wanted)
  for (const events of sinks.slice(1)) expect(mine(events).map(idOf)).toEqual(mine(log).map(idOf))
  const [first, , third, fourth] = mine(receivers[1]?.received ?? [])
  expect(first).toMatchObject({ outcome: 'done', capability: 'groups.create', kind: 'Group', root: org.group, identity: org.owner, transport: 'http' })
  expect(third).toMatchObject({ outcome: 'denied', code: 7, subject: org.group, group: org.group, root: org.group, identity: member.uid })
  expect(fourth).toMatchObject({ outcome: 'denied', code: 16 })
  expect(fourth).not.toHaveProperty('identity')
})

test('no sink and no spool contains a token or a secret', async () => {
  expect(planted.length).toBeGreaterThan(3)
  const texts = [JSON.stringify(server.logs), await readFile(join(directory, 'audit.log'), 'utf8'), ...receivers.flatMap(({ raw }) => raw)]
  const spools = join(directory, 'audit')
  const files = (await readdir(spools, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile())
  for (const { parentPath, name } of files) texts.push(await readFile(join(parentPath, name), 'utf8'))
  expect(files.length).toBeGreaterThan(0)
  for (const secret of planted) expect(texts.filter((text) => text.includes(secret.slice(-24)))).toEqual([])
})

test('metrics count the events of each sink', async () => {
  const metrics = await (await fetch(`http://127.0.0.1:${server.config.ops.port}/metrics`)).text()
  for (const sink of ['file', 'syslog', 'https', 'otlp'])
    expect(Number(new RegExp(`taproot_audit_events_total\\{sink="${sink}",outcome="delivered"\\} (\\d+)`).exec(metrics)?.[1])).toBeGreaterThan(5)
  expect(metrics).toMatch(/taproot_audit_events_total\{sink="https",outcome="dropped"\} 0/)
  expect(metrics).toMatch(/taproot_audit_oldest_waiting_seconds\{sink="syslog"\} 0/)
})

test('denials without a caller are limited and counted, without effect on other events', async () => {
  const events: AuditEvent[] = []
  let nowMs = 0
  let suppressed = 0
  const sink = { name: 'test', write: (event: AuditEvent) => void events.push(event), waitingBytes: 0, oldestMs: undefined, close: () => Promise.resolve() }
  const trail = createAuditTrail({
    sinks: [sink],
    clock: { now: () => nowMs },
    isGroup: () => false,
    anonymousPerMinute: 60,
    deniedPerMinute: 60,
    suppressed: () => (suppressed += 1),
  })
  const denied = { outcome: 'denied', method: 'm', transport: 'http' } as const
  for (let count = 0; count < 1_000; count++) trail.record(denied)
  expect([events.length, suppressed]).toEqual([60, 940])
  trail.record({ ...denied, identity: org.owner })
  expect(events.at(-1)).toMatchObject({ identity: org.owner, suppressed: 940 })
  nowMs = 1_000
  trail.record(denied)
  trail.record(denied)
  expect(events).toHaveLength(62)
  expect(events.at(-1)).not.toHaveProperty('suppressed')
  await trail.close()
  expect(events.at(-1)).toMatchObject({ method: 'audit/suppressed', suppressed: 1 })
})

test('commands that run at the same time have folders of their own, and a folder of a killed one is used again', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'taproot-commands-'))
  const first = await takeCommandFolder(dataDir)
  const second = await takeCommandFolder(dataDir)
  expect([first.name, second.name]).toEqual(['cli', 'cli-2'])
  first.release()
  const lock = JSON.stringify(join(dataDir, 'audit', 'cli', 'lock'))
  const script = `const lock = new (require('node:sqlite').DatabaseSync)(${lock}); lock.exec('BEGIN EXCLUSIVE'); console.log('held'); setInterval(() => lock, 1000)`
  const other = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'ignore'] })
  await once(other.stdout, 'data')
  const third = await takeCommandFolder(dataDir)
  expect(third.name).toBe('cli-3')
  const ended = once(other, 'exit')
  other.kill('SIGKILL')
  await ended
  const fourth = await takeCommandFolder(dataDir)
  expect(fourth.name).toBe('cli')
  for (const { release } of [second, third, fourth]) release()
  await rm(dataDir, { recursive: true })
})

test("an organisation's denials have a limit, and are counted for it alone", async () => {
  const events: AuditEvent[] = []
  let suppressed = 0
  const sink = { name: 'test', write: (event: AuditEvent) => void events.push(event), waitingBytes: 0, oldestMs: undefined, close: () => Promise.resolve() }
  const limits = { anonymousPerMinute: 60, deniedPerMinute: 100, suppressed: () => (suppressed += 1) }
  const trail = createAuditTrail({ sinks: [sink], clock: { now: () => 0 }, isGroup: () => false, ...limits })
  const denied = { outcome: 'denied', method: 'm', transport: 'http' } as const
  const [one, other] = ['a'.repeat(40), 'b'.repeat(40)]
  for (let count = 0; count < 1_000; count++) trail.record({ ...denied, identity: `${one}/${String(count % 7).repeat(16)}` })
  expect([events.length, suppressed]).toEqual([100, 900])
  trail.record({ ...denied, identity: other })
  trail.record(denied)
  expect(events).toHaveLength(102)
  for (const event of events.slice(100)) expect(event).not.toHaveProperty('suppressed')
  trail.record({ ...denied, outcome: 'done', identity: one })
  expect(events.at(-1)).toMatchObject({ outcome: 'done', suppressed: 900 })
  trail.record({ ...denied, identity: one })
  await trail.close()
  expect(events.at(-1)).toMatchObject({ method: 'audit/suppressed', root: one, suppressed: 1 })
})

test.each([
  [[{ kind: 'file' }], 'path is missing'],
  [[{ kind: 'https', url: 'http://siem.example.com' }], 'expected an https:// URL'],
  [[{ kind: 'otlp', url: 'http://user:pass@collector:4318' }], 'expected a URL without a user'],
  [[{ kind: 'log', path: '/x' }], 'path does not apply to the kind log'],
  [[{ kind: 'log' }, { kind: 'log' }], 'another sink has the same name'],
  [[{ kind: 'syslog', address: 'logs:6514', certFile: '/c' }], 'certFile and keyFile must both be set, or neither'],
])('the sinks %j are refused: %s', async (sinks, message) => {
  await expect(startTestServer({ env: { TAPROOT_AUDIT_SINKS: JSON.stringify(sinks) } })).rejects.toThrow(message)
})
