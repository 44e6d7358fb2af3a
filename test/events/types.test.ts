import type { JsonObject, JsonValue } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { personUid } from '../../src/auth/oidc/issuer-name.ts'
import { methods } from '../../src/base/schema/schema.ts'
import { parentOf, trustedUid } from '../../src/base/uid.ts'
import { OciClient } from '../registry/oci/oci-client.ts'
import { describeOnChosenStore } from '../support/parts/require-part.ts'
import { freshName, makeOrganisation, ok, startTestServer, type TestServer } from '../support/test-server.ts'
import { actOf, asEventBody, EventGround } from './event-ground.ts'
import { invite, newRepo, typeRows, type Scene } from './type-rows.ts'

const terms = [{ id: 'terms', label: 'Terms', url: 'https://example.com/terms' }]

let server: TestServer
let ground: EventGround

beforeAll(async () => {
  server = await startTestServer({ keepsContent: false, env: { TAPROOT_TERMS: JSON.stringify(terms) } })
  ground = new EventGround(server)
})
afterAll(() => server.stop())

/** The claims of the tokens of test identities. */
const act = (): JsonObject => actOf({ aud: server.config.baseUrl, iss: server.devIssuer.issuer, sub: 'test' })

describe.each(['rest', 'grpc'] as const)('over %s', (transport) => {
  const call = async (rpc: string, request: JsonObject, token: string): Promise<JsonObject> => ok(await server[transport].call(rpc, request, { token }))
  const newScene = async (): Promise<Scene> => {
    const organisation = await makeOrganisation(server)
    const own = (rpc: string, request: JsonObject, token = organisation.token): Promise<JsonObject> => call(rpc, request, token)
    return { ...organisation, server, call: own, make: async (rpc, request) => String((await own(rpc, request))['uid']) }
  }

  // docs/spec/events.md#event-types
  test.each(Object.entries(typeRows))('%s', async (type, make) => {
    const scene = await newScene()
    const event = await make(scene)
    await ground.expectEvent({ type, group: parentOf(trustedUid(event.subject)), actor: { subject: scene.owner, act: act() }, ...event })
  })

  // docs/spec/events.md#event-group
  test('the event api.iam.group.deleted.v1 of a root group has the group `/`', async () => {
    const operator = personUid(server.devIssuer.issuer, 'operator')
    const token = await server.operatorToken()
    const group = String((await call('CreateGroup', { group: { name: freshName('org') } }, token))['uid'])
    await call('DeleteGroup', { uid: group }, token)
    const actor = { subject: operator, act: { ...act(), sub: 'operator' } }
    const body = { uid: group }
    await ground.expectEvent({
      type: 'api.iam.group.deleted.v1',
      subject: group,
      group: '/',
      source: '/iam/v2/groups',
      bodyType: 'iam.v2.DeleteGroupRequest',
      body,
      actor,
    })
  })

  // docs/spec/events.md#event-types
  test('the event api.platform.registry.repo.updated.v1 of a readme has the readme as body', async () => {
    const scene = await newScene()
    const uid = await newRepo(scene)
    const rpc = 'UpdateRepoReadme'
    const body = asEventBody(rpc, await scene.call(rpc, { repoReadme: { uid, content: '# Hello' } }))
    const actor = { subject: scene.owner, act: act() }
    const type = 'api.platform.registry.repo.updated.v1'
    await ground.expectEvent({ type, subject: uid, group: scene.group, source: '/registry/v2/repos', bodyType: 'registry.v2.RepoReadme', body, actor })
  })

  // docs/spec/events.md#event-types
  test('the event api.auth.registered.v1 names the person and the group that they joined', async () => {
    const scene = await newScene()
    const { issuer } = server.devIssuer
    const subject = freshName('person')
    const { code = '' } = await scene.call('CreateGroupInvite', { parent: scene.group, groupInvite: invite() })
    const claims = { email: `${subject}@example.com`, email_verified: true }
    const token = await server.devIssuer.mintDevToken({ subject, audience: server.config.baseUrl, claims })
    await call('Register', { code }, token)
    const uid = personUid(issuer, subject)
    const body: JsonValue = { identity: uid, group: scene.group }
    const actor = { subject: uid, act: { ...act(), sub: subject, email: claims.email } }
    await ground.expectEvent({
      type: 'api.auth.registered.v1',
      subject: uid,
      group: scene.group,
      source: '/auth/v1/register',
      bodyType: 'auth.v1.Session',
      body,
      actor,
    })
  })
})

// docs/spec/events.md#event-types
test('each event type of an API method has a row in this table or its own test', () => {
  const emitted = new Set(methods.flatMap(({ event }) => (event === undefined || event.internal ? [] : [`api.${event.type}`])))
  const missing = [...emitted].filter((type) => !(type in typeRows))
  expect(missing.toSorted()).toEqual([
    'api.auth.registered.v1',
    'api.events.subscription.tested.v1',
    'api.events.subscription.updated.v1',
    'api.iam.group.joined.v1',
    'api.iam.group.name_released.v1',
  ])
})

// docs/spec/events.md#attributes
test('the trace context of a request is part of its event', async () => {
  const { group, owner, token } = await makeOrganisation(server)
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json', traceparent }
  const url = `http://127.0.0.1:${server.config.api.port}/iam/v2/groups/${group}`
  const answer = (await (await fetch(url, { method: 'POST', headers, body: JSON.stringify({ name: freshName('team') }) })).json()) as JsonObject
  const subject = String(answer['uid'])
  const shared = { type: 'api.iam.group.created.v1', source: '/iam/v2/groups', bodyType: 'iam.v2.Group', actor: { subject: owner, act: act() } }
  await ground.expectEvent({ ...shared, subject, group: subject, body: asEventBody('CreateGroup', answer), traceparent })
})

describeOnChosenStore('events of the registry host', (store) => {
  let host: TestServer
  let traffic: EventGround
  let client: OciClient
  let repo: { uid: string; path: string; group: string; owner: string; ownerName: string }

  beforeAll(async () => {
    host = await startTestServer({ store })
    traffic = new EventGround(host)
    const { group, owner, token } = await makeOrganisation(host)
    const name = freshName('repo')
    const uid = String(ok(await host.rest.call('CreateRepo', { parent: group, repo: { name } }, { token }))['uid'])
    const ownerName = String(ok(await host.rest.call('GetIdentity', { uid: owner }, { token }))['name'])
    repo = { uid, path: `${group}/${name}`, group, owner, ownerName }
    const { registry } = host.config
    const grant = { identityUid: trustedUid(owner), audiences: [registry.host], restrictions: {} }
    const minted = await host.running.signIn.tokens.mint({ ...grant, act: { issuer: host.devIssuer.issuer, subject: 'test', audience: registry.host } })
    client = new OciClient(registry.port, minted.token)
  })
  afterAll(async () => {
    client.close()
    await host.stop()
  })

  /** Checks the only event of a type that has this digest. */
  async function expectTraffic(type: string, digest: string, expected: JsonObject): Promise<void> {
    const { tag, method, type: what, user_agent, tag_previous_digest, subdomain, error } = expected
    const found = async () => (await traffic.stored({ type, subject: repo.uid })).filter((event) => Buffer.from(event.body).includes(digest || String(tag)))
    await expect.poll(async () => (await found()).length).toBe(1)
    const [event] = await found()
    if (event === undefined) throw new Error('the event is gone')
    const when = new Date(Number(event.timeMs)).toISOString().replace('Z', '000')
    const body = {
      repository: repo.path,
      repo_id: repo.uid,
      ...(tag === undefined ? {} : { tag }),
      digest,
      ...(method === undefined ? {} : { method }),
      type: what ?? 'manifest',
      when,
      location: '',
      remote_address: '127.0.0.1',
      user_agent: user_agent ?? '',
      ...(tag_previous_digest === undefined ? {} : { tag_previous_digest }),
      ...(subdomain === undefined ? {} : { subdomain }),
      ...(error === undefined ? {} : { error }),
      ...(type === 'registry.push.v1' ? { display_name: repo.ownerName } : {}),
    }
    const { registry } = host.config
    const actor = { subject: repo.owner, act: actOf({ aud: registry.host, iss: host.devIssuer.issuer, sub: 'test' }) }
    await traffic.expectRequest(event, { type, subject: repo.uid, group: repo.group, source: registry.host, bodyType: 'store.v1.RegistryTraffic', body, actor })
  }

  // docs/spec/events.md#registry-traffic
  test('registry.push.v1 describes a push', async () => {
    const first = await client.pushImage(repo.path, 'v1')
    await expectTraffic('registry.push.v1', first.digest, { tag: 'v1' })
    const second = await client.pushImage(repo.path, 'v1')
    await expectTraffic('registry.push.v1', second.digest, { tag: 'v1', tag_previous_digest: first.digest })
    const untagged = await client.image(repo.path)
    expect((await client.putManifest(repo.path, untagged.digest, untagged)).status).toBe(201)
    await expectTraffic('registry.push.v1', untagged.digest, {})
  })

  // docs/spec/events.md#registry-traffic
  test('registry.pull.v1 describes a pull', async () => {
    const headers = { 'user-agent': 'tester/1' }
    const pulled = await client.pushImage(repo.path, 'v2')
    await client.send('GET', `/v2/${repo.path}/manifests/v2`, { headers })
    await expectTraffic('registry.pull.v1', pulled.digest, { tag: 'v2', method: 'GET', user_agent: 'tester/1' })
    const { layers } = JSON.parse(pulled.bytes.toString()) as { layers: [{ digest: string }] } // a cast of what was made above
    await client.send('HEAD', `/v2/${repo.path}/blobs/${layers[0].digest}`, { headers })
    await client.send('GET', `/v2/${repo.path}/blobs/${layers[0].digest}`)
    await expectTraffic('registry.pull.v1', layers[0].digest, { method: 'GET', type: 'blob' })
  })

  // docs/spec/events.md#registry-traffic
  test('registry.pull.v1 at a subdomain', async () => {
    const { digest } = await client.pushImage(repo.path, 'v3')
    for (let at = 0; at < 3; at++) await client.send('GET', `/v2/${repo.path}/manifests/v3`, { headers: { host: `team.${host.config.registry.host}` } })
    await expectTraffic('registry.pull.v1', digest, { tag: 'v3', method: 'GET', subdomain: 'team' })
  })

  // docs/spec/events.md#registry-traffic
  test('registry.pull.v1 and registry.push.v1 of requests that failed', async () => {
    const missing = { status: 404, code: 'MANIFEST_UNKNOWN', message: 'there is no such manifest' }
    await client.send('GET', `/v2/${repo.path}/manifests/missing`)
    await expectTraffic('registry.pull.v1', '', { tag: 'missing', method: 'GET', error: missing })
    const image = await client.image(repo.path)
    const other = `sha256:${'f'.repeat(64)}`
    const { status, body } = await client.putManifest(repo.path, other, image)
    const [{ code, message }] = (JSON.parse(body.toString()) as { errors: [{ code: string; message: string }] }).errors // a cast of what every error has
    await expectTraffic('registry.push.v1', other, { error: { status, code, message } })
  })
})
