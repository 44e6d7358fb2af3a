import type { JsonObject } from '@bufbuild/protobuf'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { freshName, makeOrganisation, ok, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'
import { sinkAuthority, startSink } from './sink.ts'

const subscriptions = 300
const changes = 200
const rounds = 3
const groupEvents = 'dev.taproot.api.iam.group.'
const roleEvents = 'dev.taproot.api.iam.roles.'

let server: TestServer
let folder: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'taproot-test-'))
  const caFile = join(folder, 'sinks.pem')
  await writeFile(caFile, sinkAuthority.certificate)
  const env = { TAPROOT_EVENTS_NETWORKS: '["127.0.0.0/8","::1"]', TAPROOT_EVENTS_CA_FILE: caFile, TAPROOT_RATE_LIMIT_ENABLED: 'false' }
  server = await startTestServer({ env })
})
afterAll(async () => {
  await server.stop()
  await rm(folder, { recursive: true, force: true })
})

async function make(rpc: string, request: JsonObject, { group: parent, token }: Organisation): Promise<string> {
  return String(ok(await server.rest.call(rpc, { parent, ...request }, { token }))['uid'])
}

const newGroup = (organisation: Organisation): Promise<string> => make('CreateGroup', { group: { name: freshName('team') } }, organisation)
const newRole = (organisation: Organisation): Promise<string> =>
  make('CreateRole', { role: { name: freshName('role'), capabilities: ['CAP_IAM_GROUPS_LIST'] } }, organisation)
const subscribe = (organisation: Organisation, sink: string, types: readonly string[]): Promise<string> =>
  make('CreateSubscription', { subscription: { sink, types: [...types] } }, organisation)

/** The processor time of some creates, in milliseconds. */
async function costOfCreates(organisation: Organisation): Promise<number> {
  const before = process.cpuUsage()
  for (let number = 0; number < changes; number += 1) await newGroup(organisation)
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}

test('subscriptions to other events add no cost to a change', async () => {
  const [subscribed, bare] = [await makeOrganisation(server), await makeOrganisation(server)]
  for (let number = 0; number < subscriptions; number += 1) await subscribe(subscribed, 'https://hooks.example.com/taproot', ['dev.taproot.registry.push.'])
  const ratios: number[] = []
  for (let round = 0; round <= rounds; round += 1) ratios.push((await costOfCreates(subscribed)) / (await costOfCreates(bare)))
  // The first round warms up. A look-up for each subscription would cost several times a change.
  expect(Math.min(...ratios.slice(1))).toBeLessThan(1.3)
})

test("a change of a subscription's types applies to later events", async () => {
  const [organisation, sink, witness] = [await makeOrganisation(server), await startSink(), await startSink()]
  for (const one of [sink, witness]) onTestFinished(() => one.close())
  const uid = await subscribe(organisation, sink.url, [groupEvents])
  await subscribe(organisation, witness.url, [roleEvents])
  const group = await newGroup(organisation)
  const earlier = await newRole(organisation)
  await witness.until(() => witness.about(earlier).length > 0)
  await sink.until(() => sink.about(group).length > 0)
  ok(await server.rest.call('UpdateSubscription', { subscription: { uid, types: [groupEvents, roleEvents] } }, { token: organisation.token }))
  const later = await newRole(organisation)
  await sink.until(() => sink.about(later).length > 0)
  expect(sink.received.map(({ headers }) => headers['ce-subject'])).toEqual([group, later])
})
