import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import packageJson from '../../package.json' with { type: 'json' }
import { digestOf } from '../../src/base/digest.ts'
import { trustedUid } from '../../src/base/uid.ts'
import { measuredStore } from '../../src/server/telemetry/process-metrics.ts'
import { createEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import { createSqliteStore } from '../../src/store/sqlite/sqlite-store.ts'
import { StoreError } from '../../src/store/store.ts'
import { MetricsRegistry } from '../../src/transport/hot-metrics.ts'
import { TestClock } from '../conformance/spec/test-clock.ts'
import { failNext } from '../support/fail-next.ts'
import { shareEtcd } from '../support/parts/etcd.ts'
import { describeWithParts } from '../support/parts/require-part.ts'
import { freshName, makeOrganisation, ok, startTestServer, type Organisation, type TestServer } from '../support/test-server.ts'

const day = 24 * 3_600_000
const clock = new TestClock()
let server: TestServer
let organisation: Organisation

beforeAll(async () => {
  server = await startTestServer({
    env: { TAPROOT_RATE_LIMIT_ENABLED: 'true', TAPROOT_RATE_LIMIT_REQUESTS_PER_SECOND: '1', TAPROOT_RATE_LIMIT_BURST: '50' },
    clock,
  })
  organisation = await makeOrganisation(server)
})
afterAll(() => server.stop())

type Values = Readonly<Record<string, number>>

/** Returns the values of a metric, by labels. */
async function valuesOf(metric: string): Promise<Values> {
  const text = await (await fetch(`http://127.0.0.1:${server.config.ops.port}/metrics`)).text()
  return Object.fromEntries([...text.matchAll(new RegExp(`^${metric}(?:\\{(.*)\\})? (\\S+)$`, 'gm'))].map(([, labels = '', value]) => [labels, Number(value)]))
}

/** Runs `work` and returns by how much the values of a counter grew, without those that did not. */
async function growth(metric: string, work: () => Promise<unknown>): Promise<Values> {
  const before = await valuesOf(metric)
  await work()
  const grown = Object.entries(await valuesOf(metric)).map(([labels, value]) => [labels, value - (before[labels] ?? 0)] as const)
  return Object.fromEntries(grown.filter(([, more]) => more !== 0))
}

test('taproot_build_info names the versions of the program, of Node and of the format of the store', async () => {
  expect(await valuesOf('taproot_build_info')).toEqual({ [`version="${packageJson.version}",node_version="${process.version}",store_format="1"`]: 1 })
})

test('a change is a transaction of the store, and a read of the embedded store is not measured', async () => {
  const { group, token } = organisation
  const written = await growth('taproot_store_duration_seconds_count', async () =>
    ok(await server.rest.call('CreateGroup', { parent: group, group: { name: freshName('group') } }, { token })),
  )
  expect(written).toMatchObject({ 'operation="transact",outcome="ok"': 1 })
  const read = await growth('taproot_store_duration_seconds_bucket', async () => ok(await server.rest.call('GetGroup', { uid: group }, { token })))
  expect(Object.keys(read).filter((labels) => labels.includes('operation="revision"'))).toEqual([])
})

describeWithParts(['etcd'], 'on etcd', () => {
  test('a read waits for a revision, which is measured', async () => {
    const registry = new MetricsRegistry()
    const { log } = server.running.engine.services
    const { endpoints, prefix } = await shareEtcd()
    const store = measuredStore(registry, createEtcdStore({ endpoints, prefix: `${prefix}/`, log }), { system: 'etcd' })
    onTestFinished(() => store.close())
    await store.revision(AbortSignal.timeout(60_000))
    expect(await registry.metrics()).toContain('taproot_store_duration_seconds_count{operation="revision",outcome="ok"} 1\n')
  })
})

test('an upload begins and ends at the upstream', async () => {
  const { group, owner, token } = organisation
  const { host } = server.config.registry
  const name = `${String(ok(await server.rest.call('GetGroup', { uid: group }, { token }))['name'])}/app`
  const act = { issuer: server.devIssuer.issuer, subject: 'owner', audience: host }
  const minted = await server.running.signIn.tokens.mint({ identityUid: trustedUid(owner), audiences: [host], act, restrictions: {} })
  const basic = { authorization: `Basic ${Buffer.from(`_token:${minted.token}`).toString('base64')}` }
  const signedIn = await fetch(`http://${host}/token?service=${host}&scope=repository:${name}:pull,push`, { headers: basic })
  const headers = { authorization: `Bearer ${String(((await signedIn.json()) as JsonObject)['token'])}` } // a cast of the answer, an object
  const content = Buffer.from('content')
  const called = await growth('taproot_upstream_duration_seconds_count', async () => {
    const started = await fetch(`http://${host}/v2/${name}/blobs/uploads/`, { method: 'POST', headers })
    const place = new URL(started.headers.get('location') ?? '', `http://${host}`)
    place.searchParams.set('digest', digestOf(content))
    expect((await fetch(place, { method: 'PUT', headers, body: content })).status).toBe(201)
    expect((await fetch(`http://${host}/v2/${name}/blobs/${digestOf(Buffer.from('other'))}`, { headers })).status).toBe(404)
  })
  expect(called).toMatchObject({ 'operation="startUpload",outcome="ok"': 1, 'operation="finishUpload",outcome="ok"': 1 })
})

test('a call to the store that fails counts with the kind of its error', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-metrics-'))
  onTestFinished(() => rm(directory, { recursive: true }))
  const registry = new MetricsRegistry()
  const store = measuredStore(registry, createSqliteStore({ path: join(directory, 'store.db'), log: server.running.engine.services.log }), { system: 'sqlite' })
  await expect(store.get('a', AbortSignal.abort(new Error('left')))).rejects.toThrow('left')
  await store.close()
  await expect(store.get('a', AbortSignal.timeout(60_000))).rejects.toMatchObject({ kind: 'closed' })
  const text = await registry.metrics()
  for (const outcome of ['aborted', 'closed']) expect(text).toContain(`taproot_store_duration_seconds_count{operation="get",outcome="${outcome}"} 1\n`)
})

test.each(['rest', 'grpc'] as const)('token exchanges over %s count by outcome', async (transport) => {
  const { group, token } = organisation
  const subject = freshName('deployer')
  const claimMatch = { issuer: server.devIssuer.issuer, subject }
  const { uid } = ok(await server.rest.call('CreateIdentity', { parent: group, identity: { name: subject, claimMatch } }, { token }))
  const external = await server.devIssuer.mintDevToken({ subject, audience: server.config.baseUrl, claims: {} })
  const other = await server.devIssuer.mintDevToken({ subject: 'other', audience: server.config.baseUrl, claims: {} })
  const counted = await growth('taproot_token_exchanges_total', async () => {
    for (const used of [external, other, 'garbage']) await server[transport].call('SecurityTokenService/Exchange', { identity: String(uid) }, { token: used })
  })
  expect(counted).toEqual({ 'code="OK"': 1, 'code="PERMISSION_DENIED"': 1, 'code="UNAUTHENTICATED"': 1 })
})

test('the keys are replaced before they expire', async () => {
  const left = await valuesOf('taproot_key_expiry_seconds')
  expect(Object.keys(left)).toEqual(['access_tokens', 'events', 'page_tokens', 'registry_tokens'].map((keys) => `keys="${keys}"`))
  clock.advance(31 * day)
  for (const seconds of Object.values(await valuesOf('taproot_key_expiry_seconds'))) expect(seconds).toBeLessThan(0)
  const { signingKeys, eventKeys, pageKeys, registryKeys } = server.running.engine
  for (const keys of [signingKeys, eventKeys, pageKeys, registryKeys]) await keys?.maintain(AbortSignal.timeout(60_000))
  for (const [keys, seconds] of Object.entries(await valuesOf('taproot_key_expiry_seconds'))) expect(seconds, keys).toBeGreaterThan((7 * day) / 1000)
  organisation = { ...organisation, token: await server.tokenFor(organisation.owner) }
})

test.each(['rest', 'grpc'] as const)('over %s a full store counts apart from a rate limit', async (transport) => {
  const { group, token } = await makeOrganisation(server)
  const full = await growth('taproot_requests_exhausted_total', async () => {
    failNext(server, () => Promise.reject(new StoreError('exhausted', 'no room')))
    await server[transport].call('CreateGroup', { parent: group, group: { name: 'other' } }, { token })
  })
  expect(full).toEqual({ 'reason="STORE_FULL"': 1 })
  const limited = await growth('taproot_requests_exhausted_total', () =>
    clock.hold(() => Promise.all(Array.from({ length: 60 }, () => server[transport].call('ListGroups', {}, { token })))),
  )
  expect(Object.keys(limited)).toEqual(['reason="RATE_LIMITED"'])
})
